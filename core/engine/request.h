// A turn as the engine sees it: every field checked and every default resolved.
// Field meanings and limits are those of tokend.v1.Turn.
#ifndef TOKEND_CORE_ENGINE_REQUEST_H_
#define TOKEND_CORE_ENGINE_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "core/kv/types.h"
#include "core/ops/sampling_params.h"

namespace tokend::engine {

struct TextInput {
  std::string text;
  std::optional<bool> add_bos;
  bool parse_special = false;
};

struct ChatInput {
  struct Message {
    kv::Role role = kv::Role::kUser;
    std::string text;
  };
  std::vector<Message> messages;
  bool omit_default_system = false;
};

struct TokenInput {
  std::vector<int32_t> ids;
};

enum class OnConflict { kQueue, kAbort, kFork };
enum class CommitMode { kOnFinish, kPartial, kNever };
enum class InputOverflow { kReject, kDropOldest };

struct SessionTarget {
  std::string id;  // without "sessions/"
  bool allow_missing = false;
  kv::SessionSpec spec_if_missing;  // of the session that allow_missing makes
  std::optional<int64_t> expected_version;
  OnConflict on_conflict = OnConflict::kQueue;
  CommitMode commit = CommitMode::kOnFinish;
  std::optional<int64_t> from_position;
};

struct StopRules {
  std::optional<int32_t> max_output_tokens;
  std::vector<std::string> strings;
  std::vector<int32_t> token_ids;
  bool ignore_end_of_text = false;
};

struct Request {
  std::string principal;
  std::string id;  // request_id; never empty
  std::variant<TextInput, ChatInput, TokenInput> input;
  std::optional<SessionTarget> session;
  ops::SamplingParams sampling;  // the seed drawn already, where none was given
  StopRules stop;
  std::optional<int32_t> top_logprobs;  // absent: none; 0: of the drawn token
  InputOverflow input_overflow = InputOverflow::kReject;
  // The RPC's deadline, on base::Clock::Monotonic(). Infinite: none.
  absl::Duration deadline = absl::InfiniteDuration();
};

struct TopLogprob {
  int32_t token_id = 0;
  float logprob = 0;
};

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
  std::vector<TopLogprob> top;
};

struct Started {
  std::string base_version;  // "sessions/a/versions/3" or empty
  uint64_t seed = 0;
  std::string fork_name;  // "sessions/b" or empty
  int64_t output_position = 0;
};

// A piece of output whose text and tokens agree. Pieces may be concatenated.
struct Delta {
  std::string text;           // whole code points; invalid bytes as U+FFFD
  std::string raw;            // the exact bytes, always
  bool text_is_exact = true;  // false: `raw` differs from `text`
  absl::InlinedVector<int32_t, 4> token_ids;
  std::vector<TokenLogprob> logprobs;  // one for each token, if asked for
  int32_t index = 0;                   // of token_ids[0] in the turn's output
};

struct Usage {
  int64_t base_tokens = 0;
  int32_t input_tokens = 0;
  int32_t dropped_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t computed_tokens = 0;
  int32_t output_tokens = 0;
  int64_t evicted_tokens = 0;
  int64_t replaced_tokens = 0;
  int64_t recomputed_tokens = 0;
};

// queue + prefill + decode + parked = total.
struct Timings {
  absl::Duration queue;
  absl::Duration prefill;
  absl::Duration decode;
  absl::Duration parked;
  absl::Duration time_to_first_token;
  absl::Duration total;
};

struct Finished {
  kv::FinishReason reason = kv::FinishReason::kUnspecified;
  std::string stop_string;               // what matched, or empty
  std::optional<int32_t> stop_token_id;  // what matched
  std::string version;                   // "sessions/a/versions/4" or empty
  Usage usage;
  Timings timings;
};

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_REQUEST_H_
