#include "tests/service/test_server.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"

namespace tokend::testing {
namespace {

FakeBackendOptions BackendOptions(const TestServerOptions& options) {
  FakeBackendOptions out;
  out.vocabulary_size = kVocabulary;
  out.layers = options.layers;
  return out;
}

service::Settings ServerSettings(const TestServerOptions& options) {
  service::Settings settings;
  for (const std::string& address : options.listen) {
    settings.listen.push_back(service::ParseAddress(address).value());
  }
  return settings;
}

}  // namespace

TestServer::TestServer(const TestServerOptions& options)
    : backend_(BackendOptions(options)),
      auth_(options.principals, options.allow_anonymous),
      env_({&auth_, base::RealClock(), &observer_, "0.0.0 (test, fake)"}),
      generation_(&env_),
      sessions_(&env_),
      models_(&env_),
      admin_(&env_) {
  v1::Model model;
  model.set_name("models/tiny");
  env_.SetModel(model);
  MakeEngine(options);
  if (options.loaded) {
    env_.Publish(&serving_);
    health_.SetServing(true);
  }
  const std::vector<grpc::Service*> services = {&health_, &generation_, &sessions_, &models_,
                                                &admin_};
  auto server = service::Server::Start(ServerSettings(options), services);
  EXPECT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  const auto channel = Channel();
  generation_stub_ = v1::GenerationService::NewStub(channel);
  session_stub_ = v1::SessionService::NewStub(channel);
  model_stub_ = v1::ModelService::NewStub(channel);
  admin_stub_ = v1::AdminService::NewStub(channel);
  health_stub_ = grpc::health::v1::Health::NewStub(channel);
}

void TestServer::MakeEngine(const TestServerOptions& options) {
  backend_.on_forward = [this](const ops::StepBatch&) { return OnForward(); };
  EXPECT_TRUE(tags_.AllocateArena(options.pages).ok());
  kv::StoreOptions store;
  store.layers = options.layers;
  store.page_tokens = backend_.options().page_tokens;
  store.pages = options.pages;
  store.page_bytes = backend_.info().page_bytes;
  store.context_tokens = options.engine.context_tokens;
  store.max_sessions = options.max_sessions;
  for (const service::PrincipalSettings& principal : options.principals) {
    if (principal.quota_pages) store.quota_pages[principal.name] = *principal.quota_pages;
  }
  store.hooks = &tags_;
  store_ = kv::SessionStore::Create(store, &tags_, base::RealClock(), &observer_).value();
  engine_ = engine::Engine::Create(options.engine, {&tags_, store_.get(), &TinyTokenizer(),
                                                    options.chat ? &TinyChat() : nullptr,
                                                    base::RealClock(), &observer_})
                .value();
  serving_.engine = engine_.get();
  serving_.store = store_.get();
  serving_.tokenizer = &TinyTokenizer();
  serving_.rules.context_tokens = options.engine.context_tokens;
  serving_.rules.layers = store.layers;
  serving_.rules.vocabulary_size = kVocabulary;
  serving_.rules.default_session.retention = options.default_retention;
  engine_->Start([] {}, [](const absl::Status&) {});
}

TestServer::~TestServer() {
  Release();
  health_.Shutdown();
  server_->Shutdown(absl::ZeroDuration());
  engine_.reset();
  EXPECT_TRUE(backend_.problems().empty()) << backend_.problems().front();
  EXPECT_TRUE(tags_.problems().empty()) << tags_.problems().front();
}

std::shared_ptr<grpc::Channel> TestServer::Channel(const grpc::ChannelArguments& arguments) {
  return grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments);
}

absl::Status TestServer::OnForward() {
  base::MutexLock lock(&mu_);
  while (held_) changed_.Wait(&mu_);
  if (step_time_ > absl::ZeroDuration()) changed_.WaitFor(&mu_, step_time_);
  if (!broken_) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kInternal, "the device is gone",
                         {base::ErrorReason::kBackendFailed, {}, {}});
}

void TestServer::Hold() {
  base::MutexLock lock(&mu_);
  held_ = true;
}

void TestServer::Release() {
  base::MutexLock lock(&mu_);
  held_ = false;
  changed_.SignalAll();
}

