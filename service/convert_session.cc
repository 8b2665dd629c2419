#include "service/convert_session.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "google/protobuf/timestamp.pb.h"
#include "service/convert_output.h"
#include "service/errors.h"
#include "service/field_checks.h"
#include "service/limits.h"
#include "service/names.h"

namespace tokend::service {
namespace {

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp out;
  const int64_t seconds = absl::ToUnixSeconds(time);
  out.set_seconds(seconds);
  out.set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return out;
}

// Fields of a Session that a caller may set.
bool IsReadAtCreation(const std::string& name) {
  return name == "retention" || name == "idle_ttl" || name == "pinned" || name == "history_tokens";
}

void RefuseServerFields(const v1::Session& in, FieldErrors* errors) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  in.GetReflection()->ListFields(in, &fields);
  for (const auto* field : fields) {
    if (IsReadAtCreation(field->name())) continue;
    errors->Add(absl::StrCat("session.", field->name()), "is set by the server");
  }
}

}  // namespace

absl::StatusOr<kv::RetentionPolicy> ConvertRetention(const v1::RetentionPolicy& in,
                                                     absl::string_view path,
                                                     int64_t context_tokens) {
  kv::RetentionPolicy out;
  switch (in.policy_case()) {
    case v1::RetentionPolicy::kFull:
      return out;
    case v1::RetentionPolicy::kSlidingWindow:
      break;
    case v1::RetentionPolicy::kLayered:
      return base::FeatureUnavailable("layered",
                                      absl::StrCat(path, ".layered: not on this server"));
    case v1::RetentionPolicy::kHeavyHitters:
      return base::FeatureUnavailable("heavy_hitters",
                                      absl::StrCat(path, ".heavy_hitters: not on this server"));
    case v1::RetentionPolicy::POLICY_NOT_SET:
      return base::InvalidField(path, "a policy is required");
  }
  const v1::SlidingWindow& window = in.sliding_window();
  FieldErrors errors;
  const bool sinks = CheckRange<int64_t>(absl::StrCat(path, ".sliding_window.sink_tokens"),
                                         window.sink_tokens(), 0, context_tokens - 1, &errors);
  CheckRange<int64_t>(absl::StrCat(path, ".sliding_window.window_tokens"), window.window_tokens(),
                      1, sinks ? context_tokens - window.sink_tokens() : context_tokens, &errors);
  TOKEND_RETURN_IF_ERROR(errors.status());
  out.kind = kv::RetentionPolicy::Kind::kSlidingWindow;
  out.sink_tokens = window.sink_tokens();
  out.window_tokens = window.window_tokens();
  return out;
}

absl::StatusOr<kv::SessionSpec> ConvertSessionSpec(const v1::Session& in,
                                                   const kv::SessionSpec& defaults,
                                                   int64_t context_tokens) {
  kv::SessionSpec out = defaults;
  if (in.has_retention()) {
    TOKEND_ASSIGN_OR_RETURN(out.retention,
                            ConvertRetention(in.retention(), "session.retention", context_tokens));
  }
  FieldErrors errors;
  RefuseServerFields(in, &errors);
  if (in.has_idle_ttl()) {
    out.idle_ttl =
        CheckDuration("session.idle_ttl", in.idle_ttl(), kMinIdleTtl, kMaxIdleTtl, &errors);
  }
  out.pinned = in.pinned();
  CheckRange<int64_t>("session.history_tokens", in.history_tokens(), 0, INT64_MAX, &errors);
  if (in.history_tokens() > 0 && out.retention.kind == kv::RetentionPolicy::Kind::kFull) {
    errors.Add("session.history_tokens", "is for windowed sessions");
  }
  TOKEND_RETURN_IF_ERROR(errors.status());
  if (in.history_tokens() > 0) {
    return base::FeatureUnavailable("history_tokens",
                                    "session.history_tokens: this server keeps all tokens");
  }
  return out;
}

v1::RetentionPolicy ToProto(const kv::RetentionPolicy& policy) {
  v1::RetentionPolicy out;
  if (policy.kind == kv::RetentionPolicy::Kind::kFull) {
    out.mutable_full();
  } else {
    out.mutable_sliding_window()->set_sink_tokens(static_cast<int32_t>(policy.sink_tokens));
    out.mutable_sliding_window()->set_window_tokens(static_cast<int32_t>(policy.window_tokens));
  }
  return out;
}

v1::Session ToProto(const kv::SessionInfo& info) {
  v1::Session out;
  out.set_name(SessionResource(info.id));
  out.set_uid(info.uid);
  *out.mutable_retention() = ToProto(info.spec.retention);
  if (info.spec.idle_ttl.has_value()) *out.mutable_idle_ttl() = ToProto(*info.spec.idle_ttl);
  out.set_pinned(info.spec.pinned);
  out.set_history_tokens(info.spec.history_tokens);
  out.set_version(static_cast<int64_t>(info.head));
  out.set_tokens(info.tokens);
  out.set_first_position(info.first_position);
  out.set_resident_tokens(info.resident_tokens);
  out.set_active_turns(info.active_turns);
  out.set_forked_from(info.forked_from);
  *out.mutable_create_time() = ToProto(info.create_time);
  *out.mutable_update_time() = ToProto(info.update_time);
  return out;
}

v1::Version ToProto(const kv::VersionInfo& info) {
  v1::Version out;
  const int64_t number = static_cast<int64_t>(info.number);
  out.set_name(VersionResource(info.session_id, number));
  out.set_number(number);
  if (info.parent != kv::Version::kNone) {
    out.set_parent(VersionResource(info.session_id, static_cast<int64_t>(info.parent)));
  }
  out.set_tokens(info.tokens);
  out.set_request_id(info.request_id);
  out.set_reason(static_cast<v1::FinishReason>(info.reason));
  *out.mutable_create_time() = ToProto(info.create_time);
  return out;
}

}  // namespace tokend::service
