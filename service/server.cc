#include "service/server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "grpc/grpc.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "service/limits.h"
#include "service/tls_files.h"

namespace tokend::service {
namespace {

// Only reflection uses gRPC's own threads: calls of ours come through callbacks.
constexpr int kMaxReflectionThreads = 16;

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> TcpCredentials(const Settings& settings) {
  if (settings.tls_cert_file.empty()) return grpc::InsecureServerCredentials();
  TOKEND_ASSIGN_OR_RETURN(TlsFiles files,
                          ReadTlsFiles(settings.tls_cert_file, settings.tls_key_file));
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({std::move(files.key), std::move(files.certificates)});
  return grpc::SslServerCredentials(options);
}

// Why an address cannot be bound; gRPC does not say.
std::string BindProblem(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return gai_strerror(error);
  std::string problem = "not available";
  const int fd = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, 1) != 0)) {
    problem = std::strerror(errno);
  }
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return problem;
}

void SetOptions(grpc::ServerBuilder* builder) {
  // Else a second daemon shares the port in silence.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A frozen client is noticed within 15 s, calls or none. Not so on a unix socket whose
  // queue has filled up (some hundred small writes): there the ping waits as well, and
  // stall_timeout ends the turn.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxConcurrentStreams);
  builder->SetMaxReceiveMessageSize(kMaxRequestBytes);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 1);
  grpc::ResourceQuota quota("tokend");
  quota.SetMaxThreads(kMaxReflectionThreads);
  builder->SetResourceQuota(quota);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Settings& settings,
                                                      absl::Span<grpc::Service* const> services) {
  // Process-wide switches of gRPC, read by the builder.
  grpc::EnableDefaultHealthCheckService(false);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<Server> out(new Server());
  TOKEND_ASSIGN_OR_RETURN(const auto tcp, TcpCredentials(settings));
  grpc::ServerBuilder builder;
  SetOptions(&builder);
  std::vector<int> ports(settings.listen.size(), 0);
  for (size_t i = 0; i < settings.listen.size(); ++i) {
    const Address& address = settings.listen[i];
    if (address.is_unix()) {
      TOKEND_ASSIGN_OR_RETURN(auto lock, SocketLock::Acquire(address.path));
      out->locks_.push_back(std::move(lock));
    }
    builder.AddListeningPort(
        address.ToString(), address.is_unix() ? grpc::InsecureServerCredentials() : tcp, &ports[i]);
  }
  for (grpc::Service* service : services) builder.RegisterService(service);
  out->server_ = builder.BuildAndStart();
  for (size_t i = 0; i < ports.size(); ++i) {
    Address address = settings.listen[i];
    if (ports[i] <= 0) {
      const std::string problem = address.is_unix() ? "cannot be bound" : BindProblem(address);
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address.ToString(), ": ", problem));
    }
    if (!address.is_unix()) address.port = ports[i];
    out->addresses_.push_back(address);
  }
  if (out->server_ == nullptr) return absl::UnavailableError("gRPC could not start its server");
  for (const auto& lock : out->locks_) TOKEND_RETURN_IF_ERROR(lock->SetMode());
  return out;
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

void Server::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(grace));
  server_->Wait();
  server_.reset();
}

}  // namespace tokend::service
