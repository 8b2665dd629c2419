#include "service/status.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/base/error.h"
#include "core/tokenizer/utf8.h"
#include "google/protobuf/any.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/support/error_details.h"
#include "service/limits.h"

namespace tokend::service {
namespace {

using base::ErrorReason;

constexpr char kDomain[] = "tokend";
// Field paths are ours but for map keys and indices; no honest one is longer.
constexpr size_t kMaxPathBytes = 128;
constexpr size_t kMaxProblemBytes = 192;
constexpr int kMaxMetadata = 8;

// Protobuf strings are UTF-8; what a caller sent may not be, or may be cut.
std::string Clean(absl::string_view text, size_t max_bytes) {
  std::string cut(text.substr(0, max_bytes));
  std::string clean = tokenizer::ReplaceInvalidUtf8(cut);
  // A replacement is three bytes for one.
  while (clean.size() > max_bytes) {
    cut.resize(cut.size() - 1);
    clean = tokenizer::ReplaceInvalidUtf8(cut);
  }
  return clean;
}

std::string Value(const base::ErrorInfo& info, absl::string_view key) {
  for (const auto& [name, value] : info.metadata) {
    if (name == key) return value;
  }
  return "";
}

class Details {
 public:
  explicit Details(google::rpc::Status* status) : status_(status) {}

  // The most telling first: what would pass the limit is left out.
  void Add(const google::protobuf::Message& detail) {
    google::protobuf::Any any;
    any.PackFrom(detail);
    const size_t size = any.ByteSizeLong();
    if (size_ + size > kMaxDetailsBytes - kMaxMessageBytes) return;
    size_ += size;
    status_->add_details()->Swap(&any);
  }

 private:
  google::rpc::Status* const status_;
  size_t size_ = 0;
};

google::rpc::ErrorInfo MakeErrorInfo(const base::ErrorInfo& info) {
  google::rpc::ErrorInfo out;
  out.set_reason(std::string(base::ErrorReasonName(info.reason)));
  out.set_domain(kDomain);
  if (info.reason == ErrorReason::kInvalidField) return out;
  for (const auto& [key, value] : info.metadata) {
    if (out.metadata_size() == kMaxMetadata) break;
    (*out.mutable_metadata())[key] = Clean(value, kMaxEchoBytes);
  }
  return out;
}

google::rpc::BadRequest MakeBadRequest(const base::ErrorInfo& info, absl::string_view message) {
  google::rpc::BadRequest out;
  if (info.reason == ErrorReason::kUnknownField) {
    auto* violation = out.add_field_violations();
    violation->set_field(Clean(message.substr(0, message.find(':')), kMaxPathBytes));
    violation->set_description(Clean(message, kMaxProblemBytes));
    return out;
  }
  for (const auto& [path, problem] : info.metadata) {
    if (out.field_violations_size() == kMaxViolations) break;
    auto* violation = out.add_field_violations();
    violation->set_field(Clean(path, kMaxPathBytes));
    violation->set_description(Clean(problem, kMaxProblemBytes));
  }
  return out;
}

google::rpc::RetryInfo MakeRetryInfo(absl::Duration delay) {
  google::rpc::RetryInfo out;
  // Rounded up to milliseconds: never zero, never in vain.
  const int64_t ms =
      std::max<int64_t>(1, absl::ToInt64Milliseconds(absl::Ceil(delay, absl::Milliseconds(1))));
  out.mutable_retry_delay()->set_seconds(ms / 1000);
  out.mutable_retry_delay()->set_nanos(static_cast<int32_t>(ms % 1000) * 1000000);
  return out;
}

google::rpc::ResourceInfo MakeResourceInfo(const base::ErrorInfo& info, absl::string_view message) {
  google::rpc::ResourceInfo out;
  const std::string type = Value(info, "resource_type");
  out.set_resource_type(Clean(type.empty() ? "session" : type, kMaxEchoBytes));
  out.set_resource_name(Clean(Value(info, "resource_name"), kMaxEchoBytes));
  out.set_description(Clean(message, kMaxProblemBytes));
  return out;
}

bool WantsResourceInfo(ErrorReason reason) {
  return reason == ErrorReason::kNoSuchResource || reason == ErrorReason::kVersionNotRetained ||
         reason == ErrorReason::kSessionExists;
}

// Statuses that reach a caller without a reason of their own.
base::ErrorInfo ImpliedInfo(absl::StatusCode code) {
  base::ErrorInfo info;
  info.reason = code == absl::StatusCode::kDeadlineExceeded ? ErrorReason::kDeadlinePassed
                                                            : ErrorReason::kRequestFailed;
  return info;
}

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message =
      Clean(absl::string_view(status.message().data(), status.message().size()), kMaxMessageBytes);
  if (status.code() == absl::StatusCode::kCancelled) {
    return grpc::Status(grpc::StatusCode::CANCELLED, message);
  }
  const auto given = base::GetErrorInfo(status);
  const base::ErrorInfo info = given.has_value() ? *given : ImpliedInfo(status.code());
  absl::StatusCode code = status.code();
  if (!given.has_value() && code != absl::StatusCode::kDeadlineExceeded) {
    code = absl::StatusCode::kInternal;
  }
  google::rpc::Status rich;
  rich.set_code(static_cast<int>(code));
  rich.set_message(message);
  Details details(&rich);
  details.Add(MakeErrorInfo(info));
  if (info.reason == ErrorReason::kInvalidField || info.reason == ErrorReason::kUnknownField) {
    details.Add(MakeBadRequest(info, message));
  }
  if (info.retry_after.has_value()) details.Add(MakeRetryInfo(*info.retry_after));
  if (WantsResourceInfo(info.reason)) details.Add(MakeResourceInfo(info, message));
  if (info.reason == ErrorReason::kQuotaExceeded) {
    google::rpc::QuotaFailure failure;
    auto* violation = failure.add_violations();
    violation->set_subject(Clean(Value(info, "principal"), kMaxEchoBytes));
    violation->set_description(Clean(message, kMaxProblemBytes));
    details.Add(failure);
  }
  grpc::Status out;
  const grpc::Status set = grpc::SetErrorDetails(rich, &out);
  return set.ok() ? out : grpc::Status(static_cast<grpc::StatusCode>(code), message);
}

std::string OutcomeName(const absl::Status& status) {
  if (status.ok()) return "ok";
  if (status.code() == absl::StatusCode::kCancelled) return "cancelled";
  const auto given = base::GetErrorInfo(status);
  const ErrorReason reason = given.has_value() ? given->reason : ImpliedInfo(status.code()).reason;
  const absl::string_view name = base::ErrorReasonName(reason);
  return absl::AsciiStrToLower(name);
}

}  // namespace tokend::service
