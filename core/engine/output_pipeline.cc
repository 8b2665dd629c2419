#include "core/engine/output_pipeline.h"

#include <algorithm>
#include <utility>

namespace tokend::engine {

using tokenizer::DecodedText;

OutputPipeline::OutputPipeline(const tokenizer::Tokenizer* tokenizer,
                               std::vector<std::string> stop_strings)
    : tokenizer_(tokenizer), matcher_(std::move(stop_strings)), decoder_(tokenizer) {}

bool OutputPipeline::Push(int32_t token, std::optional<TokenLogprob> logprob) {
  const absl::string_view bytes = tokenizer_->TokenBytes(token);
  bytes_.append(bytes.data(), bytes.size());
  DecodedText decoded = decoder_.FeedBytes(bytes);
  waiting_.push_back({token, std::move(logprob), sent_bytes_ + bytes_.size(),
                      std::move(decoded.text), decoded.replaced, decoder_.pending_bytes() == 0});
  match_ = matcher_.Feed(bytes);
  if (!match_.has_value()) return false;
  size_t begin = sent_bytes_;
  kept_tokens_ = sent_tokens_;
  for (const Waiting& waiting : waiting_) {
    if (begin >= match_->begin) break;
    begin = waiting.end;
    ++kept_tokens_;
  }
  return true;
}

std::optional<Delta> OutputPipeline::TakeReady() {
  const size_t free = matcher_.fed() - matcher_.held();
  size_t count = waiting_.size();
  while (count > 0 && (waiting_[count - 1].end > free || !waiting_[count - 1].whole)) --count;
  if (count == 0) return std::nullopt;
  return Take(count, waiting_[count - 1].end);
}

std::optional<Delta> OutputPipeline::TakeRest() {
  const size_t count =
      match_.has_value() ? static_cast<size_t>(kept_tokens_ - sent_tokens_) : waiting_.size();
  if (count == 0) return std::nullopt;
  const size_t end = match_.has_value() ? match_->begin : sent_bytes_ + bytes_.size();
  // What waited last may end in an unfinished code point, or be cut inside one:
  // its text is made from the bytes that remain.
  tokenizer::IncrementalDecoder decoder(tokenizer_);
  DecodedText whole = decoder.FeedBytes(absl::string_view(bytes_).substr(0, end - sent_bytes_));
  const DecodedText rest = decoder.Flush();
  for (size_t i = 0; i < count; ++i) waiting_[i].text.clear();
  waiting_[0].text = std::move(whole.text) + rest.text;
  waiting_[0].replaced = whole.replaced || rest.replaced;
  return Take(count, end);
}

Delta OutputPipeline::Take(size_t count, size_t end) {
  Delta delta;
  delta.index = sent_tokens_;
  for (size_t i = 0; i < count; ++i) {
    Waiting& waiting = waiting_[i];
    delta.text += waiting.text;
    delta.text_is_exact = delta.text_is_exact && !waiting.replaced;
    delta.token_ids.push_back(waiting.token);
    if (waiting.logprob.has_value()) delta.logprobs.push_back(*std::move(waiting.logprob));
  }
  const size_t size = end - sent_bytes_;
  delta.raw = bytes_.substr(0, size);
  bytes_.erase(0, size);
  sent_bytes_ = end;
  sent_tokens_ += static_cast<int32_t>(count);
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(count));
  return delta;
}

}  // namespace tokend::engine
