#include "service/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "service/errors.h"
#include "service/limits.h"

namespace tokend::service {
namespace {

absl::StatusOr<Address> ParseUnix(absl::string_view path) {
  if (path.empty()) return absl::InvalidArgumentError("unix: needs a path");
  if (path.size() > kMaxUnixPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the path of a unix socket is at most ",
                                                   kMaxUnixPathBytes, " bytes, not ", path.size()));
  }
  if (path.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError("the path holds a NUL byte");
  }
  Address out;
  out.path = std::string(path);
  return out;
}

bool IsHostName(absl::string_view host) {
  return std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

}  // namespace

bool Address::is_loopback() const {
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string Address::ToString() const {
  if (is_unix()) return absl::StrCat("unix:", path);
  if (absl::StrContains(host, ":")) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) return ParseUnix(rest);
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(Echo(text), " is neither HOST:PORT nor unix:PATH"));
  }
  Address out;
  absl::string_view host = text.substr(0, colon);
  const absl::string_view port = text.substr(colon + 1);
  if (!std::all_of(port.begin(), port.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(port, &out.port) || out.port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat(Echo(port), " is not a port in [0, 65535]"));
  }
  if (absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]")) {
    out.host = std::string(host);
    in6_addr v6;
    if (inet_pton(AF_INET6, out.host.c_str(), &v6) == 1) return out;
    return absl::InvalidArgumentError(absl::StrCat(Echo(host), " is not an IPv6 address"));
  }
  if (host.empty() || !IsHostName(host)) {
    return absl::InvalidArgumentError(
        absl::StrCat(Echo(text), " is neither HOST:PORT nor unix:PATH"));
  }
  out.host = std::string(host);
  return out;
}

}  // namespace tokend::service
