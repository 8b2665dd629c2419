// Ten thousand calls that end early leave nothing behind.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "tests/service/test_server.h"

// A sanitizer's, which may watch other files than this one.
extern "C" __attribute__((weak)) void __sanitizer_print_stack_trace();

namespace tokend::testing {
namespace {

// A sanitizer keeps freed memory back and runs ten times as long.
const bool kSanitized = __sanitizer_print_stack_trace != nullptr;
const int kCalls = kSanitized ? 1000 : 10000;
constexpr int kClients = 4;
constexpr int kCallsAtOnce = 50;
// What caches and pools still grow by, and some 300 bytes a turn that the engine keeps
// for the replay window.
constexpr int64_t kSlackBytes = 8 << 20;

int64_t ResidentBytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

class Client {
 public:
  Client(TestServer* server, int number) : server_(server), rng_(number), number_(number) {}

  // Some calls at a time, until it is enough.
  void Run(const std::function<bool()>& enough) {
    for (int i = 0; i % kCallsAtOnce != 0 || !enough(); ++i) {
      v1::Turn turn = PromptTurn("to be cancelled", 400);
      turn.set_request_id(absl::StrCat("c", number_, "-", serial_++));
      if (Below(3) != 0) {
        turn.mutable_session()->set_name(absl::StrCat("sessions/s", Below(6)));
        turn.mutable_session()->set_allow_missing(true);
        turn.mutable_session()->set_commit(static_cast<v1::CommitMode>(1 + Below(3)));
        turn.mutable_session()->set_on_conflict(static_cast<v1::ConflictPolicy>(1 + Below(2)));
        // Or the sessions would fill up.
        turn.mutable_session()->set_from_position(0);
      }
      if (Below(4) == 0) {
        Generate(turn);
      } else {
        Stream(turn);
      }
    }
  }

 private:
  int Below(int n) { return static_cast<int>(rng_() % static_cast<uint32_t>(n)); }

  // Read up to a random event, then cancelled.
  void Stream(const v1::Turn& turn) {
    grpc::ClientContext context;
    v1::StreamRequest request;
    *request.mutable_turn() = turn;
    const auto reader = server_->generation().Stream(&context, request);
    v1::StreamResponse response;
    for (int events = Below(6); events > 0 && reader->Read(&response); --events) {
    }
    context.TryCancel();
    (void)reader->Finish();
  }

  // The deadline ends it before, in, or after the turn.
  void Generate(const v1::Turn& turn) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(Below(3000)));
    v1::GenerateRequest request;
    *request.mutable_turn() = turn;
    v1::GenerateResponse response;
    (void)server_->generation().Generate(&context, request, &response);
  }

  TestServer* const server_;
  std::minstd_rand rng_;
  const int number_;
  int serial_ = 0;
};

// The turns that the server saw cancelled or too late. Other calls were over before it
// knew of them, found the queue full, or had all of their answer.
int64_t Lost(const TestServer& server) {
  const auto ends = server.counts().ends;
  int64_t lost = 0;
  for (const char* reason : {"cancelled", "deadline_passed"}) {
    if (ends.count(reason) > 0) lost += ends.at(reason);
  }
  return lost;
}

TEST(CancelTest, TenThousandCancelledCallsLeaveNothing) {
  spdlog::set_level(spdlog::level::off);  // each turn writes a line
  TestServerOptions options;
  options.engine.max_queued = 16;
  TestServer server(options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(std::make_unique<Client>(&server, i + 1));
  // Until so many turns are lost; the memory then.
  const auto run = [&](int64_t lost) {
    std::vector<std::thread> threads;
    for (const auto& client : clients) {
      threads.emplace_back([&] { client->Run([&server, lost] { return Lost(server) >= lost; }); });
    }
    for (std::thread& thread : threads) thread.join();
    server.WaitUntilIdle();
    return ResidentBytes();
  };
  const int64_t warm = run(kCalls / 4);
  const int64_t lost_before = Lost(server);
  const int64_t whole = run(lost_before + kCalls);
  EXPECT_GE(Lost(server), lost_before + kCalls);
  if (!kSanitized) {
    EXPECT_LT(whole - warm, kSlackBytes);
  }
  RecordProperty("grown_bytes", absl::StrCat(whole - warm));
  // Sessions keep what was committed, and nothing else owns a page.
  for (int i = 0; i < 6; ++i) {
    grpc::ClientContext context;
    v1::DeleteSessionRequest request;
    request.set_name(absl::StrCat("sessions/s", i));
    request.set_allow_missing(true);
    v1::DeleteSessionResponse response;
    EXPECT_TRUE(server.sessions().DeleteSession(&context, request, &response).ok());
  }
  server.WaitFor([&server] {
    const kv::PageCounts pages = server.engine().Snapshot().store.pages;
    return pages.free + pages.cached == pages.total;
  });
  EXPECT_EQ(server.engine().Snapshot().store.sessions, 0);
}

}  // namespace
}  // namespace tokend::testing
