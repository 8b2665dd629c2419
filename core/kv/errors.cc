#include "core/kv/errors.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace tokend::kv {
namespace {

using base::ErrorReason;

// Sessions and pages come back when turns end: a second is a few hundred steps.
constexpr absl::Duration kRetryAfter = absl::Seconds(1);

std::string SessionName(absl::string_view id) { return absl::StrCat("sessions/", id); }

std::string VersionName(absl::string_view id, int64_t version) {
  return absl::StrCat(SessionName(id), "/versions/", version);
}

}  // namespace

absl::Status SessionNotFound(absl::string_view id) {
  return base::MakeError(
      absl::StatusCode::kNotFound, absl::StrCat("there is no session \"", id, "\""),
      {.reason = ErrorReason::kNoSuchResource, .metadata = {{"resource_name", SessionName(id)}}});
}

absl::Status VersionNotFound(absl::string_view id, int64_t version) {
  return base::MakeError(
      absl::StatusCode::kNotFound, absl::StrCat("there is no version ", version, " of it yet"),
      {.reason = ErrorReason::kNoSuchResource,
       .metadata = {{"resource_type", "version"}, {"resource_name", VersionName(id, version)}}});
}

absl::Status VersionNotRetained(absl::string_view id, int64_t version, Version oldest) {
  const std::string number = absl::StrCat(static_cast<int64_t>(oldest));
  return base::MakeError(absl::StatusCode::kNotFound,
                         absl::StrCat("version ", version, " of session \"", id,
                                      "\" is not kept; the oldest kept is ", number),
                         {.reason = ErrorReason::kVersionNotRetained,
                          .metadata = {{"oldest_version", number},
                                       {"resource_type", "version"},
                                       {"resource_name", VersionName(id, version)}}});
}

absl::Status SessionExists(absl::string_view id) {
  return base::MakeError(
      absl::StatusCode::kAlreadyExists, absl::StrCat("session \"", id, "\" exists"),
      {.reason = ErrorReason::kSessionExists, .metadata = {{"resource_name", SessionName(id)}}});
}

absl::Status SessionLimit(int max_sessions) {
  return base::MakeError(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("all ", max_sessions, " sessions that this server keeps are in use"),
      {.reason = ErrorReason::kSessionLimit,
       .metadata = {{"max_sessions", absl::StrCat(max_sessions)}},
       .retry_after = kRetryAfter});
}

absl::Status VersionMismatch(int64_t expected, Version current) {
  const std::string number = absl::StrCat(static_cast<int64_t>(current));
  return base::MakeError(
      absl::StatusCode::kAborted,
      absl::StrCat("the session is at version ", number, ", not ", expected),
      {.reason = ErrorReason::kVersionMismatch, .metadata = {{"current_version", number}}});
}

absl::Status SessionBusy(absl::string_view id) {
  return base::MakeError(absl::StatusCode::kAborted,
                         absl::StrCat("another turn runs or waits on session \"", id, "\""),
                         {.reason = ErrorReason::kSessionBusy});
}

absl::Status SessionDeleted(absl::string_view id) {
  return base::MakeError(absl::StatusCode::kAborted,
                         absl::StrCat("session \"", id, "\" was deleted"),
                         {.reason = ErrorReason::kSessionDeleted});
}

absl::Status BadPosition(int64_t position, int64_t first_position, int64_t tokens) {
  return base::MakeError(
      absl::StatusCode::kOutOfRange,
      absl::StrCat("position ", position, " is not in [", first_position, ", ", tokens, "]",
                   position >= 0 && position < first_position
                       ? "; the session no longer keeps what is before"
                       : ""),
      {.reason = ErrorReason::kBadPosition,
       .metadata = {{"first_position", absl::StrCat(first_position)},
                    {"tokens", absl::StrCat(tokens)}}});
}

absl::Status PoolFull(int64_t needed_pages, int64_t total_pages) {
  base::ErrorInfo info = {.reason = ErrorReason::kKvPoolFull,
                          .metadata = {{"needed_pages", absl::StrCat(needed_pages)},
                                       {"total_pages", absl::StrCat(total_pages)}}};
  if (needed_pages <= total_pages) info.retry_after = kRetryAfter;
  return base::MakeError(absl::StatusCode::kResourceExhausted,
                         absl::StrCat("no room for ", needed_pages, " more KV pages"), info);
}

absl::Status PinTakesTooMuch() {
  return base::MakeError(absl::StatusCode::kResourceExhausted,
                         "this session would pin what a turn that was admitted may need",
                         {.reason = ErrorReason::kKvPoolFull, .retry_after = kRetryAfter});
}

absl::Status QuotaExceeded(absl::string_view principal, int64_t needed_pages, int64_t quota_pages) {
  return base::MakeError(
      absl::StatusCode::kResourceExhausted,
      absl::StrCat("\"", principal, "\" may pin ", quota_pages, " KV pages, not ", needed_pages),
      {.reason = ErrorReason::kQuotaExceeded,
       .metadata = {{"principal", std::string(principal)},
                    {"needed_pages", absl::StrCat(needed_pages)},
                    {"quota_pages", absl::StrCat(quota_pages)}}});
}

}  // namespace tokend::kv
