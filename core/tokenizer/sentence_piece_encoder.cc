#include "core/tokenizer/sentence_piece_encoder.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/tokenizer/errors.h"
#include "core/tokenizer/utf8.h"

namespace tokend::tokenizer {
namespace {

constexpr char kScoresKey[] = "tokenizer.ggml.scores";

// Numbers in the opposite order of the scores.
uint32_t DescendingOrder(float score) {
  const float plus_zero = score + 0.0F;  // -0 is as good as 0
  uint32_t bits = 0;
  std::memcpy(&bits, &plus_zero, sizeof(bits));
  const bool negative = (bits & 0x80000000U) != 0;
  return negative ? bits : ~bits & 0x7fffffffU;
}

// The byte of `text` from which byte `index` of its escaped form comes.
size_t SourceOffset(absl::string_view text, size_t index, bool prefixed) {
  if (prefixed) index = index == 0 ? 0 : index - 1;
  size_t source = 0;
  for (; index > 0 && source < text.size(); --index) {
    source += text.substr(source, kEscapedSpace.size()) == kEscapedSpace ? kEscapedSpace.size() : 1;
  }
  return source;
}

}  // namespace

// One text while it is merged: a doubly linked list of symbols, and a queue of possible merges.
class SentencePieceEncoder::Merger {
 public:
  Merger(const SentencePieceEncoder& encoder, absl::string_view text)
      : encoder_(encoder), text_(text) {}

  void Run() {
    for (size_t at = 0; at < text_.size();) {
      const size_t size = ClassifyUtf8(text_.substr(at)).size;
      const auto index = static_cast<int32_t>(symbols_.size());
      symbols_.push_back({at, size, encoder_.Find(text_.substr(at, size)), index - 1, index + 1});
      at += size;
    }
    symbols_.back().next = kNone;
    for (size_t i = 0; i + 1 < symbols_.size(); ++i) Offer(static_cast<int32_t>(i));
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      Apply(best);
    }
  }

