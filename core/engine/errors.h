#ifndef TOKEND_CORE_ENGINE_ERRORS_H_
#define TOKEND_CORE_ENGINE_ERRORS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tokend::engine {

// RESOURCE_EXHAUSTED, kQueueFull, with a retry hint.
absl::Status QueueFull(int waiting, absl::Duration retry_after);
// UNAVAILABLE, kDraining.
absl::Status Draining();
// ALREADY_EXISTS, kRequestIdReused: a turn with this id still runs.
absl::Status RequestIdRuns(absl::string_view request_id);
// DEADLINE_EXCEEDED, kDeadlinePassed.
absl::Status DeadlinePassed();
// CANCELLED; carries no reason.
absl::Status ClientGone();
// RESOURCE_EXHAUSTED, kReaderTooSlow.
absl::Status ReaderTooSlow(absl::Duration stalled);
// OUT_OF_RANGE, kContextFull.
absl::Status ContextFull(int64_t context_tokens, int64_t needed_tokens);
// RESOURCE_EXHAUSTED, kKvPoolFull. No hint: it can never fit.
absl::Status KvPoolFull(absl::string_view message, std::optional<absl::Duration> retry_after);
// INTERNAL, kBackendFailed, keeping the cause's message.
absl::Status BackendFailed(const absl::Status& cause);
// NOT_FOUND, kNoSuchResource; metadata "resource_type", "resource_name".
absl::Status NoSuchTurn(absl::string_view request_id);
// OUT_OF_RANGE, kBadPosition: StopGeneration keeps more than was written.
absl::Status KeepsTooMuch(int32_t keep_output_tokens, int32_t written);

// Whether the whole backend has failed, not one request.
bool IsBackendFailure(const absl::Status& status);

// How base::Observer::OnRequestEnd names a failure: "queue_full", "cancelled".
std::string FailureLabel(const absl::Status& status);

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_ERRORS_H_
