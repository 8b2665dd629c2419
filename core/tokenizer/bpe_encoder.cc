#include "core/tokenizer/bpe_encoder.h"

#include <functional>
#include <limits>
#include <queue>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/tokenizer/byte_alphabet.h"
#include "core/tokenizer/errors.h"

namespace tokend::tokenizer {
namespace {

constexpr char kMergesKey[] = "tokenizer.ggml.merges";

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

absl::Status BadMerge(int32_t rank, absl::string_view line, absl::string_view problem) {
  return gguf::Damaged(absl::StrCat("key '", kMergesKey, "'"),
                       absl::StrCat("merge ", rank, ", ", gguf::Quoted(line), ", ", problem));
}

}  // namespace

// A piece while it is merged: a doubly linked list of tokens, and a queue of possible merges.
class BpeEncoder::PieceMerger {
 public:
  explicit PieceMerger(const BpeEncoder& encoder) : encoder_(encoder) {}

  // `symbols`: at least one id.
  void Run(std::vector<int32_t>* symbols) {
    ids_.swap(*symbols);
    const auto count = static_cast<int32_t>(ids_.size());
    previous_.resize(ids_.size());
    next_.resize(ids_.size());
    for (int32_t i = 0; i < count; ++i) {
      previous_[i] = i - 1;
      next_[i] = i + 1 < count ? i + 1 : kNone;
      if (i > 0) Offer(i - 1);
    }
    while (!queue_.empty()) {
      const uint64_t best = queue_.top();
      queue_.pop();
      Apply(encoder_.merges_[best >> 32], static_cast<int32_t>(best & 0xffffffff));
    }
    symbols->clear();
    for (int32_t i = 0; i != kNone; i = next_[i]) symbols->push_back(ids_[i]);
  }

 private:
  static constexpr int32_t kNone = -1;

  // Queues the merge of the token at `position` with the next, if there is one.
  void Offer(int32_t position) {
    if (position == kNone || next_[position] == kNone) return;
    const int32_t rank = encoder_.FindRank(ids_[position], ids_[next_[position]]);
    if (rank < 0) return;
    queue_.push(static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(position));
  }

  void Apply(const Merge& merge, int32_t left) {
    const int32_t right = next_[left];
    // A merge since may have changed or taken away one of the two.
    if (ids_[left] != merge.left || right == kNone || ids_[right] != merge.right) return;
    ids_[left] = merge.merged;
    next_[left] = next_[right];
    if (next_[right] != kNone) previous_[next_[right]] = left;
    ids_[right] = kNone;
    next_[right] = kNone;
    Offer(previous_[left]);
    Offer(left);
  }

  const BpeEncoder& encoder_;
  std::vector<int32_t> ids_;
  std::vector<int32_t> previous_;
  std::vector<int32_t> next_;
  // rank << 32 | position of the left token; least first.
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue_;
};

absl::StatusOr<std::unique_ptr<BpeEncoder>> BpeEncoder::Create(const gguf::File& file,
                                                               const Vocabulary& vocabulary) {
  std::unique_ptr<BpeEncoder> encoder(new BpeEncoder);
  TOKEND_ASSIGN_OR_RETURN(const absl::string_view name,
                          file.GetStringOr("tokenizer.ggml.pre", "default"));
  TOKEND_ASSIGN_OR_RETURN(encoder->pre_tokenizer_, PreTokenizer::Create(name));
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const Token& token = vocabulary[id];
    if (!token.mergeable) continue;
    const auto [it, added] = encoder->ids_.emplace(token.bytes, id);
    if (!added) return RepeatedToken(id, token.bytes, it->second);
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto it = encoder->ids_.find(std::string(1, static_cast<char>(byte)));
    encoder->byte_ids_[byte] = it == encoder->ids_.end() ? -1 : it->second;
  }
  TOKEND_RETURN_IF_ERROR(encoder->LoadMerges(file));
  if (!encoder->pre_tokenizer().whole_pieces) IdByBytes().swap(encoder->ids_);
  return encoder;
}

absl::Status BpeEncoder::LoadMerges(const gguf::File& file) {
  TOKEND_ASSIGN_OR_RETURN(const std::vector<absl::string_view> lines, file.GetStrings(kMergesKey));
  if (lines.size() > std::numeric_limits<int32_t>::max()) {
    return gguf::Damaged(absl::StrCat("key '", kMergesKey, "'"), "too many merges");
  }
  merges_.reserve(lines.size());
  ranks_.reserve(lines.size());
  for (absl::string_view line : lines) TOKEND_RETURN_IF_ERROR(AddMerge(line));
  return absl::OkStatus();
}

absl::Status BpeEncoder::AddMerge(absl::string_view line) {
  const auto rank = static_cast<int32_t>(merges_.size());
  merges_.push_back({-1, -1, -1});
  // "left right" in the byte alphabet, which has no space.
  const size_t space = line.find(' ');
  if (space == absl::string_view::npos) return BadMerge(rank, line, "is not two tokens");
  const auto left = FromByteAlphabet(line.substr(0, space));
  const auto right = FromByteAlphabet(line.substr(space + 1));
  if (!left.has_value() || !right.has_value() || left->empty() || right->empty()) {
    return BadMerge(rank, line, "is not two tokens");
  }
  const auto left_id = ids_.find(*left);
  const auto right_id = ids_.find(*right);
  const auto merged_id = ids_.find(*left + *right);
  if (left_id == ids_.end() || right_id == ids_.end() || merged_id == ids_.end()) {
    // Pruned vocabularies keep such merges. They can never apply.
    return absl::OkStatus();
  }
  merges_.back() = {left_id->second, right_id->second, merged_id->second};
  if (!ranks_.emplace(PairKey(left_id->second, right_id->second), rank).second) {
    return BadMerge(rank, line, "is there twice");
  }
  return absl::OkStatus();
}

int32_t BpeEncoder::FindRank(int32_t left, int32_t right) const {
  const auto it = ranks_.find(PairKey(left, right));
  return it == ranks_.end() ? -1 : it->second;
}

absl::Status BpeEncoder::Encode(absl::string_view text, size_t offset, bool /*at_boundary*/,
                                std::vector<int32_t>* ids) const {
  PieceMerger merger(*this);
  std::vector<int32_t> symbols;
  return pre_tokenizer_->Split(text, [&](absl::string_view piece) {
    if (pre_tokenizer().whole_pieces) {
      const auto it = ids_.find(piece);
      if (it != ids_.end()) {
        ids->push_back(it->second);
        return absl::OkStatus();
      }
    }
    symbols.clear();
    for (size_t i = 0; i < piece.size(); ++i) {
      const auto byte = static_cast<unsigned char>(piece[i]);
      if (byte_ids_[byte] < 0) {
        return ByteWithoutToken(byte, offset + static_cast<size_t>(piece.data() - text.data()) + i);
      }
      symbols.push_back(byte_ids_[byte]);
    }
    merger.Run(&symbols);
    ids->insert(ids->end(), symbols.begin(), symbols.end());
    return absl::OkStatus();
  });
}

}  // namespace tokend::tokenizer
