#ifndef TOKEND_CORE_ENGINE_OUTPUT_PIPELINE_H_
#define TOKEND_CORE_ENGINE_OUTPUT_PIPELINE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/request.h"
#include "core/sampling/stop_matcher.h"
#include "core/tokenizer/incremental_decoder.h"
#include "core/tokenizer/tokenizer.h"

namespace tokend::engine {

// From the tokens of a turn's output to the pieces that are sent. A token waits
// while one of its bytes may belong to a stop string or to an unfinished code
// point, so the bytes of the tokens sent are always the bytes sent; only a token
// that a stop string cuts is sent with fewer.
class OutputPipeline {
 public:
  // `tokenizer` outlives the pipeline.
  OutputPipeline(const tokenizer::Tokenizer* tokenizer, std::vector<std::string> stop_strings);

  // Adds a token. True: a stop string is complete; add no more.
  bool Push(int32_t token, std::optional<TokenLogprob> logprob);

  // What can be sent by now, if anything.
  std::optional<Delta> TakeReady();
  // The end: all that still waits, up to the stop string if there was one.
  std::optional<Delta> TakeRest();

  // Tokens taken so far.
  int32_t sent_tokens() const { return sent_tokens_; }
  // Absent: no stop string so far.
  const std::optional<sampling::StopMatcher::Match>& match() const { return match_; }
  const std::string& matched_string() const { return matcher_.string(match_->string); }
  // After a match: tokens with a byte before it. They stay in the session.
  int32_t kept_tokens() const { return kept_tokens_; }

 private:
  struct Waiting {
    int32_t token;
    std::optional<TokenLogprob> logprob;
    size_t end;        // offset in the output's bytes
    std::string text;  // what the token completed
    bool replaced;     // text has U+FFFD for bytes that are not UTF-8
    bool whole;        // no code point is unfinished after it
  };

  // The first `count` waiting tokens with the bytes up to `end`.
  Delta Take(size_t count, size_t end);

  const tokenizer::Tokenizer* const tokenizer_;
  sampling::StopMatcher matcher_;
  tokenizer::IncrementalDecoder decoder_;
  std::vector<Waiting> waiting_;
  std::string bytes_;        // of the waiting tokens
  size_t sent_bytes_ = 0;    // offset of bytes_[0]
  int32_t sent_tokens_ = 0;  // index of waiting_[0]
  int32_t kept_tokens_ = 0;
  std::optional<sampling::StopMatcher::Match> match_;
};

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_OUTPUT_PIPELINE_H_
