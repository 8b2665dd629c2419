// Sessions and versions between wire and store.
#ifndef TOKEND_SERVICE_CONVERT_SESSION_H_
#define TOKEND_SERVICE_CONVERT_SESSION_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/kv/types.h"
#include "tokend/v1/sessions.pb.h"

namespace tokend::service {

// Of the model.
struct RetentionLimits {
  int64_t context_tokens = 0;
  int32_t layers = 0;
};

// `path` names the field in errors: INVALID_ARGUMENT, or FEATURE_UNAVAILABLE for
// a policy that this build lacks.
absl::StatusOr<kv::RetentionPolicy> ConvertRetention(const v1::RetentionPolicy& in,
                                                     absl::string_view path,
                                                     const RetentionLimits& limits);

// What CreateSession's session says, on top of the server's defaults.
absl::StatusOr<kv::SessionSpec> ConvertSessionSpec(const v1::Session& in,
                                                   const kv::SessionSpec& defaults,
                                                   const RetentionLimits& limits);

v1::RetentionPolicy ToProto(const kv::RetentionPolicy& policy);
v1::Session ToProto(const kv::SessionInfo& info);
v1::Version ToProto(const kv::VersionInfo& info);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_CONVERT_SESSION_H_
