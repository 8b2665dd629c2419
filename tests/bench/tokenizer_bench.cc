// Text to tokens: a MiB of what is hardest for a tokeniser, and loading the vocabulary.
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/file.h"
#include "core/tokenizer/pre_tokenizer.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/bench/bench.h"
#include "tests/support/gguf_writer.h"

namespace tokend::bench {
namespace {

constexpr size_t kTextBytes = 1 << 20;
constexpr double kMostSeconds = 2;

struct Text {
  const char* name;
  const char* unit;  // repeated
};
constexpr Text kTexts[] = {
    {"one letter", "a"}, {"one capital", "A"},    {"spaces", " "},
    {"digits", "7"},     {"emoji", "\U0001F600"}, {"Chinese", "\u4F60\u597D\u4E16\u754C"},
    {"newlines", "\n"},  {"not UTF-8", "\xFF"},   {"words", "the cat sat on the mat. "}};

// Of this process on a processor, which other processes do not lengthen.
double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// The slowest text, and what is too slow.
absl::Status Measure(const std::string& name, const tokenizer::Tokenizer& tokenizer, bool each,
                     Report* report) {
  double slowest = 0;
  std::string slowest_text;
  for (const Text& text : kTexts) {
    std::string repeated;
    while (repeated.size() < kTextBytes) repeated += text.unit;
    const auto start = CpuSeconds();
    TOKEND_RETURN_IF_ERROR(tokenizer.Encode(repeated).status());
    const double seconds = CpuSeconds() - start;
    if (each) report->Add(absl::StrCat(name, ", 1 MiB of ", text.name), 1e3 * seconds, "ms");
    if (seconds < slowest) continue;
    slowest = seconds;
    slowest_text = text.name;
  }
  if (!each) report->Add(absl::StrCat(name, ", slowest: ", slowest_text), 1e3 * slowest, "ms");
  if (slowest < kMostSeconds) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(name, ": 1 MiB of ", slowest_text, " took ", slowest,
                                          " s, want less than ", kMostSeconds, " s"));
}

absl::StatusOr<std::unique_ptr<tokenizer::Tokenizer>> Tiny(absl::string_view pre_tokenizer) {
  testing::GgufWriter writer;
  testing::AddTinyVocabulary(writer, pre_tokenizer);
  const std::string bytes = writer.Build();
  TOKEND_ASSIGN_OR_RETURN(const auto file,
                          gguf::File::Parse(absl::MakeConstSpan(
                              reinterpret_cast<const std::byte*>(bytes.data()), bytes.size())));
  return tokenizer::Tokenizer::Create(*file);
}

}  // namespace

absl::Status RunTokenizer(const Options& options, Report* report) {
  absl::Status status;
  if (!options.model_path.empty()) {
    TOKEND_ASSIGN_OR_RETURN(const auto file, gguf::File::OpenMetadata(options.model_path));
    const auto start = CpuSeconds();
    TOKEND_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Create(*file));
    report->Add("load the model's vocabulary", 1e3 * (CpuSeconds() - start), "ms");
    status.Update(Measure("model", *tokenizer, /*each=*/true, report));
  }
  for (const absl::string_view name : tokenizer::PreTokenizer::KnownNames()) {
    TOKEND_ASSIGN_OR_RETURN(const auto tokenizer, Tiny(name));
    status.Update(Measure(std::string(name), *tokenizer, /*each=*/false, report));
  }
  return status;
}

}  // namespace tokend::bench