  // What has no token is given to `on_bytes` as [begin, begin + size) of the text.
  absl::Status Collect(std::vector<int32_t>* ids,
                       const std::function<absl::Status(size_t, size_t)>& on_bytes) const {
    for (int32_t i = 0; i != kNone; i = symbols_[i].next) {
      if (symbols_[i].id < 0) {
        TOKEND_RETURN_IF_ERROR(on_bytes(symbols_[i].begin, symbols_[i].size));
      } else {
        TakeApart(symbols_[i].id, ids);
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int32_t kNone = -1;

  struct Symbol {
    size_t begin;
    size_t size;  // 0: joined to the symbol before
    int32_t id;   // -1: no token
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint64_t rank;  // order of the score << 32 | the left symbol; the least first
    size_t size;    // bytes of both
    int32_t id;     // of the token they make
    bool operator>(const Candidate& other) const { return rank > other.rank; }
  };

  // Queues the joining of the symbol at `left` and the next, if they make a token.
  void Offer(int32_t left) {
    if (left == kNone || symbols_[left].next == kNone) return;
    const Symbol& first = symbols_[left];
    const Symbol& second = symbols_[first.next];
    const size_t size = first.size + second.size;
    const int32_t id = encoder_.Find(text_.substr(first.begin, size));
    if (id < 0) return;
    const uint64_t order = encoder_.score_order_[static_cast<size_t>(id)];
    queue_.push({order << 32 | static_cast<uint32_t>(left), size, id});
    if (encoder_.vocabulary_[id].type == TokenType::kUnused) {
      halves_[id] = {first.id, second.id};
    }
  }

  void Apply(const Candidate& candidate) {
    const auto left = static_cast<int32_t>(candidate.rank & 0xffffffff);
    Symbol& first = symbols_[left];
    // A merge since may have changed or taken away one of the two.
    if (first.size == 0 || first.next == kNone) return;
    Symbol& second = symbols_[first.next];
    if (first.size + second.size != candidate.size) return;
    first.size = candidate.size;
    first.id = candidate.id;
    first.next = second.next;
    second.size = 0;
    if (first.next != kNone) symbols_[first.next].previous = left;
    Offer(first.previous);
    Offer(left);
  }

  // Halves without a token of their own cannot be taken apart: the unused token stays.
  void TakeApart(int32_t id, std::vector<int32_t>* ids) const {
    std::vector<int32_t> waiting = {id};
    while (!waiting.empty()) {
      const int32_t last = waiting.back();
      waiting.pop_back();
      const auto it = halves_.find(last);
      if (it == halves_.end() || it->second.first < 0 || it->second.second < 0) {
        ids->push_back(last);
      } else {
        waiting.push_back(it->second.second);
        waiting.push_back(it->second.first);
      }
    }
  }

  const SentencePieceEncoder& encoder_;
  const absl::string_view text_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
  // Of unused tokens: the two that made it last.
  absl::flat_hash_map<int32_t, std::pair<int32_t, int32_t>> halves_;
};

absl::StatusOr<std::unique_ptr<SentencePieceEncoder>> SentencePieceEncoder::Create(
    const gguf::File& file, const Vocabulary* vocabulary) {
  std::unique_ptr<SentencePieceEncoder> encoder(new SentencePieceEncoder(vocabulary));
  TOKEND_ASSIGN_OR_RETURN(encoder->space_prefix_,
                          file.GetBoolOr("tokenizer.ggml.add_space_prefix", true));
  TOKEND_RETURN_IF_ERROR(encoder->LoadTokens());
  TOKEND_RETURN_IF_ERROR(encoder->LoadScores(file));
  return encoder;
}

absl::Status SentencePieceEncoder::LoadTokens() {
  byte_ids_.fill(-1);
  ids_.reserve(static_cast<size_t>(vocabulary_.size()));
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const Token& token = vocabulary_[id];
    if (token.type == TokenType::kByte) {
      int32_t& known = byte_ids_[static_cast<unsigned char>(token.bytes[0])];
      if (known >= 0) return RepeatedToken(id, token.bytes, known);
      known = id;
    } else if (token.mergeable) {
      const auto [it, added] = ids_.emplace(token.bytes, id);
      if (!added) return RepeatedToken(id, token.bytes, it->second);
      longest_token_bytes_ = std::max(longest_token_bytes_, token.bytes.size());
    }
  }
  return absl::OkStatus();
}

absl::Status SentencePieceEncoder::LoadScores(const gguf::File& file) {
  TOKEND_ASSIGN_OR_RETURN(const std::vector<float> scores, file.GetF32s(kScoresKey));
  if (scores.size() != static_cast<size_t>(vocabulary_.size())) {
    return gguf::Damaged(
        absl::StrCat("key '", kScoresKey, "'"),
        absl::StrCat(scores.size(), " scores for ", vocabulary_.size(), " tokens"));
  }
  score_order_.reserve(scores.size());
  for (const float score : scores) score_order_.push_back(DescendingOrder(score));
  return absl::OkStatus();
}

int32_t SentencePieceEncoder::Find(absl::string_view bytes) const {
  if (bytes.size() > longest_token_bytes_) return -1;
  const auto it = ids_.find(bytes);
  return it == ids_.end() ? -1 : it->second;
}

absl::Status SentencePieceEncoder::Encode(absl::string_view text, size_t offset, bool at_boundary,
                                          std::vector<int32_t>* ids) const {
  const bool prefixed = at_boundary && space_prefix_;
  std::string escaped;
  absl::string_view symbols = text;
  if (prefixed || text.find(kEscapedSpace) != absl::string_view::npos) {
    escaped = absl::StrCat(prefixed ? " " : "", UnescapeSpaces(text));
    symbols = escaped;
  }
  Merger merger(*this, symbols);
  merger.Run();
  return merger.Collect(ids, [&](size_t begin, size_t size) {
    for (size_t i = begin; i < begin + size; ++i) {
      const auto byte = static_cast<unsigned char>(symbols[i]);
      if (byte_ids_[byte] < 0) {
        return ByteWithoutToken(byte, offset + SourceOffset(text, i, prefixed));
      }
      ids->push_back(byte_ids_[byte]);
    }
    return absl::OkStatus();
  });
}

}  // namespace tokend::tokenizer
