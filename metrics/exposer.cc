#include "metrics/exposer.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"

namespace tokend::metrics {
namespace {

constexpr std::chrono::milliseconds kKnockInterval(5);

// civetweb takes addresses only, and Debian builds it without IPv6.
absl::StatusOr<in_addr> Resolve(const std::string& host) {
  addrinfo hints = {};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", host, ": ", gai_strerror(error)));
  }
  sockaddr_in address = {};
  std::memcpy(&address, found->ai_addr, sizeof(address));
  freeaddrinfo(found);
  return address.sin_addr;
}

std::string ToText(in_addr address) {
  char text[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &address, text, sizeof(text));
  return text;
}

// A connection that says nothing.
void Knock(in_addr host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr = host;
  address.sin_port = htons(static_cast<uint16_t>(port));
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  (void)connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  close(fd);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Exposer>> Exposer::Create(const std::string& host, int port) {
  TOKEND_ASSIGN_OR_RETURN(const in_addr address, Resolve(host));
  // With civetweb's own 2 threads and 30 s, two half-open connections keep a scrape
  // waiting for 30 s.
  const std::vector<std::string> options = {
      "listening_ports",    absl::StrCat(ToText(address), ":", port),
      "num_threads",        "4",
      "request_timeout_ms", "2000"};
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(options);
    const std::vector<int> ports = exposer->GetListeningPorts();
    const int bound = ports.empty() ? port : ports.front();
    return std::unique_ptr<Exposer>(new Exposer(std::move(exposer), address, bound));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on ", host, ":", port, ": ", error.what()));
  }
}

Exposer::~Exposer() {
  std::atomic<bool> stopped = false;
  std::thread stopper([this, &stopped] {
    exposer_.reset();
    stopped = true;
  });
  // civetweb looks whether it is to stop when somebody connects, else every two seconds.
  while (!stopped) {
    Knock(address_, port_);
    std::this_thread::sleep_for(kKnockInterval);
  }
  stopper.join();
}

void Exposer::Add(std::shared_ptr<prometheus::Collectable> collectable) {
  exposer_->RegisterCollectable(collectable);
  collectables_.push_back(std::move(collectable));
}

}  // namespace tokend::metrics
