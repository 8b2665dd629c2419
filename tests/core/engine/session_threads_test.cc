// Programs of clients from real threads, and whether what they saw can be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "tests/core/engine/client_program.h"
#include "tests/core/engine/harness.h"
#include "tests/core/engine/session_model.h"

namespace tokend::testing {
namespace {

using base::ErrorReason;

constexpr int kThreads = 8;

// Whoever submitted the turn waits for its end.
class WaitingSink : public RecordingSink {
 public:
  explicit WaitingSink(std::atomic<int64_t>* ticks) : ticks_(ticks) {}

  void OnFinished(const engine::Finished& finished) override {
    RecordingSink::OnFinished(finished);
    End();
  }
  void OnFailed(const absl::Status& status) override {
    RecordingSink::OnFailed(status);
    End();
  }
  void OnStarted(const engine::Started& started) override {
    RecordingSink::OnStarted(started);
    base::MutexLock lock(&mu_);
    began_ = ++*ticks_;
    changed_.SignalAll();
  }
  void OnDelta(engine::Delta delta) override {
    RecordingSink::OnDelta(std::move(delta));
    base::MutexLock lock(&mu_);
    said_ = true;
    changed_.SignalAll();
  }
  void WaitForTokens() {
    base::MutexLock lock(&mu_);
    while (!said_ && !done_) changed_.Wait(&mu_);
  }
  void WaitForStart() {
    base::MutexLock lock(&mu_);
    while (began_ == SessionCall::kNever && !done_) changed_.Wait(&mu_);
  }
  // When it was told that it started.
  int64_t began() {
    base::MutexLock lock(&mu_);
    return began_;
  }
  void Wait() {
    base::MutexLock lock(&mu_);
    while (!done_) changed_.Wait(&mu_);
  }

 private:
  void End() {
    base::MutexLock lock(&mu_);
    done_ = true;
    changed_.SignalAll();
  }

  std::atomic<int64_t>* const ticks_;
  base::Mutex mu_;
  base::CondVar changed_;
  int64_t began_ ABSL_GUARDED_BY(mu_) = SessionCall::kNever;
  bool said_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
};

// An engine with its thread.
class Server {
 public:
  Server() {
    EXPECT_TRUE(tags_.AllocateArena(kPages).ok());
    kv::StoreOptions store;
    store.layers = backend_.options().layers;
    store.page_tokens = backend_.options().page_tokens;
    store.pages = kPages;
    store.page_bytes = 1;
    store.context_tokens = 512;
    store.max_versions = model_.max_versions;
    store.hooks = &tags_;
    store_ = kv::SessionStore::Create(store, &tags_, base::RealClock(), &observer_).value();
    engine::EngineOptions options = {
        .max_running = 4, .page_tokens = 4, .context_tokens = 512, .vocabulary_size = kVocabulary};
    engine_ = engine::Engine::Create(options, {&tags_, store_.get(), &TinyTokenizer(), &TinyChat(),
                                               base::RealClock(), &observer_})
                  .value();
    engine_->Start([] {}, [](const absl::Status& status) { ADD_FAILURE() << status; });
  }
  ~Server() {
    engine_.reset();
    for (const std::string& problem : tags_.problems()) ADD_FAILURE() << problem;
    for (const std::string& problem : backend_.problems()) ADD_FAILURE() << problem;
  }

  engine::Engine& engine() { return *engine_; }
  kv::SessionStore& store() { return *store_; }
  const SessionModelOptions& model() const { return model_; }

  std::shared_ptr<WaitingSink> Submit(const SessionCall& call, const std::string& id) {
    auto sink = std::make_shared<WaitingSink>(&ticks_);
    const absl::Status status = engine_->Submit(ToRequest(call, id), sink);
    EXPECT_TRUE(status.ok()) << status;
    return sink;
  }

 private:
  std::atomic<int64_t> ticks_ = 0;
  static constexpr int64_t kPages = 3 * 600;
  const SessionModelOptions model_ = {.vocabulary_size = kVocabulary};
  FakeBackend backend_{{.page_tokens = 4, .vocabulary_size = kVocabulary}};
  ShadowTags tags_{&backend_, 4, [this](base::PageId page) { backend_.Poison(page); }};
  CountingObserver observer_;
  std::unique_ptr<kv::SessionStore> store_;
  std::unique_ptr<engine::Engine> engine_;
};

// What all threads share.
class Clients {
 public:
  explicit Clients(Server* server) : server_(server) {}

  void Run(int thread, const ClientProgram& program) {
    int turns = 0;
    for (const ClientOp& op : program) {
      if (op.kind <= ClientOp::kRead) {
        Finish(Ask(MakeCall(op, Names())));
      } else if (op.kind <= ClientOp::kStream) {
        RunTurn(MakeCall(op, Names()), absl::StrCat(thread, "-", turns++), op.c);
      } else if (op.kind == ClientOp::kStop) {
        StopSomeone(op);
      }
    }
  }

