#include "service/status.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/engine/errors.h"
#include "core/kv/errors.h"
#include "core/tokenizer/utf8.h"
#include "gtest/gtest.h"
#include "service/errors.h"
#include "tests/service/test_server.h"

namespace tokend::service {
namespace {

using base::ErrorReason;
using testing::Rich;
using testing::RichStatus;

TEST(Status, NamesReasonAndMetadata) {
  const RichStatus rich = Rich(ToGrpcStatus(
      base::MakeError(absl::StatusCode::kAborted, "changed",
                      {ErrorReason::kVersionMismatch, {{"current_version", "7"}}, {}})));
  EXPECT_EQ(rich.code, grpc::StatusCode::ABORTED);
  EXPECT_EQ(rich.message, "changed");
  EXPECT_EQ(rich.domain, "tokend");
  EXPECT_EQ(rich.reason, "VERSION_MISMATCH");
  EXPECT_EQ(rich.metadata.at("current_version"), "7");
  EXPECT_FALSE(rich.has_retry_info);
}

TEST(Status, RetryInfoIsNeverZero) {
  const auto retry = [](absl::Duration delay) {
    return Rich(ToGrpcStatus(base::MakeError(absl::StatusCode::kResourceExhausted, "full",
                                             {ErrorReason::kQueueFull, {}, delay})))
        .retry_seconds;
  };
  EXPECT_DOUBLE_EQ(retry(absl::Milliseconds(1500)), 1.5);
  EXPECT_GT(retry(absl::ZeroDuration()), 0);
  EXPECT_GT(retry(absl::Nanoseconds(10)), 0);
  EXPECT_DOUBLE_EQ(retry(absl::Microseconds(1500100)), 1.501);
}

TEST(Status, NotFoundNamesTheResource) {
  struct Case {
    absl::Status status;
    std::string type;
    std::string name;
  };
  const std::vector<Case> cases = {
      {NoSuchResource("model", "models/x"), "model", "models/x"},
      {engine::NoSuchTurn("robot-1"), "request", "robot-1"},
      {kv::SessionNotFound("a"), "session", "sessions/a"},
      {kv::VersionNotFound("a", 9), "version", "sessions/a/versions/9"},
      {kv::VersionNotRetained("a", 1, kv::Version{4}), "version", "sessions/a/versions/1"},
  };
  for (const Case& test : cases) {
    const RichStatus rich = Rich(ToGrpcStatus(test.status));
    EXPECT_EQ(rich.code, grpc::StatusCode::NOT_FOUND) << test.status;
    EXPECT_EQ(rich.resource_type, test.type) << test.status;
    EXPECT_EQ(rich.resource_name, test.name) << test.status;
  }
}

TEST(Status, FieldsAreRenamed) {
  FieldErrors errors;
  errors.Add("text", "bad");
  errors.Add("other.text", "worse");
  const RichStatus rich =
      Rich(ToGrpcStatus(RenameField(errors.status(), "text", "turn.prompt.text")));
  EXPECT_EQ(rich.message, "turn.prompt.text: bad (and 1 more)");
  EXPECT_EQ(rich.violations.at("turn.prompt.text"), "bad");
  EXPECT_EQ(rich.violations.at("other.text"), "worse");
  EXPECT_TRUE(RenameField(absl::OkStatus(), "a", "b").ok());
  EXPECT_EQ(RenameField(absl::InternalError("a"), "a", "b"), absl::InternalError("a"));
}

TEST(Status, UnknownFieldIsABadRequestToo) {
  const RichStatus rich =
      Rich(ToGrpcStatus(UnknownField("tokend.v1.Sampling", 99, "turn.sampling")));
  EXPECT_EQ(rich.reason, "UNKNOWN_FIELD");
  EXPECT_EQ(rich.metadata.at("message"), "tokend.v1.Sampling");
  EXPECT_EQ(rich.metadata.at("field_number"), "99");
  EXPECT_EQ(rich.violations.count("turn.sampling"), 1u);
}

TEST(Status, WithoutAReasonItIsOurFault) {
  RichStatus rich = Rich(ToGrpcStatus(absl::InvalidArgumentError("x")));
  EXPECT_EQ(rich.code, grpc::StatusCode::INTERNAL);
  EXPECT_EQ(rich.reason, "REQUEST_FAILED");
  rich = Rich(ToGrpcStatus(absl::DeadlineExceededError("x")));
  EXPECT_EQ(rich.code, grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(rich.reason, "DEADLINE_PASSED");
  EXPECT_EQ(ToGrpcStatus(absl::CancelledError("x")).error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
}

TEST(Status, OutcomeNames) {
  EXPECT_EQ(OutcomeName(absl::CancelledError("")), "cancelled");
  EXPECT_EQ(OutcomeName(base::InvalidField("a", "b")), "invalid_field");
  EXPECT_EQ(OutcomeName(absl::InternalError("")), "request_failed");
  EXPECT_EQ(OutcomeName(absl::OkStatus()), "ok");
}

// Whatever a caller sends comes back bounded and as UTF-8.
TEST(Status, DetailsStaySmall) {
  const std::string binary(5000, '\xff');
  const std::string cut_code_points = [] {
    std::string text = "x";
    for (int i = 0; i < 2000; ++i) text += "\xe2\x82\xac";
    return text;
  }();
  for (const std::string& value : {std::string(100000, 'a'), binary, cut_code_points}) {
    FieldErrors errors;
    for (int i = 0; i < 1000; ++i) errors.Add(absl::StrCat(value, i), value);
    std::vector<absl::Status> statuses = {errors.status(), NoSuchResource("session", value),
                                          UnknownField(value, 1, value)};
    base::ErrorInfo many;
    many.reason = ErrorReason::kQuotaExceeded;
    many.retry_after = absl::Seconds(1);
    for (int i = 0; i < 1000; ++i) many.metadata.emplace_back(absl::StrCat("k", i), value);
    statuses.push_back(base::MakeError(absl::StatusCode::kResourceExhausted, value, many));
    for (const absl::Status& status : statuses) {
      const grpc::Status out = ToGrpcStatus(status);
      const RichStatus rich = Rich(out);
      EXPECT_LE(rich.details_bytes, 4096u);
      EXPECT_LE(rich.message.size(), 512u);
      EXPECT_LE(rich.violations.size(), 8u);
      EXPECT_TRUE(tokenizer::IsUtf8(rich.message));
      EXPECT_FALSE(rich.reason.empty());
      for (const auto& [key, text] : rich.metadata) {
        EXPECT_LE(text.size(), 64u);
        EXPECT_TRUE(tokenizer::IsUtf8(text));
      }
    }
  }
}

TEST(Echo, IsBoundedAndPrintable) {
  EXPECT_EQ(Echo("abc"), "\"abc\"");
  EXPECT_EQ(Echo("a\nb"), "\"a\\nb\"");
  for (const char c : {'a', '\xff', '\0', '"'}) {
    const std::string echo = Echo(std::string(1000, c));
    EXPECT_LE(echo.size(), 72u);
    for (const char out : echo) EXPECT_TRUE(out >= 0x20 && out < 0x7f);
  }
}

}  // namespace
}  // namespace tokend::service
