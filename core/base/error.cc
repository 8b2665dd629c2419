#include "core/base/error.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace tokend::base {
namespace {

constexpr char kPayloadUrl[] = "tokend.v1/ErrorInfo";

constexpr std::array<const char*, 31> kNames = {"UNSPECIFIED",          "INVALID_FIELD",
                                                "UNKNOWN_FIELD",        "NO_SUCH_RESOURCE",
                                                "VERSION_NOT_RETAINED", "RESUME_EXPIRED",
                                                "SESSION_EXISTS",       "REQUEST_ID_REUSED",
                                                "VERSION_MISMATCH",     "SESSION_BUSY",
                                                "CONTEXT_FULL",         "BAD_POSITION",
                                                "QUEUE_FULL",           "KV_POOL_FULL",
                                                "SESSION_LIMIT",        "QUOTA_EXCEEDED",
                                                "READER_TOO_SLOW",      "DEADLINE_INFEASIBLE",
                                                "FEATURE_UNAVAILABLE",  "FINGERPRINT_MISMATCH",
                                                "MODEL_LOADING",        "DRAINING",
                                                "SNAPSHOT_DAMAGED",     "BACKEND_FAILED",
                                                "SESSION_DELETED",      "TAKEN_OVER",
                                                "UNAUTHENTICATED",      "PERMISSION_DENIED",
                                                "DEADLINE_PASSED",      "REQUEST_FAILED",
                                                "TEMPLATE_FAILED"};

// The payload is a list of length-prefixed strings: reason, retry delay in
// nanoseconds ("" if none), then keys and values in turn.
void Append(std::string* out, absl::string_view field) {
  const uint32_t size = static_cast<uint32_t>(field.size());
  out->append(reinterpret_cast<const char*>(&size), sizeof(size));
  out->append(field.data(), field.size());
}

std::string Take(absl::string_view* in) {
  uint32_t size = 0;
  TOKEND_CHECK(in->size() >= sizeof(size));
  std::memcpy(&size, in->data(), sizeof(size));
  in->remove_prefix(sizeof(size));
  TOKEND_CHECK(in->size() >= size);
  std::string field(in->data(), size);
  in->remove_prefix(size);
  return field;
}

}  // namespace

absl::Status MakeError(absl::StatusCode code, absl::string_view message, const ErrorInfo& info) {
  absl::Status status(code, message);
  std::string payload;
  Append(&payload, absl::StrCat(static_cast<int>(info.reason)));
  Append(&payload, info.retry_after.has_value()
                       ? absl::StrCat(absl::ToInt64Nanoseconds(*info.retry_after))
                       : "");
  for (const auto& [key, value] : info.metadata) {
    Append(&payload, key);
    Append(&payload, value);
  }
  status.SetPayload(kPayloadUrl, absl::Cord(payload));
  return status;
}

std::optional<ErrorInfo> GetErrorInfo(const absl::Status& status) {
  const auto cord = status.GetPayload(kPayloadUrl);
  if (!cord.has_value()) return std::nullopt;
  const std::string payload(*cord);
  absl::string_view rest = payload;
  ErrorInfo info;
  int reason = 0;
  TOKEND_CHECK(absl::SimpleAtoi(Take(&rest), &reason));
  info.reason = static_cast<ErrorReason>(reason);
  const std::string retry = Take(&rest);
  if (int64_t nanos = 0; absl::SimpleAtoi(retry, &nanos)) {
    info.retry_after = absl::Nanoseconds(nanos);
  }
  while (!rest.empty()) {
    std::string key = Take(&rest);
    info.metadata.emplace_back(std::move(key), Take(&rest));
  }
  return info;
}

ErrorReason GetErrorReason(const absl::Status& status) {
  const auto info = GetErrorInfo(status);
  return info.has_value() ? info->reason : ErrorReason::kUnspecified;
}

absl::string_view ErrorReasonName(ErrorReason reason) {
  const auto index = static_cast<size_t>(reason);
  TOKEND_CHECK(index < kNames.size());
  return kNames[index];
}

absl::Status InvalidField(absl::string_view field, absl::string_view problem) {
  return MakeError(absl::StatusCode::kInvalidArgument, absl::StrCat(field, ": ", problem),
                   {ErrorReason::kInvalidField, {{std::string(field), std::string(problem)}}, {}});
}

absl::Status FeatureUnavailable(absl::string_view feature, absl::string_view message) {
  return MakeError(absl::StatusCode::kFailedPrecondition, message,
                   {ErrorReason::kFeatureUnavailable, {{"feature", std::string(feature)}}, {}});
}

}  // namespace tokend::base
