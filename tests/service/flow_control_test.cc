// Slow readers, sockets, and what a stream costs while nobody reads.
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "service/server.h"
#include "service/unix_socket.h"
#include "tests/service/test_server.h"

namespace tokend::testing {
namespace {

// A client that buffers as little as gRPC lets it.
grpc::ChannelArguments SmallWindows() {
  grpc::ChannelArguments arguments;
  arguments.SetInt("grpc.http2.bdp_probe", 0);
  arguments.SetInt("grpc.http2.lookahead_bytes", 1);
  return arguments;
}

TestServerOptions WindowedOptions() {
  TestServerOptions options;
  options.layers = 1;
  options.pages = 4096;
  options.engine.context_tokens = 60000;
  options.default_retention = {kv::RetentionPolicy::Kind::kSlidingWindow, 0, 16};
  return options;
}

v1::StreamRequest EndlessTurn(int tokens) {
  v1::StreamRequest request;
  *request.mutable_turn() = PromptTurn("go", tokens);
  request.mutable_turn()->mutable_session()->set_name("sessions/s");
  request.mutable_turn()->mutable_session()->set_allow_missing(true);
  return request;
}

// Until the only turn has drawn nothing for longer than any step takes.
void WaitForPause(TestServer* server) {
  constexpr absl::Duration kLongerThanAStep = absl::Milliseconds(500);
  int64_t last = 0;
  absl::Time since = absl::Now();
  server->WaitFor([&] {
    const int64_t now = server->counts().generated;
    if (std::exchange(last, now) != now || now == 0) since = absl::Now();
    return absl::Now() - since > kLongerThanAStep;
  });
}

TEST(FlowControl, ASlowReaderGetsEverythingInMergedPieces) {
  TestServer server(WindowedOptions());
  constexpr int kTokens = 20000;
  auto stub = v1::GenerationService::NewStub(server.Channel(SmallWindows()));
  grpc::ClientContext context;
  auto reader = stub->Stream(&context, EndlessTurn(kTokens));
  v1::StreamResponse response;
  ASSERT_TRUE(reader->Read(&response));
  WaitForPause(&server);
  ASSERT_LT(server.counts().generated, kTokens) << "the turn never paused: this tests nothing";
  // Others are served meanwhile.
  EXPECT_EQ(RunStream(server.generation(), PromptTurn("other", 10)).status.code,
            grpc::StatusCode::OK);
  EXPECT_EQ(server.engine().Snapshot().running, 1);

  StreamResult result;
  size_t largest = 0;
  while (reader->Read(&response)) {
    if (response.has_delta()) {
      result.deltas.push_back(response.delta());
      largest = std::max<size_t>(largest, response.delta().token_ids_size());
    } else if (response.has_finished()) {
      result.finished.push_back(response.finished());
    }
  }
  EXPECT_TRUE(reader->Finish().ok());
  const std::vector<int32_t> tokens = result.tokens();
  EXPECT_EQ(tokens.size(), static_cast<size_t>(kTokens));
  EXPECT_GT(largest, 1u);
  EXPECT_LE(largest, 1024u);
  ASSERT_EQ(result.finished.size(), 1u);
  EXPECT_GT(result.finished[0].timings().parked().seconds() +
                result.finished[0].timings().parked().nanos(),
            0);
  // The same as a reader gets who is never late.
  v1::StreamRequest again = EndlessTurn(kTokens);
  again.mutable_turn()->mutable_session()->set_name("sessions/t");
  EXPECT_EQ(RunStream(server.generation(), again.turn()).tokens(), tokens);
}

TEST(FlowControl, AReaderThatTakesNothingLosesItsTurn) {
  TestServerOptions options = WindowedOptions();
  options.engine.stall_timeout = absl::Milliseconds(300);
  TestServer server(options);
  auto stub = v1::GenerationService::NewStub(server.Channel(SmallWindows()));
  grpc::ClientContext context;
  auto reader = stub->Stream(&context, EndlessTurn(50000));
  v1::StreamResponse response;
  ASSERT_TRUE(reader->Read(&response));
  server.WaitUntilIdle();
  EXPECT_EQ(server.counts().ends.at("reader_too_slow"), 1);
  while (reader->Read(&response)) {
  }
  const RichStatus status = Rich(reader->Finish());
  EXPECT_EQ(status.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.reason, "READER_TOO_SLOW");
}

// --- Sockets. ---

class Sockets : public ::testing::Test {
 protected:
  Sockets() : folder_(::testing::TempDir() + "/tokend-sockets-XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  std::string folder_;
};

TEST_F(Sockets, AUnixSocketServesGroupAndOwner) {
  const std::string path = folder_ + "/run/t.sock";
  TestServerOptions options;
  options.listen = {"unix:" + path};
  TestServer server(options);
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0660u);
  ASSERT_EQ(stat((folder_ + "/run").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777 & ~0750u, 0u);
  EXPECT_EQ(RunStream(server.generation(), PromptTurn("x", 3)).tokens().size(), 3u);
}

absl::Status StartSecond(const std::string& address) {
  service::Settings settings;
  settings.listen.push_back(service::ParseAddress(address).value());
  return service::Server::Start(settings, {}).status();
}

TEST_F(Sockets, ASecondServerIsRefusedAndTheFirstServesOn) {
  const std::string path = folder_ + "/t.sock";
  TestServerOptions options;
  options.listen = {"unix:" + path};
  {
    TestServer server(options);
    const absl::Status second = StartSecond("unix:" + path);
    EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(second.message().find(path), absl::string_view::npos);
    EXPECT_EQ(RunStream(server.generation(), PromptTurn("x", 3)).tokens().size(), 3u);
  }
  // The path is free again, also with a dead socket left behind.
  TestServer server(options);
  EXPECT_EQ(RunStream(server.generation(), PromptTurn("x", 3)).tokens().size(), 3u);
}

TEST_F(Sockets, ATakenPortIsRefusedByName) {
  TestServer server;
  // The channel's target is the address.
  const std::string address = server.address();
  const absl::Status second = StartSecond(address);
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(second.message().find(address), absl::string_view::npos);
  EXPECT_NE(second.message().find("in use"), absl::string_view::npos) << second;
}

TEST_F(Sockets, WhatIsNoSocketIsLeftAlone) {
  const std::string path = folder_ + "/precious";
  std::ofstream(path) << "data";
  const absl::Status status = StartSecond("unix:" + path);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("no socket"), absl::string_view::npos) << status;
  EXPECT_FALSE(std::ifstream(path + ".lock").good());
  EXPECT_EQ(std::ifstream(path).get(), 'd');
}

TEST_F(Sockets, TlsFilesAreNamed) {
  service::Settings settings;
  settings.listen.push_back(service::ParseAddress("127.0.0.1:0").value());
  settings.tls_cert_file = folder_ + "/none.pem";
  settings.tls_key_file = folder_ + "/none.key";
  const absl::Status status = service::Server::Start(settings, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("tls_cert_file"), absl::string_view::npos);
}

}  // namespace
}  // namespace tokend::testing
