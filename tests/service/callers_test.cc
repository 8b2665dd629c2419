// Who may call, and the health service.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "openssl/sha.h"
#include "service/limits.h"
#include "tests/service/test_server.h"

namespace tokend::testing {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// --- Callers. ---

std::string Sha256Hex(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

class Callers : public ::testing::Test {
 protected:
  static TestServerOptions Options(bool allow_anonymous) {
    TestServerOptions options;
    options.principals = {{"alice", Sha256Hex("secret-a")}, {"bob", Sha256Hex("secret-b")}};
    options.allow_anonymous = allow_anonymous;
    return options;
  }
  static RichStatus Get(TestServer& server, const std::string& authorization,
                        const std::string& name) {
    grpc::ClientContext context;
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    v1::GetSessionRequest request;
    request.set_name(name);
    v1::GetSessionResponse response;
    return Rich(server.sessions().GetSession(&context, request, &response));
  }
  static void Create(TestServer& server, const std::string& authorization) {
    grpc::ClientContext context;
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    v1::CreateSessionRequest request;
    request.set_session_id("s");
    v1::CreateSessionResponse response;
    ASSERT_TRUE(server.sessions().CreateSession(&context, request, &response).ok());
  }
};

TEST_F(Callers, AreKnownByTheirTokens) {
  TestServer server(Options(false));
  Create(server, "Bearer secret-a");
  EXPECT_EQ(Get(server, "bearer secret-a", "sessions/s").code, grpc::StatusCode::OK);
  EXPECT_EQ(Get(server, "Bearer secret-b", "sessions/s").code, grpc::StatusCode::NOT_FOUND);
  for (const char* bad : {"", "Bearer wrong", "Bearer ", "Basic secret-a", "secret-a"}) {
    const RichStatus status = Get(server, bad, "sessions/s");
    EXPECT_EQ(status.code, grpc::StatusCode::UNAUTHENTICATED) << bad;
    EXPECT_EQ(status.reason, "UNAUTHENTICATED");
  }
  EXPECT_EQ(RunStream(server.generation(), PromptTurn("x", 1)).status.code,
            grpc::StatusCode::UNAUTHENTICATED);
  v1::GetModelResponse model;
  EXPECT_EQ(Call(server.models(), &v1::ModelService::Stub::GetModel, {}, &model).code,
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(Callers, AnonymousOnesIfAllowed) {
  TestServer server(Options(true));
  Create(server, "");
  EXPECT_EQ(Get(server, "", "sessions/s").code, grpc::StatusCode::OK);
  EXPECT_EQ(Get(server, "Bearer secret-a", "sessions/s").code, grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Get(server, "Bearer wrong", "sessions/s").code, grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(Callers, AQuotaThatIsTooSmallIsAQuotaFailure) {
  TestServerOptions options = Options(false);
  options.principals[0].quota_pages = 3;
  TestServer server(options);
  const auto create = [&](const std::string& id) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer secret-a");
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    request.mutable_session()->set_pinned(true);
    v1::CreateSessionResponse response;
    return Rich(server.sessions().CreateSession(&context, request, &response));
  };
  EXPECT_EQ(create("a").code, grpc::StatusCode::OK);
  // A page of each of the three layers holds 16 tokens.
  grpc::ClientContext context;
  context.AddMetadata("authorization", "Bearer secret-a");
  v1::GenerateRequest turn;
  *turn.mutable_turn() = PromptTurn("more than sixteen tokens", 1);
  turn.mutable_turn()->mutable_session()->set_name("sessions/a");
  v1::GenerateResponse response;
  const RichStatus refused = Rich(server.generation().Generate(&context, turn, &response));
  EXPECT_EQ(refused.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.reason, "QUOTA_EXCEEDED");
  EXPECT_EQ(refused.metadata.at("quota_pages"), "3");
  EXPECT_EQ(refused.quota_subject, "alice");
  EXPECT_FALSE(refused.has_retry_info);
}

// --- Health. ---

TEST(Health, CheckKnowsOurServices) {
  TestServerOptions options;
  options.loaded = false;
  TestServer server(options);
  const auto check = [&](const std::string& service, HealthCheckResponse* response) {
    HealthCheckRequest request;
    request.set_service(service);
    return Call(server.health_stub(), &grpc::health::v1::Health::Stub::Check, request, response);
  };
  for (const char* service : {"", "tokend.v1.GenerationService", "tokend.v1.SessionService",
                              "tokend.v1.ModelService", "tokend.v1.AdminService"}) {
    HealthCheckResponse response;
    EXPECT_EQ(check(service, &response).code, grpc::StatusCode::OK) << service;
    EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  }
  HealthCheckResponse response;
  EXPECT_EQ(check("nobody", &response).code, grpc::StatusCode::NOT_FOUND);
  server.health().SetServing(true);
  check("", &response);
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
}

TEST(Health, WatchTellsEachChangeAndEndsWithTheServer) {
  TestServerOptions options;
  options.loaded = false;
  TestServer server(options);
  grpc::ClientContext context;
  const auto reader = server.health_stub().Watch(&context, HealthCheckRequest());
  HealthCheckResponse response;
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  server.health().SetServing(true);
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  server.health().Shutdown();
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  server.health().SetServing(true);  // too late
  grpc::ClientContext late;
  const auto second = server.health_stub().Watch(&late, HealthCheckRequest());
  ASSERT_TRUE(second->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(second->Read(&response));
}

TEST(Health, WatchOfAnUnknownServiceAndACancelledWatch) {
  TestServer server;
  {
    HealthCheckRequest request;
    request.set_service("nobody");
    grpc::ClientContext context;
    const auto reader = server.health_stub().Watch(&context, request);
    HealthCheckResponse response;
    ASSERT_TRUE(reader->Read(&response));
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
    context.TryCancel();
    EXPECT_FALSE(reader->Read(&response));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  server.health().SetServing(false);
}

struct OpenWatch {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader;
  HealthCheckResponse newest;

  bool Read() { return reader->Read(&newest); }
};

// Opens `count` watches over all stubs while the status flips. Those that were refused
// have no reader any more, every other one of the rest has left.
std::vector<std::unique_ptr<OpenWatch>> OpenWhileFlipping(
    TestServer& server, const std::vector<std::unique_ptr<grpc::health::v1::Health::Stub>>& stubs,
    int count) {
  std::atomic<bool> opened = false;
  std::thread flips([&] {
    for (bool serving = false; !opened; serving = !serving) {
      server.health().SetServing(serving);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  std::vector<std::unique_ptr<OpenWatch>> watches;
  for (int i = 0; i < count; ++i) {
    OpenWatch& watch = *watches.emplace_back(std::make_unique<OpenWatch>());
    watch.reader = stubs[i % stubs.size()]->Watch(&watch.context, HealthCheckRequest());
  }
  for (const auto& watch : watches) {
    if (watch->Read()) continue;
    EXPECT_EQ(watch->reader->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    watch->reader.reset();
  }
  bool leave = false;
  for (const auto& watch : watches) {
    if (watch->reader == nullptr) continue;
    if (leave) watch->context.TryCancel();
    leave = !leave;
  }
  opened = true;
  flips.join();
  return watches;
}

TEST(Health, TooManyWatchersAreRefusedAndTheRestAreTold) {
  for (int round = 0; round < 4; ++round) {
    TestServer server;
    std::vector<std::unique_ptr<grpc::health::v1::Health::Stub>> stubs;
    for (int i = 0; i < 2; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt("tokend-test-channel", i);  // a connection of its own
      stubs.push_back(grpc::health::v1::Health::NewStub(server.Channel(arguments)));
    }
    const auto watches = OpenWhileFlipping(server, stubs, 300);
    server.health().SetServing(true);
    server.health().Shutdown();
    int left = 0;
    int told = 0;
    for (const auto& watch : watches) {
      if (watch->reader == nullptr) continue;
      while (watch->Read()) {
      }
      if (watch->reader->Finish().error_code() == grpc::StatusCode::CANCELLED) {
        ++left;
      } else {
        ++told;
        EXPECT_EQ(watch->newest.status(), HealthCheckResponse::NOT_SERVING);
      }
    }
    EXPECT_EQ(left, service::kMaxHealthWatchers / 2);
    EXPECT_EQ(told, service::kMaxHealthWatchers / 2);
  }
}

}  // namespace
}  // namespace tokend::testing
