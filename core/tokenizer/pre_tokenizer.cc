#include "core/tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/tokenizer/errors.h"
#include "core/tokenizer/utf8.h"

namespace tokend::tokenizer {
namespace {

constexpr absl::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kDigit = R"(\p{N})";
constexpr absl::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Letters split where case changes from lower to upper.
constexpr absl::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kWords = R"( ?[^(\s|.,!?…。，、।۔،)]+)";
constexpr absl::string_view kDefaultPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";

// What files of the model families say. A name of several models is what the first of them had;
// "default" stands for a name that the file does not give.
constexpr PreTokenizerSpec kSpecs[] = {
    {"default", {kDefaultPunctuation, kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
    {"gpt-2", {kGpt2}},
    {"phi-2", {kGpt2}},
    {"mpt", {kGpt2}},
    {"olmo", {kGpt2}},
    {"jais", {kGpt2}},
    {"gigachat", {kGpt2}},
    {"mellum", {kGpt2}},
    {"trillion", {kGpt2}},
    {"granite-docling", {kGpt2}},
    {"smollm", {kDigit, kGpt2}},
    {"starcoder", {kDigit, kGpt2}},
    {"refact", {kDigit, kGpt2}},
    {"command-r", {kDigit, kGpt2}},
    {"codeshell", {kDigit, kGpt2}},
    {"exaone", {kDigit, kGpt2}},
    {"minerva-7b", {kDigit, kGpt2}},
    {"llama-bpe", {kLlama3}, /*whole_pieces=*/true, /*add_bos=*/true},
    {"llama3", {kLlama3}, /*whole_pieces=*/true, /*add_bos=*/true},
    {"llama-v3", {kLlama3}, /*whole_pieces=*/true, /*add_bos=*/true},
    {"falcon3", {kLlama3}, /*whole_pieces=*/true, /*add_bos=*/true},
    {"pixtral", {kLlama3}, /*whole_pieces=*/true, /*add_bos=*/true},
    {"lfm2", {kLlama3}, /*whole_pieces=*/true, /*add_bos=*/true},
    {"dbrx", {kLlama3}},
    {"smaug-bpe", {kLlama3}},
    {"chatglm-bpe", {kLlama3}},
    {"glm4", {kLlama3}},
    {"qwen2", {kQwen2}},
    {"deepseek-r1-qwen", {kQwen2}},
    {"megrez", {kQwen2}},
    {"stablelm2", {kQwen2}},
    {"tekken", {kTekken}, /*whole_pieces=*/true, /*add_bos=*/true},
    {"gpt-4o", {kGpt4o}},
    {"llama4", {kGpt4o}},
    {"poro-chat", {kWords}},
    {"viking", {kWords, kDigit}},
};

// \s and \S as the models were trained with: exactly Unicode's White_Space. (PCRE2's own \s also
// takes U+180E.)
std::string WithUnicodeSpaces(absl::string_view pattern) {
  constexpr absl::string_view kSpaces = R"(\t-\r\x{85}\p{Z})";
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\') {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      result.push_back(c);
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      absl::StrAppend(&result, in_class ? "" : "[", kSpaces, in_class ? "" : "]");
    } else if (escaped == 'S' && !in_class) {
      absl::StrAppend(&result, "[^", kSpaces, "]");
    } else {
      result.push_back(c);
      result.push_back(escaped);
    }
  }
  return result;
}

template <typename T, void (*Free)(T*)>
struct Pcre2Delete {
  void operator()(T* object) const { Free(object); }
};
using Code = std::unique_ptr<pcre2_code, Pcre2Delete<pcre2_code, pcre2_code_free>>;
using MatchData =
    std::unique_ptr<pcre2_match_data, Pcre2Delete<pcre2_match_data, pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context,
                                     Pcre2Delete<pcre2_match_context, pcre2_match_context_free>>;

PCRE2_SPTR Pcre2Bytes(absl::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

// What one call of Split needs: PCRE2's match data are not shared between threads.
class PreTokenizer::Scratch {
 public:
  Scratch() : match_(pcre2_match_data_create(1, nullptr)) { TOKEND_CHECK(match_ != nullptr); }
  pcre2_match_data* match() const { return match_.get(); }

 private:
  MatchData match_;
};

class PreTokenizer::Pattern {
 public:
  explicit Pattern(absl::string_view pattern) : limits_(pcre2_match_context_create(nullptr)) {
    const std::string text = WithUnicodeSpaces(pattern);
    int error = 0;
    PCRE2_SIZE error_offset = 0;
    code_.reset(pcre2_compile(Pcre2Bytes(text), text.size(), PCRE2_UTF | PCRE2_UCP, &error,
                              &error_offset, nullptr));
    TOKEND_CHECK(code_ != nullptr && limits_ != nullptr);  // the table is ours
    // No JIT (another architecture, or memory that may not be both written and executed) is no
    // error: the interpreter then does the same, slower.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    pcre2_set_heap_limit(limits_.get(), kHeapLimitKib);
    pcre2_set_match_limit(limits_.get(), kMatchLimit);
  }

  // The first match at or after `begin`; false: none.
  absl::StatusOr<bool> Find(absl::string_view text, size_t begin, pcre2_match_data* match,
                            size_t* match_begin, size_t* match_end) const {
    int result = Match(text, begin, 0, match);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = Match(text, begin, PCRE2_NO_JIT, match);
    if (result == PCRE2_ERROR_NOMATCH) return false;
    if (result < 0) return PatternFailed(result);
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match);
    *match_begin = offsets[0];
    *match_end = offsets[1];
    return true;
  }

 private:
  // The patterns backtrack at most once over the run they stand on, a MiB of text at the longest.
  static constexpr uint32_t kMatchLimit = 64u << 20;
  static constexpr uint32_t kHeapLimitKib = 64u << 10;

  int Match(absl::string_view text, size_t begin, uint32_t options, pcre2_match_data* match) const {
    return pcre2_match(code_.get(), Pcre2Bytes(text), text.size(), begin,
                       options | PCRE2_NO_UTF_CHECK, match, limits_.get());
  }

  Code code_;
  MatchContext limits_;
};

PreTokenizer::PreTokenizer(const PreTokenizerSpec& spec) : spec_(spec) {
  for (absl::string_view pattern : spec.patterns) {
    if (!pattern.empty()) patterns_.push_back(std::make_unique<Pattern>(pattern));
  }
}

PreTokenizer::~PreTokenizer() = default;

std::vector<absl::string_view> PreTokenizer::KnownNames() {
  std::vector<absl::string_view> names;
  for (const PreTokenizerSpec& spec : kSpecs) names.push_back(spec.name);
  return names;
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> PreTokenizer::Create(absl::string_view name) {
  for (const PreTokenizerSpec& spec : kSpecs) {
    if (spec.name == name) return std::unique_ptr<PreTokenizer>(new PreTokenizer(spec));
  }
  return gguf::Unsupported(
      "key 'tokenizer.ggml.pre'",
      absl::StrCat("pre-tokeniser ", gguf::Quoted(name),
                   " is not known; known: ", absl::StrJoin(KnownNames(), ", ")));
}

absl::Status PreTokenizer::Split(absl::string_view text,
                                 absl::FunctionRef<absl::Status(absl::string_view)> sink) const {
  Scratch scratch;
  size_t begin = 0;
  while (begin < text.size()) {
    // The longest stretch that is all UTF-8, or none of it.
    size_t end = begin;
    const auto valid_at = [&] {
      return ClassifyUtf8(text.substr(end)).kind == Utf8Prefix::kCodePoint;
    };
    const bool valid = valid_at();
    do {
      end += ClassifyUtf8(text.substr(end)).size;
    } while (end < text.size() && valid_at() == valid);
    const absl::string_view stretch = text.substr(begin, end - begin);
    TOKEND_RETURN_IF_ERROR(valid ? SplitValid(stretch, 0, scratch, sink) : sink(stretch));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status PreTokenizer::SplitValid(
    absl::string_view text, size_t stage, Scratch& scratch,
    absl::FunctionRef<absl::Status(absl::string_view)> sink) const {
  if (stage == patterns_.size()) return sink(text);
  const auto emit = [&](size_t begin, size_t end) {
    if (begin == end) return absl::OkStatus();
    return SplitValid(text.substr(begin, end - begin), stage + 1, scratch, sink);
  };
  size_t done = 0;    // everything before has been passed on
  size_t search = 0;  // where to look for the next match
  while (search < text.size()) {
    size_t begin = 0;
    size_t end = 0;
    TOKEND_ASSIGN_OR_RETURN(const bool found,
                            patterns_[stage]->Find(text, search, scratch.match(), &begin, &end));
    if (!found) break;
    if (begin == end) {
      // An empty match splits nothing: step over one code point.
      search = end < text.size() ? end + ClassifyUtf8(text.substr(end)).size : end;
      continue;
    }
    TOKEND_RETURN_IF_ERROR(emit(done, begin));
    TOKEND_RETURN_IF_ERROR(emit(begin, end));
    done = search = end;
  }
  return emit(done, text.size());
}

}  // namespace tokend::tokenizer