void TestServer::SetStepTime(absl::Duration duration) {
  base::MutexLock lock(&mu_);
  step_time_ = duration;
}

void TestServer::BreakBackend() {
  base::MutexLock lock(&mu_);
  broken_ = true;
}

void TestServer::WaitFor(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ADD_FAILURE() << "waited in vain";
}

void TestServer::WaitUntilIdle() {
  WaitFor([this] {
    const auto snapshot = engine_->Snapshot();
    return snapshot.running == 0 && snapshot.waiting == 0;
  });
}

RichStatus Rich(const grpc::Status& status) {
  RichStatus out;
  out.code = status.error_code();
  out.message = status.error_message();
  out.details_bytes = status.error_details().size();
  google::rpc::Status rich;
  EXPECT_TRUE(rich.ParseFromString(status.error_details()));
  if (!status.error_details().empty()) {
    EXPECT_EQ(rich.code(), static_cast<int>(status.error_code()));
    EXPECT_EQ(rich.message(), status.error_message());
  }
  for (const auto& any : rich.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    google::rpc::ResourceInfo resource;
    google::rpc::QuotaFailure quota;
    if (any.UnpackTo(&info)) {
      out.domain = info.domain();
      out.reason = info.reason();
      out.metadata = {info.metadata().begin(), info.metadata().end()};
    } else if (any.UnpackTo(&bad_request)) {
      for (const auto& violation : bad_request.field_violations()) {
        out.violations[violation.field()] = violation.description();
      }
    } else if (any.UnpackTo(&retry)) {
      out.has_retry_info = true;
      out.retry_seconds =
          static_cast<double>(retry.retry_delay().seconds()) + retry.retry_delay().nanos() * 1e-9;
    } else if (any.UnpackTo(&resource)) {
      out.resource_type = resource.resource_type();
      out.resource_name = resource.resource_name();
    } else if (any.UnpackTo(&quota) && quota.violations_size() == 1) {
      out.quota_subject = quota.violations(0).subject();
    }
  }
  return out;
}

std::string StreamResult::text() const {
  std::string out;
  for (const v1::Delta& delta : deltas) out += delta.text();
  return out;
}

std::vector<int32_t> StreamResult::tokens() const {
  std::vector<int32_t> out;
  for (const v1::Delta& delta : deltas) {
    EXPECT_EQ(delta.index(), static_cast<int>(out.size()));
    out.insert(out.end(), delta.token_ids().begin(), delta.token_ids().end());
  }
  return out;
}

StreamResult RunStream(v1::GenerationService::Stub& stub, const v1::Turn& turn) {
  grpc::ClientContext context;
  v1::StreamRequest request;
  *request.mutable_turn() = turn;
  const auto reader = stub.Stream(&context, request);
  reader->WaitForInitialMetadata();
  StreamResult out;
  v1::StreamResponse response;
  while (reader->Read(&response)) {
    EXPECT_TRUE(out.finished.empty());
    switch (response.event_case()) {
      case v1::StreamResponse::kStarted:
        EXPECT_TRUE(out.deltas.empty());
        out.started.push_back(response.started());
        break;
      case v1::StreamResponse::kDelta:
        EXPECT_EQ(out.started.size(), 1u);
        out.deltas.push_back(response.delta());
        break;
      case v1::StreamResponse::kFinished:
        out.finished.push_back(response.finished());
        break;
      case v1::StreamResponse::EVENT_NOT_SET:
        ADD_FAILURE() << "an event without content";
    }
  }
  out.status = Rich(reader->Finish());
  for (const auto& [key, value] : context.GetServerInitialMetadata()) {
    out.initial_metadata[std::string(key.data(), key.size())] =
        std::string(value.data(), value.size());
  }
  return out;
}

v1::Turn PromptTurn(const std::string& text, int max_output_tokens) {
  v1::Turn turn;
  turn.mutable_prompt()->set_text(text);
  turn.mutable_sampling()->set_temperature(0);
  turn.mutable_stop()->set_max_output_tokens(max_output_tokens);
  turn.mutable_stop()->set_ignore_end_of_text(true);
  return turn;
}

}  // namespace tokend::testing
