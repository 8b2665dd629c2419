#include "service/convert_session.h"

#include <limits>
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

constexpr int32_t kDefaultEpochTokens = 256;  // as tokend.v1.HeavyHitters says

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

void TakeWindow(const v1::SlidingWindow& window, absl::string_view path,
                const RetentionLimits& limits, kv::RetentionPolicy* out, FieldErrors* errors) {
  const bool sinks = CheckRange<int64_t>(absl::StrCat(path, ".sink_tokens"), window.sink_tokens(),
                                         0, limits.context_tokens - 1, errors);
  const int64_t most = limits.context_tokens - (sinks ? window.sink_tokens() : 0);
  CheckRange<int64_t>(absl::StrCat(path, ".window_tokens"), window.window_tokens(), 1, most,
                      errors);
  out->sink_tokens = window.sink_tokens();
  out->window_tokens = window.window_tokens();
}

void TakeHeavyHitters(const v1::HeavyHitters& heavy, absl::string_view path,
                      const RetentionLimits& limits, kv::RetentionPolicy* out,
                      FieldErrors* errors) {
  v1::SlidingWindow window;
  window.set_sink_tokens(heavy.sink_tokens());
  window.set_window_tokens(heavy.window_tokens());
  out->kind = kv::RetentionPolicy::Kind::kHeavyHitters;
  TakeWindow(window, path, limits, out, errors);
  CheckRange<int64_t>(absl::StrCat(path, ".kept_pages"), heavy.kept_pages(), 0,
                      limits.context_tokens, errors);
  CheckRange<int64_t>(absl::StrCat(path, ".epoch_tokens"), heavy.epoch_tokens(), 0,
                      std::numeric_limits<int32_t>::max(), errors);
  out->kept_pages = heavy.kept_pages();
  out->epoch_tokens = heavy.epoch_tokens() == 0 ? kDefaultEpochTokens : heavy.epoch_tokens();
}

v1::SlidingWindow WindowToProto(const kv::RetentionPolicy& policy) {
  v1::SlidingWindow out;
  out.set_sink_tokens(static_cast<int32_t>(policy.sink_tokens));
  out.set_window_tokens(static_cast<int32_t>(policy.window_tokens));
  return out;
}

}  // namespace

absl::StatusOr<kv::RetentionPolicy> ConvertRetention(const v1::RetentionPolicy& in,
                                                     absl::string_view path,
                                                     const RetentionLimits& limits) {
  kv::RetentionPolicy out;
  FieldErrors errors;
  switch (in.policy_case()) {
    case v1::RetentionPolicy::kFull:
      return out;
    case v1::RetentionPolicy::kSlidingWindow:
      out.kind = kv::RetentionPolicy::Kind::kSlidingWindow;
      TakeWindow(in.sliding_window(), absl::StrCat(path, ".sliding_window"), limits, &out, &errors);
      break;
    case v1::RetentionPolicy::kLayered:
      out.kind = kv::RetentionPolicy::Kind::kLayered;
      out.full_layers = in.layered().full_layers();
      CheckRange<int32_t>(absl::StrCat(path, ".layered.full_layers"), out.full_layers, 1,
                          limits.layers - 1, &errors);
      TakeWindow(in.layered().window(), absl::StrCat(path, ".layered.window"), limits, &out,
                 &errors);
      break;
    case v1::RetentionPolicy::kHeavyHitters:
      TakeHeavyHitters(in.heavy_hitters(), absl::StrCat(path, ".heavy_hitters"), limits, &out,
                       &errors);
      break;
    case v1::RetentionPolicy::POLICY_NOT_SET:
      return base::InvalidField(path, "a policy is required");
  }
  TOKEND_RETURN_IF_ERROR(errors.status());
  return out;
}

absl::StatusOr<kv::SessionSpec> ConvertSessionSpec(const v1::Session& in,
                                                   const kv::SessionSpec& defaults,
                                                   const RetentionLimits& limits) {
  kv::SessionSpec out = defaults;
  if (in.has_retention()) {
    TOKEND_ASSIGN_OR_RETURN(out.retention,
                            ConvertRetention(in.retention(), "session.retention", limits));
  }
  FieldErrors errors;
  RefuseServerFields(in, &errors);
  if (in.has_idle_ttl()) {
    out.idle_ttl =
        CheckDuration("session.idle_ttl", in.idle_ttl(), kMinIdleTtl, kMaxIdleTtl, &errors);
  }
  out.pinned = in.pinned();
  CheckRange<int64_t>("session.history_tokens", in.history_tokens(), 0, INT64_MAX, &errors);
  out.history_tokens = in.history_tokens();
  if (out.history_tokens > 0 && out.retention.kind != kv::RetentionPolicy::Kind::kSlidingWindow) {
    errors.Add("session.history_tokens", "is for sessions with a sliding window");
  }
  TOKEND_RETURN_IF_ERROR(errors.status());
  return out;
}

v1::RetentionPolicy ToProto(const kv::RetentionPolicy& policy) {
  v1::RetentionPolicy out;
  switch (policy.kind) {
    case kv::RetentionPolicy::Kind::kFull:
      out.mutable_full();
      break;
    case kv::RetentionPolicy::Kind::kSlidingWindow:
      *out.mutable_sliding_window() = WindowToProto(policy);
      break;
    case kv::RetentionPolicy::Kind::kLayered:
      out.mutable_layered()->set_full_layers(policy.full_layers);
      *out.mutable_layered()->mutable_window() = WindowToProto(policy);
      break;
    case kv::RetentionPolicy::Kind::kHeavyHitters: {
      v1::HeavyHitters* const heavy = out.mutable_heavy_hitters();
      heavy->set_sink_tokens(static_cast<int32_t>(policy.sink_tokens));
      heavy->set_window_tokens(static_cast<int32_t>(policy.window_tokens));
      heavy->set_kept_pages(policy.kept_pages);
      heavy->set_epoch_tokens(static_cast<int32_t>(policy.epoch_tokens));
      break;
    }
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
