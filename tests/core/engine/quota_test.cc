// Turns beside pinned sessions and quotas. Three layers, pages of 16 tokens.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/scheduler.h"
#include "gtest/gtest.h"
#include "tests/core/engine/harness.h"

namespace tokend::engine {
namespace {

using namespace ::tokend::testing;  // NOLINT
using base::ErrorReason;

HarnessOptions Pool(int64_t pages_per_layer, std::optional<int64_t> quota = std::nullopt) {
  HarnessOptions options;
  options.pages = 3 * pages_per_layer;
  if (quota.has_value()) options.quota_pages["p"] = 3 * *quota;
  return options;
}

Request Tokens(int input, int output, int salt = 5) {
  return TokensRequest(std::vector<int32_t>(input, kFirstByte + salt), output);
}

Request Pinned(absl::string_view id, Request request) {
  request.session = OnSession(id);
  request.session->spec_if_missing.pinned = true;
  return request;
}

void ExpectRefused(const RecordingSink& sink, ErrorReason reason, bool retry) {
  ASSERT_TRUE(sink.failed().has_value());
  EXPECT_FALSE(sink.started().has_value());
  EXPECT_EQ(sink.failed()->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(base::GetErrorReason(*sink.failed()), reason) << *sink.failed();
  EXPECT_EQ(base::GetErrorInfo(*sink.failed())->retry_after.has_value(), retry);
}

TEST(QuotaTest, ATurnThatCannotFitBesidePinsNeverStarts) {
  Harness harness(Pool(8));
  ASSERT_TRUE(harness.Run(Pinned("a", Tokens(60, 4)))->finished().has_value());
  EXPECT_EQ(harness.store().Snapshot().pages.pinned, 4 * 3);
  ExpectRefused(*harness.Run(Tokens(65, 1, 6)), ErrorReason::kKvPoolFull, true);
  ExpectRefused(*harness.Run(Tokens(129, 1, 6)), ErrorReason::kKvPoolFull, false);
  // And output ends where the room does.
  const auto cut = harness.Run(Tokens(60, 100, 6));
  EXPECT_EQ(cut->finished()->reason, kv::FinishReason::kContextFull);
  EXPECT_EQ(cut->finished()->usage.output_tokens, 5);
  // On the pinned session itself its own pages count.
  EXPECT_EQ(harness.Run(Pinned("a", Tokens(50, 10)))->finished()->reason,
            kv::FinishReason::kLength);
}

TEST(QuotaTest, PinsAreBoundedByTheQuota) {
  Harness harness(Pool(20, 4));
  const auto large = harness.Run(Pinned("a", Tokens(65, 1)));
  ExpectRefused(*large, ErrorReason::kQuotaExceeded, false);
  EXPECT_EQ(harness.Run(Pinned("a", Tokens(20, 100)))->finished()->usage.output_tokens, 45)
      << "the output ends where the quota does";
  // Another that could pin nothing is not even made.
  const absl::Status none = harness.TrySubmit(Pinned("b", Tokens(1, 1)));
  EXPECT_EQ(base::GetErrorReason(none), ErrorReason::kQuotaExceeded) << none;
  EXPECT_FALSE(harness.store().GetSession("p", "b").ok());
  // What is not pinned has no such bound, nor has what is not committed.
  EXPECT_TRUE(harness.Run(Tokens(200, 10, 6))->finished().has_value());
  Request never = Pinned("a", Tokens(60, 40, 7));
  never.session->commit = CommitMode::kNever;
  EXPECT_EQ(harness.Run(std::move(never))->finished()->reason, kv::FinishReason::kLength);
}

TEST(QuotaTest, APinThatWouldBreakARunningTurnIsRefused) {
  Harness harness(Pool(8));
  const auto runs = harness.Submit(Tokens(10, 90));
  harness.Step(3);
  const auto pin = harness.Submit(Pinned("a", Tokens(10, 20, 6)));
  harness.Step(3);
  ExpectRefused(*pin, ErrorReason::kKvPoolFull, true);
  harness.RunUntilIdle();
  EXPECT_EQ(runs->finished()->reason, kv::FinishReason::kLength);
  EXPECT_EQ(harness.Run(Pinned("a", Tokens(10, 20, 6)))->finished()->reason,
            kv::FinishReason::kLength);
}

TEST(QuotaTest, ARollbackThatWouldBreakARunningTurnIsRefused) {
  Harness harness(Pool(8));
  ASSERT_TRUE(harness.Run(Pinned("a", Tokens(60, 4)))->finished().has_value());
  Request edit = Pinned("a", Tokens(10, 4, 6));
  edit.session->from_position = 0;
  ASSERT_TRUE(harness.Run(std::move(edit))->finished().has_value());
  const auto runs = harness.Submit(Tokens(10, 90, 7));
  harness.Step(3);
  const absl::Status refused = harness.store().Rollback("p", "a", 1, {}).status();
  EXPECT_EQ(base::GetErrorReason(refused), ErrorReason::kKvPoolFull) << refused;
  harness.RunUntilIdle();
  EXPECT_EQ(runs->finished()->reason, kv::FinishReason::kLength);
  EXPECT_TRUE(harness.store().Rollback("p", "a", 1, {}).ok());
}

TEST(QuotaTest, WhatATurnWillPinIsReservedFromItsStart) {
  Harness harness(Pool(8));
  const auto pin = harness.Submit(Pinned("a", Tokens(10, 60)));
  harness.Step(3);
  const auto late = harness.Submit(Tokens(60, 1, 6));
  const auto small = harness.Submit(Tokens(40, 8, 7));
  harness.Step(3);
  ExpectRefused(*late, ErrorReason::kKvPoolFull, true);
  harness.RunUntilIdle();
  EXPECT_EQ(pin->finished()->reason, kv::FinishReason::kLength);
  EXPECT_EQ(small->finished()->reason, kv::FinishReason::kLength);
}

TEST(QuotaTest, NoOthersTurnTakesWhatAPrincipalHolds) {
  Harness harness(Pool(8, 4));
  Request hold = Tokens(60, 4);
  hold.session = OnSession("a");
  ASSERT_TRUE(harness.Run(std::move(hold))->finished().has_value());
  Request other = Tokens(65, 1, 6);
  other.principal = "q";
  ExpectRefused(*harness.Run(std::move(other)), ErrorReason::kKvPoolFull, true);
  other = Tokens(20, 100, 6);
  other.principal = "q";
  EXPECT_EQ(harness.Run(std::move(other))->finished()->usage.output_tokens, 45);
  EXPECT_EQ(harness.store().GetSession("p", "a")->resident_tokens, 63);
  EXPECT_EQ(harness.Run(Tokens(100, 20, 7))->finished()->reason, kv::FinishReason::kLength);
  EXPECT_LT(harness.store().GetSession("p", "a")->resident_tokens, 63);
}

}  // namespace
}  // namespace tokend::engine
