// The reason behind a failure, carried inside an absl::Status.
//
// A module's errors.h makes its failures with MakeError; service/ turns the
// reason and the metadata into google.rpc details. A Status without a reason
// is an internal error.
#ifndef TOKEND_CORE_BASE_ERROR_H_
#define TOKEND_CORE_BASE_ERROR_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace tokend::base {

// Same names and numbers as tokend.v1.ErrorReason, where the codes and the
// metadata of each are documented.
enum class ErrorReason : int {
  kUnspecified = 0,
  kInvalidField = 1,
  kUnknownField = 2,
  kNoSuchResource = 3,
  kVersionNotRetained = 4,
  kResumeExpired = 5,
  kSessionExists = 6,
  kRequestIdReused = 7,
  kVersionMismatch = 8,
  kSessionBusy = 9,
  kContextFull = 10,
  kBadPosition = 11,
  kQueueFull = 12,
  kKvPoolFull = 13,
  kSessionLimit = 14,
  kQuotaExceeded = 15,
  kReaderTooSlow = 16,
  kDeadlineInfeasible = 17,
  kFeatureUnavailable = 18,
  kFingerprintMismatch = 19,
  kModelLoading = 20,
  kDraining = 21,
  kSnapshotDamaged = 22,
  kBackendFailed = 23,
  kSessionDeleted = 24,
  kTakenOver = 25,
  kUnauthenticated = 26,
  kPermissionDenied = 27,
  kDeadlinePassed = 28,
  kRequestFailed = 29,
  kTemplateFailed = 30,
};

struct ErrorInfo {
  ErrorReason reason = ErrorReason::kUnspecified;
  // Key and value, e.g. {"current_version", "7"}. For kInvalidField the key is
  // the field's path and the value what is wrong with it.
  std::vector<std::pair<std::string, std::string>> metadata;
  // How long to wait before trying again; absent: trying again cannot help.
  std::optional<absl::Duration> retry_after;
};

absl::Status MakeError(absl::StatusCode code, absl::string_view message, const ErrorInfo& info);

// Absent if `status` is OK or was not made by MakeError.
std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status);

// kUnspecified if there is none.
ErrorReason GetErrorReason(const absl::Status& status);

// "VERSION_MISMATCH"; the proto's name without its prefix.
absl::string_view ErrorReasonName(ErrorReason reason);

// INVALID_ARGUMENT, kInvalidField: one field, e.g. "turn.sampling.top_p".
absl::Status InvalidField(absl::string_view field, absl::string_view problem);

// FAILED_PRECONDITION, kFeatureUnavailable.
absl::Status FeatureUnavailable(absl::string_view feature, absl::string_view message);

}  // namespace tokend::base

#endif  // TOKEND_CORE_BASE_ERROR_H_
