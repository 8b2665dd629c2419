#include "service/tokctl/client.h"

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "service/tokctl/output.h"

namespace tokend::tokctl {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(50);

std::shared_ptr<grpc::ChannelCredentials> Credentials(const Globals& globals) {
  if (globals.ca_file.empty()) return grpc::InsecureChannelCredentials();
  std::ifstream in(globals.ca_file, std::ios::binary);
  std::stringstream pem;
  pem << in.rdbuf();
  if (!in) {
    PrintFailure(globals, absl::StrCat("cannot read --ca-file ", globals.ca_file));
    return nullptr;
  }
  return grpc::SslCredentials({.pem_root_certs = pem.str()});
}

}  // namespace

std::unique_ptr<Client> Client::Connect(const Globals& globals) {
  const auto credentials = Credentials(globals);
  if (credentials == nullptr) return nullptr;
  auto client = std::unique_ptr<Client>(new Client(globals));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  // $http_proxy is for the web, not for a server on this machine or its bus.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // A server that starts a second from now should not cost many.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  client->channel_ = grpc::CreateCustomChannel(globals.server, credentials, arguments);
  client->generation_ = v1::GenerationService::NewStub(client->channel_);
  client->sessions_ = v1::SessionService::NewStub(client->channel_);
  client->model_ = v1::ModelService::NewStub(client->channel_);
  client->admin_ = v1::AdminService::NewStub(client->channel_);
  if (!globals.wait.empty() && !client->WaitUntilReady()) return nullptr;
  return client;
}

void Client::Prepare(grpc::ClientContext* context) const {
  if (!globals_.token.empty()) {
    context->AddMetadata("authorization", absl::StrCat("Bearer ", globals_.token));
  }
}

bool Client::WaitUntilReady() {
  absl::Duration wait;
  if (!absl::ParseDuration(globals_.wait, &wait)) return false;
  const absl::Time deadline = absl::Now() + wait;
  grpc::Status status;
  for (;;) {
    grpc::ClientContext context;
    Prepare(&context);
    context.set_deadline(absl::ToChronoTime(deadline));
    v1::GetModelResponse response;
    status = model_->GetModel(&context, {}, &response);
    if (status.ok() && response.ready()) return true;
    const bool absent = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                        status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
    // It refuses this caller: the command's own call will say why.
    if (!status.ok() && !absent) return true;
    if (absl::Now() + kPollInterval >= deadline) break;
    absl::SleepFor(kPollInterval);
  }
  if (status.ok()) {
    PrintFailure(globals_, absl::StrCat(globals_.server, " is still loading its model after ",
                                        globals_.wait));
  } else {
    PrintStatus(globals_, status);
  }
  return false;
}

}  // namespace tokend::tokctl
