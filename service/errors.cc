#include "service/errors.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/error.h"
#include "service/limits.h"

namespace tokend::service {

using base::ErrorReason;

absl::Status UnknownField(absl::string_view message, int field_number, absl::string_view path) {
  return base::MakeError(
      absl::StatusCode::kInvalidArgument,
      absl::StrCat(path.empty() ? "request" : path, ": field ", field_number, " of ", message,
                   " is not known to this server"),
      {ErrorReason::kUnknownField,
       {{"message", std::string(message)}, {"field_number", absl::StrCat(field_number)}},
       {}});
}

absl::Status ModelLoading(absl::Duration retry_after) {
  return base::MakeError(absl::StatusCode::kUnavailable, "the model is still loading",
                         {ErrorReason::kModelLoading, {}, retry_after});
}

absl::Status Draining() {
  return base::MakeError(absl::StatusCode::kUnavailable, "the server is shutting down",
                         {ErrorReason::kDraining, {}, {}});
}

absl::Status NoSuchResource(absl::string_view type, absl::string_view name) {
  return base::MakeError(
      absl::StatusCode::kNotFound, absl::StrCat(type, " ", Echo(name), " does not exist"),
      {ErrorReason::kNoSuchResource,
       {{"resource_type", std::string(type)}, {"resource_name", std::string(name)}},
       {}});
}

absl::Status Unauthenticated(absl::string_view problem) {
  return base::MakeError(absl::StatusCode::kUnauthenticated, problem,
                         {ErrorReason::kUnauthenticated, {}, {}});
}

absl::Status BadSetting(absl::string_view setting, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat(setting, ": ", problem));
}

void FieldErrors::Add(absl::string_view path, absl::string_view problem) {
  if (errors_.size() < static_cast<size_t>(kMaxViolations)) {
    errors_.emplace_back(std::string(path), std::string(problem));
  }
}

absl::Status FieldErrors::status() const {
  if (errors_.empty()) return absl::OkStatus();
  std::string message = absl::StrCat(errors_[0].first, ": ", errors_[0].second);
  if (errors_.size() > 1) absl::StrAppend(&message, " (and ", errors_.size() - 1, " more)");
  return base::MakeError(absl::StatusCode::kInvalidArgument, message,
                         {ErrorReason::kInvalidField, errors_, {}});
}

absl::Status RenameField(const absl::Status& status, absl::string_view from, absl::string_view to) {
  const auto info = base::GetErrorInfo(status);
  if (!info.has_value() || info->reason != ErrorReason::kInvalidField) return status;
  FieldErrors errors;
  for (const auto& [path, problem] : info->metadata) {
    absl::string_view rest = path;
    const bool known = absl::ConsumePrefix(&rest, from);
    errors.Add(known ? absl::StrCat(to, rest) : path, problem);
  }
  return errors.status();
}

std::string Echo(absl::string_view value) {
  std::string escaped = absl::Utf8SafeCHexEscape(value.substr(0, kMaxEchoBytes));
  // Escapes are up to four bytes for one, and a code point may have been cut.
  if (escaped.size() > kMaxEchoBytes || value.size() > kMaxEchoBytes) {
    escaped = absl::CHexEscape(value.substr(0, kMaxEchoBytes / 4));
    escaped += "...";
  }
  return absl::StrCat("\"", escaped, "\"");
}

}  // namespace tokend::service
