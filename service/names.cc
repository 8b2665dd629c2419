#include "service/names.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/check.h"
#include "openssl/rand.h"
#include "service/limits.h"

namespace tokend::service {
namespace {

bool IsIdChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
}

bool AllIdChars(absl::string_view id) { return std::all_of(id.begin(), id.end(), IsIdChar); }

}  // namespace

bool IsSessionId(absl::string_view id) {
  return !id.empty() && id.size() <= kMaxSessionIdBytes && AllIdChars(id) &&
         absl::ascii_isalnum(static_cast<unsigned char>(id[0]));
}

bool IsRequestId(absl::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes && AllIdChars(id);
}

std::optional<SessionName> ParseSessionName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "sessions/")) return std::nullopt;
  SessionName out;
  const size_t slash = name.find('/');
  const absl::string_view id = name.substr(0, slash);
  if (!IsSessionId(id)) return std::nullopt;
  out.id = std::string(id);
  if (slash == absl::string_view::npos) return out;
  absl::string_view rest = name.substr(slash + 1);
  if (!absl::ConsumePrefix(&rest, "versions/")) return std::nullopt;
  int64_t version = 0;
  const bool digits =
      std::all_of(rest.begin(), rest.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
  if (!digits || rest.empty() || rest[0] == '0' || !absl::SimpleAtoi(rest, &version)) {
    return std::nullopt;
  }
  out.version = version;
  return out;
}

std::string SessionResource(absl::string_view id) { return absl::StrCat("sessions/", id); }

std::string VersionResource(absl::string_view id, int64_t version) {
  return absl::StrCat("sessions/", id, "/versions/", version);
}

std::string ModelId(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash != absl::string_view::npos) path.remove_prefix(slash + 1);
  if (absl::EndsWithIgnoreCase(path, ".gguf")) path.remove_suffix(5);
  std::string id(path);
  std::replace_if(
      id.begin(), id.end(), [](char c) { return !IsIdChar(c); }, '-');
  return id.empty() ? "model" : id;
}

std::string RandomUuid() {
  std::array<unsigned char, 16> bytes;
  TOKEND_CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1);
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x40);  // version 4
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);  // RFC 4122
  const std::string hex = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  return absl::StrCat(hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

}  // namespace tokend::service