  // Empty: what they saw has an order.
  std::string Check() {
    for (const std::string& name : Names()) {
      Finish(Ask({.kind = SessionCall::kGet, .session = name}));
      Finish(Ask({.kind = SessionCall::kRead, .session = name}));
    }
    base::MutexLock lock(&mu_);
    return CheckLinearizable(server_->model(), calls_);
  }
  size_t calls() {
    base::MutexLock lock(&mu_);
    return calls_.size();
  }

 private:
  struct Open {
    std::string id;
    std::vector<int32_t> keeps;
  };

  std::vector<std::string> Names() {
    std::vector<std::string> names = {"s0", "s1", "s2"};
    base::MutexLock lock(&mu_);
    for (const SessionCall& call : calls_) {
      if (!call.fork_name().empty()) names.push_back(call.fork_name());
    }
    return names;
  }

  void Finish(SessionCall call) {
    base::MutexLock lock(&mu_);
    calls_.push_back(std::move(call));
  }

  static void Note(const absl::StatusOr<kv::SessionInfo>& info, SessionCall* call) {
    call->status = info.status();
    if (!info.ok()) return;
    call->uid = info->uid;
    call->head = static_cast<int64_t>(info->head);
    call->total_tokens = info->tokens;
    call->active_turns = info->active_turns;
  }

  SessionCall Ask(SessionCall call) {
    kv::SessionStore& store = server_->store();
    call.invoked = ++ticks_;
    switch (call.kind) {
      case SessionCall::kCreate:
        Note(store.CreateSession("p", call.session, {}), &call);
        break;
      case SessionCall::kGet:
        Note(store.GetSession("p", call.session), &call);
        break;
      case SessionCall::kDelete:
        call.status =
            store.DeleteSession("p", call.session, call.expected_version, call.allow_missing);
        server_->engine().Wake();
        break;
      case SessionCall::kFork:
        Note(store.Fork("p", call.session, call.version, call.new_session, call.position), &call);
        break;
      case SessionCall::kRollback:
        Note(store.Rollback("p", call.session, *call.version, call.expected_version), &call);
        break;
      case SessionCall::kRead: {
        const auto slice = store.ReadTokens("p", call.session, call.version, {}, 100000);
        call.status = slice.status();
        if (!slice.ok()) break;
        call.tokens = slice->tokens;
        call.head = static_cast<int64_t>(slice->version);
        break;
      }
      case SessionCall::kTurn:
        break;
    }
    call.returned = ++ticks_;
    return call;
  }

  void RunTurn(SessionCall call, const std::string& id, int luck) {
    const auto open = std::make_shared<Open>(Open{.id = id});
    {
      base::MutexLock lock(&mu_);
      open_.push_back(open);
    }
    const auto sink = std::make_shared<WaitingSink>(&ticks_);
    call.invoked = ++ticks_;
    call.status = server_->engine().Submit(ToRequest(call, id), sink);
    if (call.status.ok()) {
      call.admitted = ++ticks_;
      // In its midst, or before.
      if (luck % 14 == 0) sink->WaitForTokens();
      if (luck % 7 == 0) server_->engine().Cancel(sink.get());
      sink->Wait();
      call.started = sink->started();
      call.began = sink->began();
      call.finished = sink->finished();
      call.tokens = sink->tokens();
      if (sink->failed().has_value()) call.status = *sink->failed();
      call.lost = absl::IsCancelled(call.status);
    }
    call.returned = ++ticks_;
    base::MutexLock lock(&mu_);
    std::erase(open_, open);
    call.keeps = open->keeps;
    calls_.push_back(std::move(call));
  }

  void StopSomeone(const ClientOp& op) {
    std::string id;
    std::optional<int32_t> keep;
    if (op.b % 3 != 0) keep = op.c % 4;
    {
      base::MutexLock lock(&mu_);
      if (open_.empty()) return;
      Open& open = *open_[static_cast<size_t>(op.a) % open_.size()];
      if (keep.has_value()) open.keeps.push_back(*keep);
      id = open.id;
    }
    server_->engine().Stop("p", id, keep, [](const absl::StatusOr<engine::Finished>&) {});
  }

