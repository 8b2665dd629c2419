// The services over real gRPC, the real engine and store, and the fake backend.
#ifndef TOKEND_TESTS_SERVICE_TEST_SERVER_H_
#define TOKEND_TESTS_SERVICE_TEST_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/mutex.h"
#include "core/engine/engine.h"
#include "core/kv/session_store.h"
#include "google/protobuf/message.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/status.h"
#include "service/admin_service.h"
#include "service/auth.h"
#include "service/call_env.h"
#include "service/generation_service.h"
#include "service/health_service.h"
#include "service/model_service.h"
#include "service/server.h"
#include "service/session_service.h"
#include "tests/core/engine/harness.h"
#include "tests/support/fake_backend.h"
#include "tests/support/shadow_tags.h"

namespace tokend::testing {

struct TestServerOptions {
  engine::EngineOptions engine = {.context_tokens = 1024, .vocabulary_size = kVocabulary};
  int64_t pages = 3 * 512;
  int layers = 3;
  int max_sessions = 16;
  std::vector<service::PrincipalSettings> principals;
  bool allow_anonymous = false;
  bool loaded = true;  // false: still loading
  bool chat = true;
  std::vector<std::string> listen = {"127.0.0.1:0"};
  kv::RetentionPolicy default_retention;
};

class TestServer {
 public:
  explicit TestServer(const TestServerOptions& options = {});
  ~TestServer();

  // Its first one.
  std::string address() const { return server_->addresses().front().ToString(); }
  std::shared_ptr<grpc::Channel> Channel(const grpc::ChannelArguments& arguments = {});
  v1::GenerationService::Stub& generation() { return *generation_stub_; }
  v1::SessionService::Stub& sessions() { return *session_stub_; }
  v1::ModelService::Stub& models() { return *model_stub_; }
  v1::AdminService::Stub& admin() { return *admin_stub_; }
  grpc::health::v1::Health::Stub& health_stub() { return *health_stub_; }

  engine::Engine& engine() { return *engine_; }
  FakeBackend& backend() { return backend_; }
  service::HealthServiceImpl& health() { return health_; }
  const service::CallEnv& env() const { return env_; }
  CountingObserver::Counts counts() const { return observer_.counts(); }

  // No step starts between Hold and Release.
  void Hold();
  void Release();
  // Each later step takes at least so long.
  void SetStepTime(absl::Duration duration);
  // Every later step fails, as a broken device would.
  void BreakBackend();
  // Waits for the condition, ten seconds at most.
  void WaitFor(const std::function<bool()>& condition);
  // Until nothing runs or waits.
  void WaitUntilIdle();

 private:
  absl::Status OnForward();
  void MakeEngine(const TestServerOptions& options);

  base::Mutex mu_;
  base::CondVar changed_;
  bool held_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  absl::Duration step_time_ ABSL_GUARDED_BY(mu_) = absl::ZeroDuration();

  FakeBackend backend_;
  ShadowTags tags_{&backend_, backend_.options().page_tokens,
                   [this](base::PageId page) { backend_.Poison(page); }};
  CountingObserver observer_;
  std::unique_ptr<kv::SessionStore> store_;
  std::unique_ptr<engine::Engine> engine_;
  const service::Authenticator auth_;
  service::CallEnv env_;
  service::Serving serving_;
  service::HealthServiceImpl health_;
  service::GenerationServiceImpl generation_;
  service::SessionServiceImpl sessions_;
  service::ModelServiceImpl models_;
  service::AdminServiceImpl admin_;
  std::unique_ptr<service::Server> server_;
  std::unique_ptr<v1::GenerationService::Stub> generation_stub_;
  std::unique_ptr<v1::SessionService::Stub> session_stub_;
  std::unique_ptr<v1::ModelService::Stub> model_stub_;
  std::unique_ptr<v1::AdminService::Stub> admin_stub_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_stub_;
};

// A status and its details.
struct RichStatus {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string message;
  std::string domain;
  std::string reason;
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::string> violations;  // field -> description
  bool has_retry_info = false;
  double retry_seconds = 0;
  std::string resource_type;  // of ResourceInfo
  std::string resource_name;
  std::string quota_subject;  // of QuotaFailure
  size_t details_bytes = 0;
};

RichStatus Rich(const grpc::Status& status);

// One unary call: Call(server.sessions(), &Stub::GetSession, request, &response).
template <typename Stub, typename Request, typename Response>
RichStatus Call(Stub& stub,
                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                const Request& request, Response* response) {
  grpc::ClientContext context;
  return Rich((stub.*method)(&context, request, response));
}

// All of a stream.
struct StreamResult {
  RichStatus status;
  std::map<std::string, std::string> initial_metadata;
  std::vector<v1::Started> started;
  std::vector<v1::Delta> deltas;
  std::vector<v1::Finished> finished;

  std::string text() const;
  std::vector<int32_t> tokens() const;
};

StreamResult RunStream(v1::GenerationService::Stub& stub, const v1::Turn& turn);

// A greedy turn with a prompt, which goes on after end-of-text tokens.
v1::Turn PromptTurn(const std::string& text, int max_output_tokens);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SERVICE_TEST_SERVER_H_
