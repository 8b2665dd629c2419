#include "core/model/architectures.h"

#include "absl/strings/str_cat.h"
#include "core/gguf/errors.h"

namespace tokend::model {
namespace {

constexpr Architecture kArchitectures[] = {
    {"llama", BuildLlama},
};

}  // namespace

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
