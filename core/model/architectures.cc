#include "core/model/architectures.h"

#include "absl/strings/str_cat.h"
#include "core/gguf/errors.h"

namespace tokend::model {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", BuildLlama},
    {"gpt2", BuildGpt2},
    {"phi3", BuildPhi3},
    {"chatglm", BuildChatGlm},
    {"glm4", BuildGlm4},
    {"qwen2", BuildQwen2},
    {"qwen3", BuildQwen3},
    {"gemma2", BuildGemma2},
    {"gemma3", BuildGemma3},
    {"smollm3", BuildSmolLm3},
    {"olmo2", BuildOlmo2},
    {"granite", BuildGranite},
    {"starcoder2", BuildStarCoder2},
    {"stablelm", BuildStableLm},
    {"gptneox", BuildGptNeoX},
    {"phi2", BuildPhi2},
};

}  // namespace

absl::Span<const Architecture> Architectures() { return kArchitectures; }

absl::StatusOr<const Architecture*> FindArchitecture(absl::string_view name) {
  std::string known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
    absl::StrAppend(&known, known.empty() ? "" : ", ", architecture.name);
  }
  return gguf::Unsupported("key 'general.architecture'",
                           absl::StrCat("is ", gguf::Quoted(name), "; known: ", known));
}

}  // namespace tokend::model
