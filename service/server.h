#ifndef TOKEND_SERVICE_SERVER_H_
#define TOKEND_SERVICE_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "grpcpp/server.h"
#include "service/settings.h"
#include "service/unix_socket.h"

namespace tokend::service {

// gRPC on every address of the settings, with reflection. One in a process at a
// time.
class Server {
 public:
  // Serves `services`, which outlive it, from now on. UNAVAILABLE names the address
  // that could not be bound; INVALID_ARGUMENT the setting of a bad TLS file.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const Settings& settings,
                                                       absl::Span<grpc::Service* const> services);
  ~Server();

  // Where it listens, with the ports that the system picked.
  const std::vector<Address>& addresses() const { return addresses_; }

  // Takes no more calls, cancels after `grace` those that still run, and returns
  // when none is left.
  void Shutdown(absl::Duration grace);

 private:
  Server() = default;

  std::vector<std::unique_ptr<SocketLock>> locks_;  // let go after the sockets
  std::vector<Address> addresses_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_SERVER_H_
