#include "core/gguf/errors.h"

#include <cerrno>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace tokend::gguf {

bool IsBadModelFile(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsUnimplemented(status);
}

absl::Status CannotOpen(absl::string_view path, absl::string_view action, int error_number) {
  const std::string message =
      absl::StrCat(path, ": cannot ", action, ": ", std::strerror(error_number));
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    default:
      return absl::UnavailableError(message);
  }
}

absl::Status Damaged(absl::string_view where, uint64_t offset, absl::string_view problem) {
  return absl::DataLossError(absl::StrCat(where, " at byte ", offset, ": ", problem));
}

absl::Status Damaged(absl::string_view where, absl::string_view problem) {
  return absl::DataLossError(absl::StrCat(where, ": ", problem));
}

absl::Status Unsupported(absl::string_view where, absl::string_view problem) {
  return absl::UnimplementedError(absl::StrCat(where, ": ", problem));
}

std::string Quoted(absl::string_view name) {
  constexpr size_t kShown = 64;
  std::string text = absl::CHexEscape(name.substr(0, kShown));
  if (text.size() > kShown) text.resize(kShown);
  const bool cut = name.size() > kShown || text.size() < name.size();
  return absl::StrCat("'", text, cut ? "...'" : "'");
}

}  // namespace tokend::gguf
