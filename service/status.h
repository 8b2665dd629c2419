// The one place where an absl::Status becomes a grpc::Status with google.rpc
// details.
#ifndef TOKEND_SERVICE_STATUS_H_
#define TOKEND_SERVICE_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tokend::service {

// ErrorInfo always (domain "tokend"); BadRequest for INVALID_FIELD and
// UNKNOWN_FIELD, RetryInfo where there is a retry_after, ResourceInfo for
// NOT_FOUND, QuotaFailure for QUOTA_EXCEEDED. At most kMaxViolations violations,
// kMaxEchoBytes of any value that a caller sent, kMaxDetailsBytes in all. A status
// without a reason is a fault of ours: INTERNAL, REQUEST_FAILED, unless its code is
// one of gRPC's own (CANCELLED, DEADLINE_EXCEEDED).
grpc::Status ToGrpcStatus(const absl::Status& status);

// How a request ended, in lower case, for metrics and logs: "ok", "cancelled", or
// the ErrorReason.
std::string OutcomeName(const absl::Status& status);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_STATUS_H_
