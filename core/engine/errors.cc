#include "core/engine/errors.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace tokend::engine {

using absl::StatusCode;
using base::ErrorReason;
using base::MakeError;

absl::Status QueueFull(int waiting, absl::Duration retry_after) {
  return MakeError(StatusCode::kResourceExhausted,
                   absl::StrCat("the queue is full: ", waiting, " turns wait"),
                   {ErrorReason::kQueueFull, {}, retry_after});
}

absl::Status Draining() {
  return MakeError(StatusCode::kUnavailable, "the server is shutting down",
                   {ErrorReason::kDraining, {}, {}});
}

absl::Status RequestIdRuns(absl::string_view request_id) {
  return MakeError(StatusCode::kAlreadyExists,
                   absl::StrCat("a turn with request_id ", request_id, " still runs"),
                   {ErrorReason::kRequestIdReused, {}, {}});
}

absl::Status DeadlinePassed() {
  return MakeError(StatusCode::kDeadlineExceeded, "the call's deadline has passed",
                   {ErrorReason::kDeadlinePassed, {}, {}});
}

absl::Status ClientGone() { return absl::CancelledError("the call was cancelled"); }

absl::Status ReaderTooSlow(absl::Duration stalled) {
  return MakeError(StatusCode::kResourceExhausted,
                   absl::StrCat("the client took nothing for ", absl::FormatDuration(stalled)),
                   {ErrorReason::kReaderTooSlow, {}, {}});
}

absl::Status ContextFull(int64_t context_tokens, int64_t needed_tokens) {
  return MakeError(StatusCode::kOutOfRange,
                   absl::StrCat("base and input need ", needed_tokens, " tokens of a context of ",
                                context_tokens),
                   {ErrorReason::kContextFull,
                    {{"context_length", absl::StrCat(context_tokens)},
                     {"needed_tokens", absl::StrCat(needed_tokens)}},
                    {}});
}

absl::Status KvPoolFull(absl::string_view message, std::optional<absl::Duration> retry_after) {
  return MakeError(StatusCode::kResourceExhausted, message,
                   {ErrorReason::kKvPoolFull, {}, retry_after});
}

absl::Status BackendFailed(const absl::Status& cause) {
  return MakeError(StatusCode::kInternal, absl::StrCat("the backend failed: ", cause.message()),
                   {ErrorReason::kBackendFailed, {}, {}});
}

absl::Status NoSuchTurn(absl::string_view request_id) {
  return MakeError(StatusCode::kNotFound, absl::StrCat("no turn with request_id ", request_id),
                   {ErrorReason::kNoSuchResource,
                    {{"resource_type", "request"}, {"resource_name", std::string(request_id)}},
                    {}});
}

absl::Status KeepsTooMuch(int32_t keep_output_tokens, int32_t written) {
  return MakeError(
      StatusCode::kOutOfRange,
      absl::StrCat("keep_output_tokens is ", keep_output_tokens, " of ", written, " written"),
      {ErrorReason::kBadPosition,
       {{"first_position", "0"}, {"tokens", absl::StrCat(written)}},
       {}});
}

bool IsBackendFailure(const absl::Status& status) {
  return base::GetErrorReason(status) == ErrorReason::kBackendFailed;
}

std::string FailureLabel(const absl::Status& status) {
  if (absl::IsCancelled(status)) return "cancelled";
  ErrorReason reason = base::GetErrorReason(status);
  if (reason == ErrorReason::kUnspecified) reason = ErrorReason::kRequestFailed;
  return absl::AsciiStrToLower(base::ErrorReasonName(reason));
}

}  // namespace tokend::engine
