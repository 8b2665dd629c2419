#include "metrics/exposer.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tokend::metrics {
namespace {

// civetweb takes addresses only, an IPv6 one in brackets.
absl::StatusOr<std::string> Resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(host, ": ", gai_strerror(error)));
  }
  char text[NI_MAXHOST] = "";
  const int failed = getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof(text), nullptr, 0,
                                 NI_NUMERICHOST);
  freeaddrinfo(found);
  if (failed != 0) {
    return absl::UnavailableError(absl::StrCat(host, ": ", gai_strerror(failed)));
  }
  return absl::StrContains(text, ":") ? absl::StrCat("[", text, "]") : std::string(text);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Exposer>> Exposer::Create(const std::string& host, int port) {
  TOKEND_ASSIGN_OR_RETURN(const std::string address, Resolve(host));
  // With civetweb's own 2 threads and 30 s, two half-open connections keep a scrape
  // waiting for 30 s.
  const std::vector<std::string> options = {"listening_ports",    absl::StrCat(address, ":", port),
                                            "num_threads",        "4",
                                            "request_timeout_ms", "2000"};
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(options);
    const std::vector<int> ports = exposer->GetListeningPorts();
    const int bound = ports.empty() ? port : ports.front();
    return std::unique_ptr<Exposer>(new Exposer(std::move(exposer), bound));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", host, ":", port, ": ", error.what()));
  }
}

void Exposer::Add(std::shared_ptr<prometheus::Collectable> collectable) {
  exposer_->RegisterCollectable(collectable);
  collectables_.push_back(std::move(collectable));
}

}  // namespace tokend::metrics
