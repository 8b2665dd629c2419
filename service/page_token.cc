#include "service/page_token.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tokend::service {

std::string MakePageToken(absl::string_view list, absl::string_view place) {
  return absl::WebSafeBase64Escape(absl::StrCat(list, "\n", place));
}

std::optional<std::string> ReadPageToken(absl::string_view list, absl::string_view token) {
  std::string text;
  if (!absl::WebSafeBase64Unescape(token, &text)) return std::nullopt;
  absl::string_view place = text;
  if (!absl::ConsumePrefix(&place, absl::StrCat(list, "\n"))) return std::nullopt;
  return std::string(place);
}

}  // namespace tokend::service
