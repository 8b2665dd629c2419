// How turns end early: cancelled, stopped, refused, failed.
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/test_server.h"

namespace tokend::testing {
namespace {

using ::testing::SizeIs;

// A stream that a test reads step by step.
struct OpenStream {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::StreamResponse>> reader;
  v1::StreamResponse response;

  OpenStream(v1::GenerationService::Stub& stub, const v1::Turn& turn) {
    v1::StreamRequest request;
    *request.mutable_turn() = turn;
    reader = stub.Stream(&context, request);
  }
  // Reads up to the first Delta.
  bool ReadDelta() {
    while (reader->Read(&response)) {
      if (response.has_delta()) return true;
    }
    return false;
  }
  RichStatus Finish() {
    while (reader->Read(&response)) {
    }
    return Rich(reader->Finish());
  }
};

v1::Turn LongTurn(const std::string& id) {
  v1::Turn turn = PromptTurn("long", 900);
  turn.set_request_id(id);
  return turn;
}

int64_t FreePages(TestServer& server) {
  const auto pages = server.engine().Snapshot().store.pages;
  return pages.free + pages.cached;
}

TEST(TurnEnd, ACancelledCallEndsItsTurn) {
  TestServer server;
  const int64_t free = FreePages(server);
  server.Hold();
  OpenStream stream(server.generation(), LongTurn("a"));
  stream.reader->WaitForInitialMetadata();
  stream.context.TryCancel();
  EXPECT_EQ(stream.Finish().code, grpc::StatusCode::CANCELLED);
  server.Release();
  server.WaitUntilIdle();
  EXPECT_EQ(FreePages(server), free);
  EXPECT_EQ(server.counts().ends.at("cancelled"), 1);
  EXPECT_THAT(server.counts().ends, SizeIs(1));
}

TEST(TurnEnd, ALostConnectionEndsItsTurn) {
  TestServer server;
  server.SetStepTime(absl::Milliseconds(1));
  {
    v1::StreamRequest request;
    *request.mutable_turn() = LongTurn("a");
    auto stub = v1::GenerationService::NewStub(server.Channel());
    grpc::ClientContext context;
    auto reader = stub->Stream(&context, request);
    v1::StreamResponse response;
    ASSERT_TRUE(reader->Read(&response));
    context.TryCancel();
    reader->Finish();
  }
  server.WaitUntilIdle();
  EXPECT_EQ(server.counts().ends.at("cancelled"), 1);
}

TEST(TurnEnd, PartialCommitKeepsWhatWasTaken) {
  TestServer server;
  server.SetStepTime(absl::Milliseconds(1));
  v1::Turn turn = LongTurn("a");
  turn.mutable_session()->set_name("sessions/s");
  turn.mutable_session()->set_allow_missing(true);
  turn.mutable_session()->set_commit(v1::COMMIT_MODE_PARTIAL);
  OpenStream stream(server.generation(), turn);
  ASSERT_TRUE(stream.ReadDelta());
  const int seen = stream.response.delta().token_ids_size();
  stream.context.TryCancel();
  EXPECT_EQ(stream.Finish().code, grpc::StatusCode::CANCELLED);
  server.WaitUntilIdle();
  v1::GetSessionRequest get;
  get.set_name("sessions/s");
  v1::GetSessionResponse session;
  grpc::ClientContext context;
  ASSERT_TRUE(server.sessions().GetSession(&context, get, &session).ok());
  EXPECT_EQ(session.session().version(), 1);
  EXPECT_GE(session.session().tokens(), 4 + seen);
  EXPECT_LT(session.session().tokens(), 4 + 900);
}

TEST(TurnEnd, TheCallsDeadlineEndsItsTurn) {
  TestServer server;
  server.Hold();
  v1::StreamRequest request;
  *request.mutable_turn() = LongTurn("a");
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  auto reader = server.generation().Stream(&context, request);
  v1::StreamResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server.Release();
  server.WaitUntilIdle();
  int ends = 0;
  for (const auto& [reason, count] : server.counts().ends) {
    EXPECT_TRUE(reason == "cancelled" || reason == "deadline_passed") << reason;
    ends += count;
  }
  EXPECT_EQ(ends, 1);
}

TEST(TurnEnd, StopGenerationInterrupts) {
  TestServer server;
  server.SetStepTime(absl::Milliseconds(1));
  v1::Turn turn = LongTurn("a");
  turn.mutable_session()->set_name("sessions/s");
  turn.mutable_session()->set_allow_missing(true);
  OpenStream stream(server.generation(), turn);
  ASSERT_TRUE(stream.ReadDelta());
  v1::StopGenerationRequest request;
  request.set_request_id("a");
  request.set_keep_output_tokens(1);
  v1::StopGenerationResponse response;
  grpc::ClientContext context;
  const grpc::Status stopped = server.generation().StopGeneration(&context, request, &response);
  ASSERT_TRUE(stopped.ok()) << stopped.error_message();
  v1::Finished finished;
  while (stream.reader->Read(&stream.response)) {
    if (stream.response.has_finished()) finished = stream.response.finished();
  }
  EXPECT_TRUE(stream.reader->Finish().ok());
  EXPECT_EQ(finished.reason(), v1::FINISH_REASON_INTERRUPTED);
  EXPECT_EQ(finished.version(), "sessions/s/versions/1");
  EXPECT_EQ(finished.SerializeAsString(), response.finished().SerializeAsString());
  // Again: how it ended.
  grpc::ClientContext again;
  ASSERT_TRUE(server.generation().StopGeneration(&again, request, &response).ok());
  EXPECT_EQ(response.finished().version(), "sessions/s/versions/1");
  v1::GetSessionRequest get;
  get.set_name("sessions/s");
  v1::GetSessionResponse session;
  grpc::ClientContext get_context;
  ASSERT_TRUE(server.sessions().GetSession(&get_context, get, &session).ok());
  EXPECT_EQ(session.session().tokens(), 4 + 1);
}

TEST(TurnEnd, StopGenerationOfAnUnknownTurn) {
  TestServer server;
  v1::StopGenerationRequest request;
  v1::StopGenerationResponse response;
  const auto stop = [&] {
    grpc::ClientContext context;
    return Rich(server.generation().StopGeneration(&context, request, &response));
  };
  request.set_request_id("nobody");
  EXPECT_EQ(stop().code, grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(stop().reason, "NO_SUCH_RESOURCE");
  request.set_request_id("no/body");
  EXPECT_EQ(stop().violations.count("request_id"), 1u);
  request.set_request_id("nobody");
  request.set_keep_output_tokens(-1);
  EXPECT_EQ(stop().violations.count("keep_output_tokens"), 1u);
}

TEST(TurnEnd, ARunningIdIsTaken) {
  TestServer server;
  server.Hold();
  OpenStream first(server.generation(), LongTurn("a"));
  first.reader->WaitForInitialMetadata();
  const RichStatus second = RunStream(server.generation(), LongTurn("a")).status;
  EXPECT_EQ(second.code, grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(second.reason, "REQUEST_ID_REUSED");
  EXPECT_EQ(second.domain, "tokend");
  // The refused call's end leaves the first alone.
  server.Release();
  EXPECT_EQ(first.Finish().code, grpc::StatusCode::OK);
  EXPECT_EQ(RunStream(server.generation(), LongTurn("a")).status.code, grpc::StatusCode::OK);
}

TEST(TurnEnd, AFullQueueSaysWhenToComeBack) {
  TestServerOptions options;
  options.engine.max_running = 1;
  options.engine.max_queued = 2;
  TestServer server(options);
  server.Hold();
  std::vector<std::unique_ptr<OpenStream>> streams;
  RichStatus refused;
  for (int i = 0; i < 10 && refused.code == grpc::StatusCode::OK; ++i) {
    auto stream = std::make_unique<OpenStream>(server.generation(), LongTurn(absl::StrCat("t", i)));
    stream->reader->WaitForInitialMetadata();
    if (stream->context.GetServerInitialMetadata().count("tokend-request-id") == 0) {
      refused = stream->Finish();
    } else {
      streams.push_back(std::move(stream));
    }
  }
  EXPECT_EQ(refused.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(refused.reason, "QUEUE_FULL");
  EXPECT_TRUE(refused.has_retry_info);
  EXPECT_GT(refused.retry_seconds, 0);
  for (auto& stream : streams) stream->context.TryCancel();
  server.Release();
  for (auto& stream : streams) EXPECT_EQ(stream->Finish().code, grpc::StatusCode::CANCELLED);
  server.WaitUntilIdle();
  EXPECT_EQ(server.counts().ends.at("queue_full"), 1);
}

TEST(TurnEnd, WhatDoesNotFitLeavesTheSessionAlone) {
  TestServer server;
  v1::Turn turn = PromptTurn(std::string(2000, 'x'), 4);
  const RichStatus status = RunStream(server.generation(), turn).status;
  EXPECT_EQ(status.code, grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(status.reason, "CONTEXT_FULL");
  EXPECT_EQ(status.metadata.at("context_length"), "1024");
  EXPECT_EQ(status.metadata.count("needed_tokens"), 1u);
}

TEST(TurnEnd, AnotherVersionThanExpected) {
  TestServer server;
  v1::Turn turn = PromptTurn("x", 2);
  turn.mutable_session()->set_name("sessions/a");
  turn.mutable_session()->set_allow_missing(true);
  ASSERT_EQ(RunStream(server.generation(), turn).status.code, grpc::StatusCode::OK);
  turn.mutable_session()->set_expected_version(7);
  const RichStatus status = RunStream(server.generation(), turn).status;
  EXPECT_EQ(status.code, grpc::StatusCode::ABORTED);
  EXPECT_EQ(status.reason, "VERSION_MISMATCH");
  EXPECT_EQ(status.metadata.at("current_version"), "1");
  turn.mutable_session()->clear_expected_version();
  turn.mutable_session()->set_from_position(100);
  const RichStatus position = RunStream(server.generation(), turn).status;
  EXPECT_EQ(position.code, grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(position.reason, "BAD_POSITION");
  EXPECT_EQ(position.metadata.at("tokens"), "3");
}

TEST(TurnEnd, ADeletedSessionEndsItsTurns) {
  TestServer server;
  v1::Turn turn = LongTurn("a");
  turn.mutable_session()->set_name("sessions/s");
  turn.mutable_session()->set_allow_missing(true);
  server.Hold();
  OpenStream stream(server.generation(), turn);
  stream.reader->WaitForInitialMetadata();
  v1::DeleteSessionRequest request;
  request.set_name("sessions/s");
  v1::DeleteSessionResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(server.sessions().DeleteSession(&context, request, &response).ok());
  server.Release();
  const RichStatus status = stream.Finish();
  EXPECT_EQ(status.code, grpc::StatusCode::ABORTED);
  EXPECT_EQ(status.reason, "SESSION_DELETED");
}

TEST(TurnEnd, ABiasThatForbidsEveryTokenIsTheCallersMistake) {
  TestServer server;
  v1::Turn turn = PromptTurn("x", 3);
  auto& bias = *turn.mutable_sampling()->mutable_logit_bias();
  for (int token = 0; token < kVocabulary; ++token) bias[token] = -100;
  const RichStatus status = RunStream(server.generation(), turn).status;
  EXPECT_EQ(status.code, grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.violations.count("turn.sampling.logit_bias"), 1u);
  bias.erase(7);
  EXPECT_EQ(RunStream(server.generation(), turn).tokens(), std::vector<int32_t>({7, 7, 7}));
}

TEST(TurnEnd, ABrokenBackendIsInternal) {
  TestServer server;
  server.BreakBackend();
  const RichStatus status = RunStream(server.generation(), PromptTurn("x", 4)).status;
  EXPECT_EQ(status.code, grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.reason, "BACKEND_FAILED");
}

TEST(TurnEnd, DrainingRefusesAndFinishes) {
  TestServer server;
  server.Hold();
  OpenStream running(server.generation(), PromptTurn("x", 20));
  server.WaitFor([&] { return server.engine().Snapshot().running == 1; });
  std::thread drain([&] { server.engine().Drain(absl::Seconds(10)); });
  RichStatus refused;
  server.WaitFor([&] {
    OpenStream stream(server.generation(), PromptTurn("y", 1));
    stream.reader->WaitForInitialMetadata();
    if (stream.context.GetServerInitialMetadata().count("tokend-request-id") != 0) {
      stream.context.TryCancel();
    }
    refused = stream.Finish();
    return refused.code == grpc::StatusCode::UNAVAILABLE;
  });
  EXPECT_EQ(refused.reason, "DRAINING");
  server.Release();
  EXPECT_EQ(running.Finish().code, grpc::StatusCode::OK);
  drain.join();
}

// Random cancels at random times: nothing is left over, every turn counted once.
TEST(TurnEnd, AStormOfCancelsLeavesNothing) {
  TestServer server;
  server.SetStepTime(absl::Microseconds(200));
  const int64_t free = FreePages(server);
  constexpr int kThreads = 8;
  constexpr int kCalls = 25;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        OpenStream stream(server.generation(), LongTurn(absl::StrCat("s", t, "-", i)));
        for (int reads = (t * 7 + i * 3) % 5; reads > 0; --reads) {
          if (!stream.reader->Read(&stream.response)) break;
        }
        stream.context.TryCancel();
        const grpc::StatusCode code = stream.Finish().code;
        EXPECT_EQ(code, grpc::StatusCode::CANCELLED);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  server.WaitUntilIdle();
  EXPECT_EQ(FreePages(server), free);
  int ends = 0;
  for (const auto& [reason, count] : server.counts().ends) ends += count;
  // A call that was cancelled before it reached the server is none.
  EXPECT_LE(ends, kThreads * kCalls);
  EXPECT_GE(ends, kThreads * kCalls / 2);
}

}  // namespace
}  // namespace tokend::testing
