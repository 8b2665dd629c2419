#include "service/auth.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "core/base/check.h"
#include "openssl/crypto.h"
#include "openssl/sha.h"
#include "service/errors.h"

namespace tokend::service {
namespace {

std::string Sha256Hex(absl::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  TOKEND_CHECK(SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                      digest.data()) != nullptr);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace

absl::StatusOr<std::string> Authenticator::Authenticate(
    std::optional<std::string> authorization) const {
  if (principals_.empty()) return std::string(kAnonymous);
  if (!authorization.has_value()) {
    if (allow_anonymous_) return std::string(kAnonymous);
    return Unauthenticated("a bearer token is required");
  }
  constexpr absl::string_view kScheme = "bearer ";
  absl::string_view value = *authorization;
  if (!absl::StartsWithIgnoreCase(value, kScheme)) {
    return Unauthenticated("the authorization is not of the form \"Bearer TOKEN\"");
  }
  value.remove_prefix(kScheme.size());
  const std::string hash = Sha256Hex(absl::StripAsciiWhitespace(value));
  // All are compared, each in constant time: timing tells nothing about the hashes.
  const PrincipalSettings* match = nullptr;
  for (const PrincipalSettings& principal : principals_) {
    if (CRYPTO_memcmp(hash.data(), principal.token_sha256.data(), hash.size()) == 0) {
      match = &principal;
    }
  }
  if (match == nullptr) return Unauthenticated("the token is not known");
  return match->name;
}

}  // namespace tokend::service
