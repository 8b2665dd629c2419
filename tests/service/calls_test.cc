// Model, admin, unknown fields and features: every RPC's success and errors.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/test_server.h"

namespace tokend::testing {
namespace {

using ::testing::ElementsAre;

TEST(Model, TokenizeAndDetokenize) {
  TestServer server;
  using Stub = v1::ModelService::Stub;
  v1::TokenizeRequest tokenize;
  v1::TokenizeResponse tokens;
  tokenize.set_text("hi<|im_end|>");
  ASSERT_EQ(Call(server.models(), &Stub::Tokenize, tokenize, &tokens).code, grpc::StatusCode::OK);
  EXPECT_THAT(tokens.token_ids(), ElementsAre(kFirstByte + 'h', kFirstByte + 'i', kImEnd));
  tokenize.set_add_special(false);
  tokenize.set_parse_special(false);
  tokenize.set_raw("\xff");
  ASSERT_EQ(Call(server.models(), &Stub::Tokenize, tokenize, &tokens).code, grpc::StatusCode::OK);
  EXPECT_THAT(tokens.token_ids(), ElementsAre(kFirstByte + 0xff));
  EXPECT_EQ(Call(server.models(), &Stub::Tokenize, {}, &tokens).reason, "INVALID_FIELD");
  tokenize.set_raw(std::string((1 << 20) + 1, 'a'));
  EXPECT_EQ(Call(server.models(), &Stub::Tokenize, tokenize, &tokens).violations.count("raw"), 1u);

  v1::DetokenizeRequest detokenize;
  v1::DetokenizeResponse text;
  for (const int32_t id : {kImEnd, kFirstByte + 0xff, kFirstByte + 'a'}) {
    detokenize.add_token_ids(id);
  }
  ASSERT_EQ(Call(server.models(), &Stub::Detokenize, detokenize, &text).code, grpc::StatusCode::OK);
  EXPECT_EQ(text.raw(),
            "<|im_end|>\xff"
            "a");
  EXPECT_EQ(text.text(),
            "<|im_end|>\xef\xbf\xbd"
            "a");
  detokenize.set_skip_special(true);
  Call(server.models(), &Stub::Detokenize, detokenize, &text);
  EXPECT_EQ(text.raw(),
            "\xff"
            "a");
  for (const int32_t id : {-1, kVocabulary, INT32_MAX, INT32_MIN}) {
    detokenize.add_token_ids(id);
    EXPECT_EQ(Call(server.models(), &Stub::Detokenize, detokenize, &text)
                  .violations.count("token_ids[3]"),
              1u);
    detokenize.mutable_token_ids()->RemoveLast();
  }
}

TEST(Model, AnswersWhileLoading) {
  TestServerOptions options;
  options.loaded = false;
  TestServer server(options);
  v1::GetModelResponse model;
  ASSERT_EQ(Call(server.models(), &v1::ModelService::Stub::GetModel, {}, &model).code,
            grpc::StatusCode::OK);
  EXPECT_EQ(model.model().name(), "models/tiny");
  EXPECT_FALSE(model.ready());
  v1::GetModelRequest other;
  other.set_name("models/other");
  const RichStatus missing =
      Call(server.models(), &v1::ModelService::Stub::GetModel, other, &model);
  EXPECT_EQ(missing.code, grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(missing.resource_name, "models/other");
  // All else says to come back.
  const RichStatus turn = RunStream(server.generation(), PromptTurn("x", 1)).status;
  EXPECT_EQ(turn.code, grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(turn.reason, "MODEL_LOADING");
  EXPECT_TRUE(turn.has_retry_info);
  v1::TokenizeResponse tokens;
  EXPECT_EQ(Call(server.models(), &v1::ModelService::Stub::Tokenize, {}, &tokens).reason,
            "MODEL_LOADING");
  v1::GetStatsResponse stats;
  EXPECT_EQ(Call(server.admin(), &v1::AdminService::Stub::GetStats, {}, &stats).reason,
            "MODEL_LOADING");
  EXPECT_EQ(server.counts().ends.at("model_loading"), 1);
}

TEST(Admin, GetStatsIsOneSnapshot) {
  TestServer server;
  ASSERT_EQ(RunStream(server.generation(), PromptTurn("x", 5)).status.code, grpc::StatusCode::OK);
  v1::GetStatsResponse stats;
  ASSERT_EQ(Call(server.admin(), &v1::AdminService::Stub::GetStats, {}, &stats).code,
            grpc::StatusCode::OK);
  const v1::PageCounts& pages = stats.pages();
  EXPECT_EQ(pages.total(), 3 * 512);
  EXPECT_EQ(pages.free() + pages.cached() + pages.private_pages() + pages.shared() +
                pages.pinned() + pages.quarantined(),
            pages.total());
  EXPECT_EQ(stats.server_version(), "0.0.0 (test, fake)");
  EXPECT_GT(stats.kv_bytes_total(), 0);
  EXPECT_GT(stats.decode_tokens_per_second(), 0);
}

// --- Unknown fields. ---

TEST(UnknownFields, AreRefusedAtAnyDepth) {
  TestServer server;
  struct Case {
    std::string message;
    std::string path;
    std::function<google::protobuf::Message*(v1::Turn*)> at;
  };
  const std::vector<Case> cases = {
      {"tokend.v1.Turn", "turn", [](v1::Turn* turn) { return turn; }},
      {"tokend.v1.Sampling", "turn.sampling",
       [](v1::Turn* turn) { return turn->mutable_sampling(); }},
      {"tokend.v1.StopRules", "turn.stop", [](v1::Turn* turn) { return turn->mutable_stop(); }},
      {"tokend.v1.SessionTarget", "turn.session",
       [](v1::Turn* turn) { return turn->mutable_session(); }},
      {"tokend.v1.Part", "turn.chat.messages[1].parts[0]",
       [](v1::Turn* turn) {
         turn->mutable_chat()->add_messages();
         return turn->mutable_chat()->add_messages()->add_parts();
       }},
  };
  for (const Case& test : cases) {
    v1::Turn turn = PromptTurn("x", 1);
    auto* message = test.at(&turn);
    message->GetReflection()->MutableUnknownFields(message)->AddVarint(4711, 1);
    const RichStatus status = RunStream(server.generation(), turn).status;
    EXPECT_EQ(status.code, grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(status.reason, "UNKNOWN_FIELD");
    EXPECT_EQ(status.metadata.at("message"), test.message);
    EXPECT_EQ(status.metadata.at("field_number"), "4711");
    EXPECT_EQ(status.violations.count(test.path), 1u) << test.path;
  }
  v1::GetSessionRequest get;
  get.set_name("sessions/a");
  get.GetReflection()->MutableUnknownFields(&get)->AddVarint(99, 1);
  v1::GetSessionResponse response;
  EXPECT_EQ(Call(server.sessions(), &v1::SessionService::Stub::GetSession, get, &response).reason,
            "UNKNOWN_FIELD");
}

TEST(Stream, NeedsATurnAndHasNoResume) {
  TestServer server;
  const auto run = [&](const v1::StreamRequest& request) {
    grpc::ClientContext context;
    return Rich(server.generation().Stream(&context, request)->Finish());
  };
  v1::StreamRequest request;
  EXPECT_EQ(run(request).violations.count("turn"), 1u);
  request.mutable_resume()->set_request_id("a");
  const RichStatus status = run(request);
  EXPECT_EQ(status.code, grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.reason, "FEATURE_UNAVAILABLE");
  EXPECT_EQ(status.metadata.at("feature"), "resume");
  v1::GenerateResponse response;
  EXPECT_EQ(Call(server.generation(), &v1::GenerationService::Stub::Generate, {}, &response)
                .violations.count("turn"),
            1u);
}

}  // namespace
}  // namespace tokend::testing
