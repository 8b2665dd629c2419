#include "core/chat/errors.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"

namespace tokend::chat {
namespace {

constexpr size_t kMaxProblemBytes = 256;

// Cut between two code points.
absl::string_view Shortened(absl::string_view text) {
  if (text.size() <= kMaxProblemBytes) return text;
  size_t end = kMaxProblemBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

}  // namespace

absl::Status TemplateFailed(Position at, absl::string_view problem) {
  base::ErrorInfo info;
  info.reason = base::ErrorReason::kTemplateFailed;
  info.metadata = {{"line", absl::StrCat(at.line)}, {"column", absl::StrCat(at.column)}};
  return base::MakeError(absl::StatusCode::kFailedPrecondition,
                         absl::StrCat("chat template, line ", at.line, ", column ", at.column, ": ",
                                      Shortened(problem)),
                         info);
}

absl::Status Problem(absl::string_view problem) { return absl::FailedPreconditionError(problem); }

absl::Status WithPosition(const absl::Status& status, Position at) {
  if (base::GetErrorReason(status) != base::ErrorReason::kUnspecified) return status;
  return TemplateFailed(at, status.message());
}

absl::Status BadJson(absl::string_view field, absl::string_view problem) {
  return base::InvalidField(field, Shortened(problem));
}

}  // namespace tokend::chat
