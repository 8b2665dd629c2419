#ifndef TOKEND_CORE_TOKENIZER_SPECIAL_MATCHER_H_
#define TOKEND_CORE_TOKENIZER_SPECIAL_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/tokenizer/vocabulary.h"

namespace tokend::tokenizer {

// Finds in text the tokens that are read as a whole instead of merged from bytes: user-defined ones
// always, special ones on request. A trie of their names; immutable.
class SpecialMatcher {
 public:
  struct Match {
    size_t begin = 0;
    size_t size = 0;
    int32_t id = 0;
  };

  // DATA_LOSS: two tokens of one name, or a name of more than 255 bytes (which bounds the work at a
  // position of the text).
  static absl::StatusOr<std::unique_ptr<SpecialMatcher>> Create(const Vocabulary& vocabulary);

  // The leftmost match at or after `begin`, of those the longest.
  std::optional<Match> Find(absl::string_view text, size_t begin, bool parse_special) const;

  // The special token of exactly this name.
  std::optional<int32_t> FindSpecial(absl::string_view name) const;

 private:
  struct Node {
    int32_t id = -1;  // of the token that ends here
    bool special = false;
  };

  SpecialMatcher() : nodes_(1) {}
  absl::Status Add(int32_t id, const Token& token);
  // -1: no such node.
  int32_t Child(int32_t node, char byte) const;
  std::optional<Match> MatchAt(absl::string_view text, size_t begin, bool parse_special) const;

  std::vector<Node> nodes_;                         // the first is the root
  absl::flat_hash_map<int64_t, int32_t> children_;  // node * 256 + byte
  bool has_user_defined_ = false;
};

}  // namespace tokend::tokenizer

#endif  // TOKEND_CORE_TOKENIZER_SPECIAL_MATCHER_H_
