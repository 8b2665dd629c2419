#include "core/tokenizer/incremental_decoder.h"

#include "core/tokenizer/utf8.h"

namespace tokend::tokenizer {

DecodedText IncrementalDecoder::FeedBytes(absl::string_view bytes) {
  pending_.append(bytes.data(), bytes.size());
  size_t complete = 0;
  bool replaced = false;
  while (complete < pending_.size()) {
    const Utf8Prefix prefix = ClassifyUtf8(absl::string_view(pending_).substr(complete));
    if (prefix.kind == Utf8Prefix::kIncomplete) break;
    if (prefix.kind == Utf8Prefix::kInvalid) replaced = true;
    complete += prefix.size;
  }
  DecodedText result;
  result.raw = pending_.substr(0, complete);
  result.text = replaced ? ReplaceInvalidUtf8(result.raw) : result.raw;
  result.replaced = replaced;
  pending_.erase(0, complete);
  return result;
}

DecodedText IncrementalDecoder::Flush() {
  DecodedText result;
  result.raw.swap(pending_);
  result.text = ReplaceInvalidUtf8(result.raw);
  result.replaced = !result.raw.empty();
  return result;
}

}  // namespace tokend::tokenizer