  Server* const server_;
  std::atomic<int64_t> ticks_ = 0;
  base::Mutex mu_;
  std::vector<std::shared_ptr<Open>> open_ ABSL_GUARDED_BY(mu_);
  std::vector<SessionCall> calls_ ABSL_GUARDED_BY(mu_);
};

TEST(SessionThreadsTest, WhatEightClientsSeeHasAnOrder) {
  size_t calls = 0;
  for (uint32_t round = 0; round < 40; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    Server server;
    Clients clients(&server);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      const ClientProgram program =
          MakeClientProgram(round * kThreads + static_cast<uint32_t>(thread), 30);
      threads.emplace_back([&clients, thread, program] { clients.Run(thread, program); });
    }
    for (std::thread& thread : threads) thread.join();
    const std::string problem = clients.Check();
    ASSERT_TRUE(problem.empty()) << problem;
    calls += clients.calls();
  }
  EXPECT_GT(calls, 40 * kThreads * 8u);
}

SessionCall TurnOnA(int32_t token, int32_t max_output) {
  SessionCall call = {.kind = SessionCall::kTurn, .session = "a"};
  call.input = {token};
  call.max_output = max_output;
  // Or the session would outgrow the context.
  call.position = 0;
  return call;
}

std::string VersionOf(const RecordingSink& sink) {
  return sink.finished().has_value() ? sink.finished()->version : "";
}

// Two turns that began at version `head`; how many versions they made.
int64_t CheckPair(const RecordingSink& one, const RecordingSink& two, int64_t head, bool expected) {
  const auto name = [](int64_t number) { return absl::StrCat("sessions/a/versions/", number); };
  const bool first = VersionOf(one) == name(head + 1);
  const RecordingSink& winner = first ? one : two;
  const RecordingSink& other = first ? two : one;
  EXPECT_EQ(VersionOf(winner), name(head + 1));
  if (!expected) {
    EXPECT_EQ(VersionOf(other), name(head + 2));
    EXPECT_EQ(other.started()->base_version, name(head + 1));
    return 2;
  }
  EXPECT_TRUE(other.failed().has_value());
  const auto info = base::GetErrorInfo(other.failed().value_or(absl::OkStatus()));
  EXPECT_EQ(info.value_or(base::ErrorInfo{}).reason, ErrorReason::kVersionMismatch);
  EXPECT_THAT(info.value_or(base::ErrorInfo{}).metadata,
              ::testing::ElementsAre(::testing::Pair("current_version", absl::StrCat(head + 1))));
  return 1;
}

// Every second time both say which version they saw: one wins, the other is told.
// Else they follow one another.
TEST(SessionThreadsTest, OfTwoWritersOnOneVersionOneWinsOrBothFollow) {
  Server server;
  ASSERT_TRUE(server.store().CreateSession("p", "a", {}).ok());
  constexpr int kTimes = 1000;
  std::barrier<> together(2);
  std::array<std::shared_ptr<WaitingSink>, 2> sinks;
  int64_t head = 0;
  const auto write = [&](size_t which) {
    for (int i = 0; i < kTimes; ++i) {
      SessionCall call = TurnOnA(kFirstByte + static_cast<int32_t>(which), 2);
      together.arrive_and_wait();
      if (i % 2 == 0) call.expected_version = head;
      sinks[which] = server.Submit(call, absl::StrCat(which, "-", i));
      sinks[which]->Wait();
      together.arrive_and_wait();
      if (which == 0) head += CheckPair(*sinks[0], *sinks[1], head, i % 2 == 0);
    }
  };
  std::thread second(write, 1);
  write(0);
  second.join();
  EXPECT_EQ(head, kTimes / 2 * 3);
}

TEST(SessionThreadsTest, ASessionMadeAnewIsNotItsNamesakesTurns) {
  Server server;
  int deleted = 0;
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(server.store().CreateSession("p", "a", {}).ok());
    const auto sink = server.Submit(TurnOnA(kFirstByte, 12), absl::StrCat("old-", i));
    if (i % 4 != 0) sink->WaitForStart();
    const absl::Status gone = server.store().DeleteSession("p", "a", {}, false);
    ASSERT_TRUE(gone.ok()) << gone;
    const auto anew = server.store().CreateSession("p", "a", {});
    ASSERT_TRUE(anew.ok()) << anew.status();
    const auto next = server.Submit(TurnOnA(kFirstByte + 1, 3), absl::StrCat("new-", i));
    server.engine().Wake();
    sink->Wait();
    next->Wait();
    ASSERT_TRUE(next->finished().has_value()) << *next->failed();
    EXPECT_EQ(next->finished()->version, "sessions/a/versions/1");
    EXPECT_EQ(next->started()->base_version, "");
    const auto slice = server.store().ReadTokens("p", "a", {}, {}, 100);
    Tokens want = {kFirstByte + 1};
    for (const int32_t token : next->tokens()) want.push_back(token);
    EXPECT_EQ(slice->tokens, want);
    EXPECT_EQ(server.store().GetSession("p", "a")->uid, anew->uid);
    if (sink->failed().has_value()) {
      EXPECT_EQ(base::GetErrorReason(*sink->failed()), ErrorReason::kSessionDeleted);
      ++deleted;
    }
    ASSERT_TRUE(server.store().DeleteSession("p", "a", {}, false).ok());
  }
  EXPECT_GT(deleted, 50);
}

}  // namespace
}  // namespace tokend::testing
