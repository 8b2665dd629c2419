#include "service/convert_output.h"

#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace tokend::service {
namespace {

v1::TokenLogprob ToProto(const engine::TokenLogprob& in) {
  v1::TokenLogprob out;
  out.set_token_id(in.token_id);
  out.set_logprob(in.logprob);
  for (const auto& top : in.top) {
    auto* item = out.add_top();
    item->set_token_id(top.token_id);
    item->set_logprob(top.logprob);
  }
  return out;
}

v1::Usage ToProto(const engine::Usage& in) {
  v1::Usage out;
  out.set_base_tokens(in.base_tokens);
  out.set_input_tokens(in.input_tokens);
  out.set_dropped_tokens(in.dropped_tokens);
  out.set_cached_tokens(in.cached_tokens);
  out.set_computed_tokens(in.computed_tokens);
  out.set_output_tokens(in.output_tokens);
  out.set_evicted_tokens(in.evicted_tokens);
  out.set_replaced_tokens(in.replaced_tokens);
  out.set_recomputed_tokens(in.recomputed_tokens);
  return out;
}

}  // namespace

google::protobuf::Duration ToProto(absl::Duration duration) {
  google::protobuf::Duration out;
  const int64_t seconds = absl::IDivDuration(duration, absl::Seconds(1), &duration);
  out.set_seconds(seconds);
  out.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
  return out;
}

v1::Started ToProto(const engine::Started& started, const OutputContext& context) {
  v1::Started out;
  out.set_request_id(context.request_id);
  out.set_base_version(started.base_version);
  out.set_seed(static_cast<int64_t>(started.seed));
  out.set_boot_id(context.boot_id);
  out.set_fork_name(started.fork_name);
  out.set_output_position(started.output_position);
  return out;
}

v1::Delta ToProto(engine::Delta delta, const OutputContext& context) {
  v1::Delta out;
  if (context.always_raw || !delta.text_is_exact) *out.mutable_raw() = std::move(delta.raw);
  *out.mutable_text() = std::move(delta.text);
  out.mutable_token_ids()->Assign(delta.token_ids.begin(), delta.token_ids.end());
  out.mutable_logprobs()->Reserve(static_cast<int>(delta.logprobs.size()));
  for (const auto& logprob : delta.logprobs) *out.add_logprobs() = ToProto(logprob);
  out.set_index(delta.index);
  return out;
}

v1::Finished ToProto(const engine::Finished& finished) {
  v1::Finished out;
  out.set_reason(static_cast<v1::FinishReason>(finished.reason));
  if (!finished.stop_string.empty()) {
    out.set_stop_string(finished.stop_string);
  } else if (finished.stop_token_id.has_value()) {
    out.set_stop_token_id(*finished.stop_token_id);
  }
  out.set_version(finished.version);
  *out.mutable_usage() = ToProto(finished.usage);
  auto* timings = out.mutable_timings();
  *timings->mutable_queue() = ToProto(finished.timings.queue);
  *timings->mutable_prefill() = ToProto(finished.timings.prefill);
  *timings->mutable_decode() = ToProto(finished.timings.decode);
  *timings->mutable_parked() = ToProto(finished.timings.parked);
  *timings->mutable_time_to_first_token() = ToProto(finished.timings.time_to_first_token);
  *timings->mutable_total() = ToProto(finished.timings.total);
  return out;
}

void Merge(engine::Delta more, engine::Delta* delta) {
  if (delta->token_ids.empty() && delta->raw.empty()) {
    *delta = std::move(more);
    return;
  }
  delta->text += more.text;
  delta->raw += more.raw;
  delta->text_is_exact = delta->text_is_exact && more.text_is_exact;
  delta->token_ids.insert(delta->token_ids.end(), more.token_ids.begin(), more.token_ids.end());
  std::move(more.logprobs.begin(), more.logprobs.end(), std::back_inserter(delta->logprobs));
}

std::string FinishReasonName(kv::FinishReason reason) {
  const std::string& name = v1::FinishReason_Name(static_cast<v1::FinishReason>(reason));
  return absl::AsciiStrToLower(absl::StripPrefix(name, "FINISH_REASON_"));
}

}  // namespace tokend::service
