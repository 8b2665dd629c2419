// SessionService: every RPC's success and errors.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/test_server.h"

namespace tokend::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Sessions : public ::testing::Test {
 protected:
  using Stub = v1::SessionService::Stub;

  RichStatus Create(const std::string& id, const v1::Session& session = {}) {
    v1::CreateSessionRequest request;
    request.set_session_id(id);
    *request.mutable_session() = session;
    return Call(server_.sessions(), &Stub::CreateSession, request, &created_);
  }
  RichStatus Get(const std::string& name) {
    v1::GetSessionRequest request;
    request.set_name(name);
    return Call(server_.sessions(), &Stub::GetSession, request, &got_);
  }
  // Adds `text`, a token a byte, and `output` tokens.
  void Turn(const std::string& name, const std::string& text, int output) {
    v1::Turn turn = PromptTurn(text, output);
    turn.mutable_session()->set_name(name);
    ASSERT_EQ(RunStream(server_.generation(), turn).status.code, grpc::StatusCode::OK);
  }

  TestServer server_;
  v1::CreateSessionResponse created_;
  v1::GetSessionResponse got_;
};

TEST_F(Sessions, CreateAndGet) {
  v1::Session session;
  session.mutable_retention()->mutable_sliding_window()->set_sink_tokens(4);
  session.mutable_retention()->mutable_sliding_window()->set_window_tokens(64);
  session.mutable_idle_ttl()->set_seconds(60);
  ASSERT_EQ(Create("a", session).code, grpc::StatusCode::OK);
  ASSERT_EQ(Get("sessions/a").code, grpc::StatusCode::OK);
  const v1::Session& got = got_.session();
  EXPECT_EQ(got.SerializeAsString(), created_.session().SerializeAsString());
  EXPECT_EQ(got.name(), "sessions/a");
  EXPECT_FALSE(got.uid().empty());
  EXPECT_EQ(got.retention().sliding_window().window_tokens(), 64);
  EXPECT_EQ(got.idle_ttl().seconds(), 60);
  EXPECT_EQ(got.history_tokens(), 0);
  EXPECT_EQ(got.version(), 0);
  EXPECT_GT(got.create_time().seconds(), 1600000000);

  const RichStatus again = Create("a");
  EXPECT_EQ(again.code, grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(again.reason, "SESSION_EXISTS");
  ASSERT_EQ(Create("").code, grpc::StatusCode::OK);
  EXPECT_THAT(created_.session().name(), HasSubstr("sessions/"));
  EXPECT_TRUE(created_.session().retention().has_full());
  const RichStatus missing = Get("sessions/none");
  EXPECT_EQ(missing.code, grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(missing.reason, "NO_SUCH_RESOURCE");
  EXPECT_FALSE(missing.resource_name.empty());
}

TEST_F(Sessions, CreateChecksEveryField) {
  const auto expect_bad = [&](const v1::Session& session, const std::string& field) {
    const RichStatus status = Create("x", session);
    EXPECT_EQ(status.code, grpc::StatusCode::INVALID_ARGUMENT) << session.ShortDebugString();
    EXPECT_EQ(status.reason, "INVALID_FIELD");
    EXPECT_EQ(status.violations.count(field), 1u) << session.ShortDebugString();
  };
  const auto windowed = [](int32_t sinks, int32_t window) {
    v1::Session session;
    session.mutable_retention()->mutable_sliding_window()->set_sink_tokens(sinks);
    session.mutable_retention()->mutable_sliding_window()->set_window_tokens(window);
    return session;
  };
  const std::string window = "session.retention.sliding_window.window_tokens";
  const std::string sinks = "session.retention.sliding_window.sink_tokens";
  expect_bad(windowed(0, 0), window);
  expect_bad(windowed(0, -1), window);
  expect_bad(windowed(0, 1025), window);
  expect_bad(windowed(4, 1021), window);
  expect_bad(windowed(0, INT32_MAX), window);
  expect_bad(windowed(-1, 4), sinks);
  expect_bad(windowed(1024, 1), sinks);
  expect_bad(windowed(INT32_MAX, 1), sinks);
  v1::Session session;
  session.mutable_retention();
  expect_bad(session, "session.retention");
  for (const int64_t seconds : {int64_t{0}, int64_t{-5}, INT64_MAX, INT64_MIN}) {
    session = {};
    session.mutable_idle_ttl()->set_seconds(seconds);
    expect_bad(session, "session.idle_ttl");
  }
  for (const int32_t nanos : {-1, 1000000000, INT32_MAX, INT32_MIN}) {
    session = {};
    session.mutable_idle_ttl()->set_seconds(5);
    session.mutable_idle_ttl()->set_nanos(nanos);
    expect_bad(session, "session.idle_ttl");
  }
  session = windowed(0, 8);
  session.set_history_tokens(-1);
  expect_bad(session, "session.history_tokens");
  session = {};
  session.set_history_tokens(5);
  expect_bad(session, "session.history_tokens");
  session.mutable_retention()->mutable_layered()->set_full_layers(1);
  session.mutable_retention()->mutable_layered()->mutable_window()->set_window_tokens(9);
  expect_bad(session, "session.history_tokens");
  session = {};
  session.set_version(1);
  expect_bad(session, "session.version");
  session = {};
  session.set_name("sessions/x");
  expect_bad(session, "session.name");
  session = {};
  session.mutable_create_time();
  expect_bad(session, "session.create_time");
  for (const std::string& id : {std::string("a b"), std::string("-a"), std::string(64, 'a')}) {
    EXPECT_EQ(Create(id).violations.count("session_id"), 1u);
  }
  session = {};
  session.mutable_retention()->mutable_layered()->set_full_layers(1);
  expect_bad(session, "session.retention.layered.window.window_tokens");
  session.mutable_retention()->mutable_layered()->mutable_window()->set_window_tokens(9);
  for (const int layers : {-1, 0, 3}) {
    session.mutable_retention()->mutable_layered()->set_full_layers(layers);
    expect_bad(session, "session.retention.layered.full_layers");
  }
  v1::HeavyHitters* heavy = session.mutable_retention()->mutable_heavy_hitters();
  expect_bad(session, "session.retention.heavy_hitters.window_tokens");
  heavy->set_window_tokens(9);
  heavy->set_kept_pages(-1);
  expect_bad(session, "session.retention.heavy_hitters.kept_pages");
  heavy->set_kept_pages(2);
  for (const int epoch : {-16, 17}) {
    heavy->set_epoch_tokens(epoch);
    expect_bad(session, "session.retention.heavy_hitters.epoch_tokens");
  }
  EXPECT_EQ(Get("sessions/x").code, grpc::StatusCode::NOT_FOUND);
}

TEST_F(Sessions, LayeredRetentionIsToldAsItWasGiven) {
  v1::Session session;
  v1::LayeredWindow* layered = session.mutable_retention()->mutable_layered();
  layered->set_full_layers(2);
  layered->mutable_window()->set_window_tokens(9);
  layered->mutable_window()->set_sink_tokens(4);
  ASSERT_EQ(Create("x", session).code, grpc::StatusCode::OK);
  EXPECT_EQ(created_.session().retention().DebugString(), session.retention().DebugString());
}

TEST_F(Sessions, TokensBeforeTheFirstPositionAreNotKept) {
  v1::Session session;
  session.mutable_retention()->mutable_sliding_window()->set_window_tokens(32);
  session.set_history_tokens(100);
  ASSERT_EQ(Create("a", session).code, grpc::StatusCode::OK);
  EXPECT_EQ(created_.session().history_tokens(), 100);
  for (int turn = 0; turn < 40; ++turn) Turn("sessions/a", std::string(500, 'a'), 0);
  ASSERT_EQ(Get("sessions/a").code, grpc::StatusCode::OK);
  const int64_t first = got_.session().first_position();
  EXPECT_EQ(got_.session().tokens(), 20000);
  EXPECT_GT(first, 2000);
  EXPECT_LE(first, 19900);

  const auto expect_gone = [&](const RichStatus& status) {
    EXPECT_EQ(status.code, grpc::StatusCode::OUT_OF_RANGE);
    EXPECT_EQ(status.reason, "BAD_POSITION");
    EXPECT_EQ(status.metadata.at("first_position"), absl::StrCat(first));
    EXPECT_THAT(status.message, HasSubstr("no longer keeps"));
  };
  v1::Turn edit = PromptTurn("b", 3);
  edit.mutable_session()->set_name("sessions/a");
  edit.mutable_session()->set_from_position(first - 1);
  expect_gone(RunStream(server_.generation(), edit).status);
  v1::ForkSessionRequest fork;
  v1::ForkSessionResponse forked;
  fork.set_source("sessions/a");
  fork.set_end_position(first - 1);
  expect_gone(Call(server_.sessions(), &Stub::ForkSession, fork, &forked));
  v1::ReadTokensRequest read;
  v1::ReadTokensResponse tokens;
  read.set_name("sessions/a");
  read.set_start_position(0);
  expect_gone(Call(server_.sessions(), &Stub::ReadTokens, read, &tokens));

  read.clear_start_position();
  read.set_page_size(65536);
  ASSERT_EQ(Call(server_.sessions(), &Stub::ReadTokens, read, &tokens).code, grpc::StatusCode::OK);
  EXPECT_EQ(tokens.start_position(), first);
  EXPECT_EQ(tokens.token_ids_size(), 20000 - first);
  edit.mutable_session()->set_from_position(first);
  EXPECT_EQ(RunStream(server_.generation(), edit).status.code, grpc::StatusCode::OK);
  ASSERT_EQ(Get("sessions/a").code, grpc::StatusCode::OK);
  EXPECT_EQ(got_.session().tokens(), first + 4);
}

TEST_F(Sessions, HeavyHittersAreToldAsTheyWereGiven) {
  v1::Session session;
  v1::HeavyHitters* heavy = session.mutable_retention()->mutable_heavy_hitters();
  heavy->set_sink_tokens(4);
  heavy->set_window_tokens(60);
  heavy->set_kept_pages(3);
  ASSERT_EQ(Create("x", session).code, grpc::StatusCode::OK);
  heavy->set_epoch_tokens(256);  // the default
  EXPECT_EQ(created_.session().retention().DebugString(), session.retention().DebugString());
}

TEST_F(Sessions, ALimitOfSessions) {
  for (int i = 0; i < 16; ++i) ASSERT_EQ(Create(absl::StrCat("s", i)).code, grpc::StatusCode::OK);
  const RichStatus status = Create("one-more");
  EXPECT_EQ(status.code, grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.reason, "SESSION_LIMIT");
}

TEST_F(Sessions, ListInPages) {
  for (const char* id : {"c", "a", "e", "b", "d"}) Create(id);
  std::vector<std::string> names;
  v1::ListSessionsRequest request;
  request.set_page_size(2);
  v1::ListSessionsResponse response;
  int pages = 0;
  do {
    ASSERT_EQ(Call(server_.sessions(), &Stub::ListSessions, request, &response).code,
              grpc::StatusCode::OK);
    EXPECT_LE(response.sessions_size(), 2);
    for (const auto& session : response.sessions()) names.push_back(session.name());
    request.set_page_token(response.next_page_token());
    ++pages;
  } while (!response.next_page_token().empty());
  EXPECT_EQ(pages, 3);
  EXPECT_THAT(names,
              ElementsAre("sessions/a", "sessions/b", "sessions/c", "sessions/d", "sessions/e"));
  request.set_page_token("nonsense");
  EXPECT_EQ(Call(server_.sessions(), &Stub::ListSessions, request, &response)
                .violations.count("page_token"),
            1u);
  for (const int32_t size : {-1, 1001, INT32_MAX, INT32_MIN}) {
    request.set_page_size(size);
    request.clear_page_token();
    EXPECT_EQ(Call(server_.sessions(), &Stub::ListSessions, request, &response)
                  .violations.count("page_size"),
              1u);
  }
}

TEST_F(Sessions, Delete) {
  Create("a");
  v1::DeleteSessionRequest request;
  v1::DeleteSessionResponse response;
  const auto erase = [&] {
    return Call(server_.sessions(), &Stub::DeleteSession, request, &response);
  };
  request.set_name("sessions/a");
  request.set_expected_version(3);
  EXPECT_EQ(erase().reason, "VERSION_MISMATCH");
  request.set_expected_version(-1);
  EXPECT_EQ(erase().violations.count("expected_version"), 1u);
  request.set_expected_version(0);
  EXPECT_EQ(erase().code, grpc::StatusCode::OK);
  request.clear_expected_version();
  EXPECT_EQ(erase().code, grpc::StatusCode::NOT_FOUND);
  request.set_allow_missing(true);
  EXPECT_EQ(erase().code, grpc::StatusCode::OK);
  request.set_name("sessions/a/versions/1");
  EXPECT_EQ(erase().violations.count("name"), 1u);
}

TEST_F(Sessions, ForkRollbackListAndRead) {
  Create("a");
  Turn("sessions/a", "one", 3);  // 6 tokens
  Turn("sessions/a", "two", 2);  // 11
  v1::ForkSessionRequest fork;
  v1::ForkSessionResponse forked;
  fork.set_source("sessions/a/versions/1");
  fork.set_session_id("b");
  fork.set_end_position(5);
  ASSERT_EQ(Call(server_.sessions(), &Stub::ForkSession, fork, &forked).code, grpc::StatusCode::OK);
  EXPECT_EQ(forked.session().tokens(), 5);
  EXPECT_EQ(forked.session().version(), 1);
  EXPECT_EQ(forked.session().forked_from(), "sessions/a/versions/1");
  EXPECT_EQ(Call(server_.sessions(), &Stub::ForkSession, fork, &forked).reason, "SESSION_EXISTS");
  fork.set_session_id("c");
  fork.set_end_position(100);
  EXPECT_EQ(Call(server_.sessions(), &Stub::ForkSession, fork, &forked).code,
            grpc::StatusCode::OUT_OF_RANGE);
  fork.set_end_position(-1);
  EXPECT_EQ(
      Call(server_.sessions(), &Stub::ForkSession, fork, &forked).violations.count("end_position"),
      1u);
  fork.clear_end_position();
  fork.set_source("sessions/none");
  EXPECT_EQ(Call(server_.sessions(), &Stub::ForkSession, fork, &forked).code,
            grpc::StatusCode::NOT_FOUND);
  fork.set_source("nowhere");
  EXPECT_EQ(Call(server_.sessions(), &Stub::ForkSession, fork, &forked).violations.count("source"),
            1u);

  v1::RollbackSessionRequest rollback;
  v1::RollbackSessionResponse rolled;
  const auto roll = [&] {
    return Call(server_.sessions(), &Stub::RollbackSession, rollback, &rolled);
  };
  rollback.set_version("sessions/a/versions/1");
  rollback.set_expected_version(1);
  EXPECT_EQ(roll().metadata.at("current_version"), "2");
  rollback.set_expected_version(2);
  ASSERT_EQ(roll().code, grpc::StatusCode::OK);
  EXPECT_EQ(rolled.session().version(), 3);
  EXPECT_EQ(rolled.session().tokens(), 6);
  rollback.clear_expected_version();
  rollback.set_version("sessions/a/versions/9");
  EXPECT_EQ(roll().code, grpc::StatusCode::NOT_FOUND);
  rollback.set_version("sessions/a");
  EXPECT_EQ(roll().violations.count("version"), 1u);

  v1::ListVersionsRequest list;
  v1::ListVersionsResponse versions;
  list.set_parent("sessions/a");
  list.set_page_size(2);
  ASSERT_EQ(Call(server_.sessions(), &Stub::ListVersions, list, &versions).code,
            grpc::StatusCode::OK);
  ASSERT_EQ(versions.versions_size(), 2);
  EXPECT_EQ(versions.versions(0).name(), "sessions/a/versions/3");
  EXPECT_EQ(versions.versions(0).reason(), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(versions.versions(1).reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(versions.versions(1).parent(), "sessions/a/versions/1");
  list.set_page_token(versions.next_page_token());
  ASSERT_EQ(Call(server_.sessions(), &Stub::ListVersions, list, &versions).code,
            grpc::StatusCode::OK);
  ASSERT_EQ(versions.versions_size(), 1);
  EXPECT_EQ(versions.versions(0).number(), 1);
  EXPECT_EQ(versions.next_page_token(), "");
  list.set_page_token("x");
  EXPECT_EQ(
      Call(server_.sessions(), &Stub::ListVersions, list, &versions).violations.count("page_token"),
      1u);

  v1::ReadTokensRequest read;
  v1::ReadTokensResponse tokens;
  const auto read_tokens = [&] {
    return Call(server_.sessions(), &Stub::ReadTokens, read, &tokens);
  };
  read.set_name("sessions/a/versions/2");
  read.set_start_position(0);
  read.set_page_size(3);
  ASSERT_EQ(read_tokens().code, grpc::StatusCode::OK);
  EXPECT_EQ(tokens.raw(), "one");
  EXPECT_EQ(tokens.start_position(), 0);
  EXPECT_EQ(tokens.tokens(), 11);
  EXPECT_EQ(tokens.version(), "sessions/a/versions/2");
  read.set_start_position(-1);
  read.set_page_size(65537);
  EXPECT_EQ(read_tokens().violations.size(), 2u);
  read.set_start_position(1000);
  read.set_page_size(1);
  EXPECT_EQ(read_tokens().code, grpc::StatusCode::OUT_OF_RANGE);
  read.set_name("sessions/none");
  EXPECT_EQ(read_tokens().code, grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace tokend::testing
