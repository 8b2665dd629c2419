#include "core/tokenizer/special_matcher.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/tokenizer/errors.h"

namespace tokend::tokenizer {
namespace {

constexpr size_t kMaxNameBytes = 255;

int64_t Edge(int32_t node, char byte) {
  return static_cast<int64_t>(node) * 256 + static_cast<unsigned char>(byte);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SpecialMatcher>> SpecialMatcher::Create(
    const Vocabulary& vocabulary) {
  std::unique_ptr<SpecialMatcher> matcher(new SpecialMatcher);
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const Token& token = vocabulary[id];
    if (!token.special && token.type != TokenType::kUserDefined) continue;
    if (token.bytes.empty()) continue;  // never matches
    TOKEND_RETURN_IF_ERROR(matcher->Add(id, token));
  }
  return matcher;
}

absl::Status SpecialMatcher::Add(int32_t id, const Token& token) {
  if (token.bytes.size() > kMaxNameBytes) {
    return gguf::Damaged(
        "key 'tokenizer.ggml.tokens'",
        absl::StrCat("token ", id, " is a special token of ", token.bytes.size(), " bytes"));
  }
  int32_t node = 0;
  for (char byte : token.bytes) {
    const auto [it, added] =
        children_.emplace(Edge(node, byte), static_cast<int32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    node = it->second;
  }
  Node& end = nodes_[static_cast<size_t>(node)];
  if (end.id >= 0) return RepeatedToken(id, token.bytes, end.id);
  end = {id, token.special};
  if (!token.special) has_user_defined_ = true;
  return absl::OkStatus();
}

int32_t SpecialMatcher::Child(int32_t node, char byte) const {
  const auto it = children_.find(Edge(node, byte));
  return it == children_.end() ? -1 : it->second;
}

std::optional<SpecialMatcher::Match> SpecialMatcher::MatchAt(absl::string_view text, size_t begin,
                                                             bool parse_special) const {
  std::optional<Match> longest;
  int32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    node = Child(node, text[i]);
    if (node < 0) break;
    const Node& reached = nodes_[static_cast<size_t>(node)];
    if (reached.id >= 0 && (parse_special || !reached.special)) {
      longest = Match{begin, i + 1 - begin, reached.id};
    }
  }
  return longest;
}

std::optional<SpecialMatcher::Match> SpecialMatcher::Find(absl::string_view text, size_t begin,
                                                          bool parse_special) const {
  if (!parse_special && !has_user_defined_) return std::nullopt;
  for (size_t i = begin; i < text.size(); ++i) {
    const std::optional<Match> match = MatchAt(text, i, parse_special);
    if (match.has_value()) return match;
  }
  return std::nullopt;
}

std::optional<int32_t> SpecialMatcher::FindSpecial(absl::string_view name) const {
  int32_t node = 0;
  for (char byte : name) {
    node = Child(node, byte);
    if (node < 0) return std::nullopt;
  }
  const Node& reached = nodes_[static_cast<size_t>(node)];
  if (reached.id < 0 || !reached.special) return std::nullopt;
  return reached.id;
}

}  // namespace tokend::tokenizer
