#ifndef TOKEND_SERVICE_AUTH_H_
#define TOKEND_SERVICE_AUTH_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "service/settings.h"

namespace tokend::service {

// The principal of callers without a token; no configured one has this name.
inline constexpr absl::string_view kAnonymous = "anonymous";

// Tells callers apart by "authorization: Bearer TOKEN". Only the tokens' SHA-256
// is known here. Immutable and thread-safe.
class Authenticator {
 public:
  // Without principals everyone is anonymous; with them an anonymous caller is
  // refused unless `allow_anonymous`.
  Authenticator(const std::vector<PrincipalSettings>& principals, bool allow_anonymous)
      : principals_(principals), allow_anonymous_(allow_anonymous) {}

  // `authorization`: the header's value; absent: none was sent. The principal's
  // name, or UNAUTHENTICATED.
  absl::StatusOr<std::string> Authenticate(std::optional<std::string> authorization) const;

 private:
  const std::vector<PrincipalSettings> principals_;
  const bool allow_anonymous_;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_AUTH_H_
