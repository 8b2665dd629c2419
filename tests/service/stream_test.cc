// Generate and Stream: what a turn returns.
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/test_server.h"

namespace tokend::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Stream, IsOneStartedDeltasOneFinished) {
  TestServer server;
  v1::Turn turn = PromptTurn("abcde", 20);
  turn.set_request_id("turn-1");
  const StreamResult result = RunStream(server.generation(), turn);
  EXPECT_EQ(result.status.code, grpc::StatusCode::OK) << result.status.message;
  ASSERT_THAT(result.started, SizeIs(1));
  EXPECT_EQ(result.started[0].request_id(), "turn-1");
  EXPECT_EQ(result.started[0].boot_id(), server.env().boot_id());
  EXPECT_EQ(result.started[0].output_position(), 5);  // a token a byte
  EXPECT_THAT(result.tokens(), SizeIs(20));
  ASSERT_THAT(result.finished, SizeIs(1));
  EXPECT_EQ(result.finished[0].reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(result.finished[0].usage().output_tokens(), 20);
  EXPECT_EQ(result.finished[0].usage().input_tokens(), 5);
  EXPECT_EQ(result.finished[0].version(), "");
  EXPECT_EQ(result.initial_metadata.at("tokend-request-id"), "turn-1");
  EXPECT_EQ(server.counts().ends.at("length"), 1);
}

TEST(Stream, EqualsGenerate) {
  TestServer server;
  for (const int tokens : {1, 7, 100}) {
    v1::Turn turn = PromptTurn("abc", tokens);
    turn.mutable_sampling()->set_temperature(1);
    turn.mutable_sampling()->set_seed(tokens);
    turn.mutable_output()->set_top_logprobs(2);
    const StreamResult stream = RunStream(server.generation(), turn);
    v1::GenerateRequest request;
    *request.mutable_turn() = turn;
    v1::GenerateResponse response;
    grpc::ClientContext context;
    ASSERT_TRUE(server.generation().Generate(&context, request, &response).ok());
    EXPECT_EQ(response.text(), stream.text());
    EXPECT_THAT(response.token_ids(), ElementsAreArray(stream.tokens()));
    ASSERT_EQ(response.logprobs_size(), tokens);
    int at = 0;
    for (const v1::Delta& delta : stream.deltas) {
      ASSERT_EQ(delta.logprobs_size(), delta.token_ids_size());
      for (const v1::TokenLogprob& logprob : delta.logprobs()) {
        EXPECT_EQ(logprob.SerializeAsString(), response.logprobs(at++).SerializeAsString());
        EXPECT_EQ(logprob.top_size(), 2);
      }
    }
    EXPECT_EQ(response.finished().reason(), v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(response.started().seed(), tokens);
    EXPECT_EQ(context.GetServerInitialMetadata().count("tokend-request-id"), 1u);
  }
}

TEST(Stream, RawHoldsTheExactBytes) {
  TestServer server;
  // Byte 0xff, which no UTF-8 text holds, then "a".
  v1::Turn turn = PromptTurn("x", 2);
  server.backend().on_logits = [](int64_t position, uint64_t, absl::Span<float> logits) {
    logits[kFirstByte + (position % 2 == 0 ? 0xff : 'a')] = 100;
  };
  const StreamResult result = RunStream(server.generation(), turn);
  std::string raw;
  for (const v1::Delta& delta : result.deltas) {
    raw += delta.raw().empty() ? delta.text() : delta.raw();
  }
  EXPECT_EQ(raw,
            "\xff"
            "a");
  EXPECT_EQ(result.text(),
            "\xef\xbf\xbd"
            "a");
  turn.mutable_prompt()->set_text("xy");  // now "a" comes first
  turn.mutable_stop()->set_max_output_tokens(1);
  turn.mutable_output()->set_always_raw(true);
  const StreamResult always = RunStream(server.generation(), turn);
  ASSERT_THAT(always.deltas, SizeIs(1));
  EXPECT_EQ(always.deltas[0].raw(), "a");
}

TEST(Stream, ContinuesASession) {
  TestServer server;
  v1::Turn turn = PromptTurn("one", 4);
  turn.mutable_session()->set_name("sessions/a");
  EXPECT_EQ(RunStream(server.generation(), turn).status.reason, "NO_SUCH_RESOURCE");
  turn.mutable_session()->set_allow_missing(true);
  const StreamResult first = RunStream(server.generation(), turn);
  ASSERT_THAT(first.finished, SizeIs(1)) << first.status.message;
  EXPECT_EQ(first.finished[0].version(), "sessions/a/versions/1");
  EXPECT_EQ(first.started[0].base_version(), "");
  const StreamResult second = RunStream(server.generation(), turn);
  EXPECT_EQ(second.started.at(0).base_version(), "sessions/a/versions/1");
  EXPECT_EQ(second.finished.at(0).version(), "sessions/a/versions/2");
  EXPECT_EQ(second.finished.at(0).usage().base_tokens(), 7);
  v1::ReadTokensRequest read;
  read.set_name("sessions/a");
  v1::ReadTokensResponse tokens;
  grpc::ClientContext context;
  ASSERT_TRUE(server.sessions().ReadTokens(&context, read, &tokens).ok());
  EXPECT_EQ(tokens.version(), "sessions/a/versions/2");
  EXPECT_EQ(tokens.tokens(), 14);
  EXPECT_EQ(tokens.token_ids_size(), 14);
}

TEST(Stream, AllowMissingMakesTheServersDefaultSession) {
  TestServerOptions options;
  options.default_retention = {kv::RetentionPolicy::Kind::kSlidingWindow, 4, 64};
  TestServer server(options);
  v1::Turn turn = PromptTurn("one", 4);
  turn.mutable_session()->set_name("sessions/a");
  turn.mutable_session()->set_allow_missing(true);
  ASSERT_EQ(RunStream(server.generation(), turn).status.code, grpc::StatusCode::OK);
  v1::GetSessionRequest get;
  get.set_name("sessions/a");
  v1::GetSessionResponse session;
  grpc::ClientContext context;
  ASSERT_TRUE(server.sessions().GetSession(&context, get, &session).ok());
  EXPECT_EQ(session.session().retention().sliding_window().window_tokens(), 64);
}

TEST(Stream, ChatWithoutATemplateIsRefused) {
  TestServerOptions options;
  options.chat = false;
  TestServer server(options);
  v1::Turn turn = PromptTurn("", 4);
  auto* message = turn.mutable_chat()->add_messages();
  message->set_role(v1::ROLE_USER);
  message->add_parts()->set_text("hi");
  const RichStatus status = RunStream(server.generation(), turn).status;
  EXPECT_EQ(status.code, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.reason, "FEATURE_UNAVAILABLE");
  EXPECT_EQ(status.metadata.at("feature"), "chat");
}

TEST(Stream, StopStringIsNamed) {
  TestServer server;
  server.backend().on_logits = [](int64_t position, uint64_t, absl::Span<float> logits) {
    logits[kFirstByte + 'a' + position % 26] = 100;
  };
  v1::Turn turn = PromptTurn("x", 100);
  turn.mutable_stop()->add_stop_strings("klm");
  const StreamResult result = RunStream(server.generation(), turn);
  ASSERT_THAT(result.finished, SizeIs(1));
  EXPECT_EQ(result.finished[0].reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(result.finished[0].stop_string(), "klm");
  EXPECT_EQ(result.text(), "abcdefghij");
}

// Many at once: each gets its own tokens, the same as alone.
TEST(Stream, ManyAtOnceEqualAlone) {
  TestServer server;
  std::vector<StreamResult> alone;
  constexpr int kCalls = 12;
  for (int i = 0; i < kCalls; ++i) {
    alone.push_back(RunStream(server.generation(), PromptTurn(absl::StrCat("p", i), 30)));
  }
  std::vector<StreamResult> together(kCalls);
  std::vector<std::thread> threads;
  for (int i = 0; i < kCalls; ++i) {
    threads.emplace_back([&, i] {
      together[i] = RunStream(server.generation(), PromptTurn(absl::StrCat("p", i), 30));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_EQ(together[i].status.code, grpc::StatusCode::OK) << together[i].status.message;
    EXPECT_EQ(together[i].tokens(), alone[i].tokens());
  }
  server.WaitUntilIdle();
  EXPECT_EQ(server.counts().ends.at("length"), 2 * kCalls);
}

}  // namespace
}  // namespace tokend::testing
