#ifndef TOKEND_SERVICE_TOKCTL_CLIENT_H_
#define TOKEND_SERVICE_TOKCTL_CLIENT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "service/tokctl/commands.h"
#include "tokend/v1/admin.grpc.pb.h"
#include "tokend/v1/generation.grpc.pb.h"
#include "tokend/v1/model.grpc.pb.h"
#include "tokend/v1/sessions.grpc.pb.h"

namespace tokend::tokctl {

// A channel to one server and a stub of each service.
class Client {
 public:
  // With --wait, returns when the server says that it is ready. nullptr: it
  // cannot be reached (the reason was printed).
  static std::unique_ptr<Client> Connect(const Globals& globals);

  // Sets what every call carries: the token.
  void Prepare(grpc::ClientContext* context) const;

  v1::GenerationService::Stub* generation() { return generation_.get(); }
  v1::SessionService::Stub* sessions() { return sessions_.get(); }
  v1::ModelService::Stub* model() { return model_.get(); }
  v1::AdminService::Stub* admin() { return admin_.get(); }

 private:
  explicit Client(const Globals& globals) : globals_(globals) {}
  // False: not ready within --wait.
  bool WaitUntilReady();

  const Globals& globals_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GenerationService::Stub> generation_;
  std::unique_ptr<v1::SessionService::Stub> sessions_;
  std::unique_ptr<v1::ModelService::Stub> model_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

}  // namespace tokend::tokctl

#endif  // TOKEND_SERVICE_TOKCTL_CLIENT_H_
