#ifndef TOKEND_CORE_TOKENIZER_PRE_TOKENIZER_H_
#define TOKEND_CORE_TOKENIZER_PRE_TOKENIZER_H_

#include <array>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tokend::tokenizer {

// A line of the table of known pre-tokenisers.
struct PreTokenizerSpec {
  absl::string_view name;  // tokenizer.ggml.pre
  // Regular expressions as published for the model. The first splits the text into its matches and
  // what is between them, the next splits each of those pieces, and so on.
  // An empty one is none.
  std::array<absl::string_view, 4> patterns;
  // A piece that is a token as a whole is that token, whatever the merges say.
  bool whole_pieces = false;
  // Put BOS in front if the file does not say (tokenizer.ggml.add_bos_token).
  bool add_bos = false;
};

// Cuts text into the pieces within which bytes are merged. Immutable and thread-safe.
class PreTokenizer {
 public:
  // All names that Create takes.
  static std::vector<absl::string_view> KnownNames();
  // UNIMPLEMENTED, with the list of known names.
  static absl::StatusOr<std::unique_ptr<PreTokenizer>> Create(absl::string_view name);

  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  const PreTokenizerSpec& spec() const { return spec_; }

  // Calls `sink` with each piece in turn: views into `text`, never empty, which together are all of
  // it. A run of bytes that are not UTF-8 is a piece. Stops at the first error of `sink`.
  absl::Status Split(absl::string_view text,
                     absl::FunctionRef<absl::Status(absl::string_view)> sink) const;

 private:
  class Pattern;
  class Scratch;

  explicit PreTokenizer(const PreTokenizerSpec& spec);
  absl::Status SplitValid(absl::string_view text, size_t stage, Scratch& scratch,
                          absl::FunctionRef<absl::Status(absl::string_view)> sink) const;

  const PreTokenizerSpec& spec_;
  std::vector<std::unique_ptr<const Pattern>> patterns_;
};

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_PRE_TOKENIZER_H_
