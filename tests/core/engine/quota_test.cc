// Turns beside pinned sessions and quotas. Three layers, pages of 16 tokens.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

// A session that comes back within its quota keeps what a turn was admitted with.
TEST(QuotaTest, OutputThatEndsForWantOfMemoryIsSentWhole) {
  Harness harness(Pool(3, 1));
  for (int input : {16, 10}) {
    Request request = Tokens(input, 1, 6);
    request.session = OnSession("b");
    ASSERT_TRUE(harness.Run(std::move(request))->finished().has_value());
  }
  harness.Say(31, "\xF0\x9F");  // half a code point
  Request request = Tokens(20, 1);
  request.principal = "q";
  request.stop.max_output_tokens.reset();
  const auto sink = harness.Submit(std::move(request));
  harness.Step(3);
  ASSERT_TRUE(harness.store().Rollback("p", "b", 1, std::nullopt).ok());
  harness.RunUntilIdle();
  ASSERT_TRUE(sink->finished().has_value());
  EXPECT_EQ(sink->finished()->reason, kv::FinishReason::kContextFull);
  EXPECT_EQ(sink->tokens().size(), 13u);
  EXPECT_EQ(sink->raw().substr(sink->raw().size() - 2), "\xF0\x9F");
}

// What a pinned session's turn has beside the head that stays until it commits.
class PinnedRoom {
 public:
  PinnedRoom(int pages, const kv::RetentionPolicy& policy)
      : policy_(policy), harness_(Options(pages)) {
    harness_.tags().on_fault = [this](kv::FaultPoint point) {
      if (point == kv::FaultPoint::kTakePages) in_vain_ += std::exchange(asked_, true);
      return absl::OkStatus();
    };
    harness_.tags().on_page_taken = [this](base::PageId, const kv::PageTag&) { asked_ = false; };
  }
  ~PinnedRoom() {
    harness_.tags().on_fault = nullptr;
    harness_.tags().on_page_taken = nullptr;
  }

  Request Turn(int input, int output, int salt) {
    Request request = Pinned("a", Tokens(input, output, salt));
    request.session->spec_if_missing.retention = policy_;
    return request;
  }

  // False: it was refused.
  bool Run(Request request) {
    const auto sink = harness_.Run(std::move(request));
    if (sink->failed().has_value()) {
      EXPECT_FALSE(sink->started().has_value()) << *sink->failed();
      return false;
    }
    full += sink->finished()->reason == kv::FinishReason::kContextFull ? 1 : 0;
    return true;
  }

  Harness& harness() { return harness_; }
  // Times that pages were asked for that could not be had.
  int in_vain() const { return in_vain_ + (asked_ ? 1 : 0); }
  int full = 0;

 private:
  // A longer chunk is tried first and cut where pages are short.
  static HarnessOptions Options(int pages) {
    HarnessOptions options = Pool(pages);
    options.engine.prefill_chunk_tokens = options.engine.page_tokens;
    return options;
  }

  const kv::RetentionPolicy policy_;
  Harness harness_;
  bool asked_ = false;
  int in_vain_ = 0;
};

TEST(QuotaTest, ATurnOfAPinnedSessionHasAllThatItWasAdmittedFor) {
  using Kind = kv::RetentionPolicy::Kind;
  int finished = 0, refused = 0, full = 0;
  for (const kv::RetentionPolicy& policy :
       {kv::RetentionPolicy{}, kv::RetentionPolicy{Kind::kSlidingWindow, 4, 50},
        kv::RetentionPolicy{Kind::kLayered, 4, 50, 1},
        kv::RetentionPolicy{Kind::kHeavyHitters, 16, 32, 0, 1, 32}}) {
    for (int pages = 3; pages < 24; ++pages) {
      for (const char* what : {"continue", "keep nothing", "edit"}) {
        SCOPED_TRACE(
            absl::StrCat("policy ", static_cast<int>(policy.kind), ", ", pages, " pages, ", what));
        PinnedRoom room(pages, policy);
        bool fits = true;
        for (int i = 0; i < 5 && fits; ++i) {
          Request request = room.Turn(20 + i, 21, i);
          if (i > 2 && what[0] == 'k') request.session->commit = CommitMode::kNever;
          if (i > 0 && what[0] == 'e') request.session->from_position = 15;
          fits = room.Run(std::move(request));
          ++(fits ? finished : refused);
        }
        full += room.full;
        EXPECT_EQ(room.in_vain(), 0);
      }
    }
  }
  EXPECT_GT(finished, 400);
  EXPECT_GT(refused, 50);
  EXPECT_GT(full, 10);
}

// The fork starts from what its source pins, and is pinned itself by nobody.
TEST(QuotaTest, AForkHasItsRoomBesideItsPinnedSource) {
  for (int pages = 6; pages < 14; ++pages) {
    SCOPED_TRACE(pages);
    PinnedRoom room(pages, {});
    ASSERT_TRUE(room.Run(room.Turn(60, 5, 1)));
    const auto first = room.harness().Submit(room.Turn(4, 10, 2));
    Request request = room.Turn(10, 40, 3);
    request.session->on_conflict = OnConflict::kFork;
    const auto fork = room.harness().Run(std::move(request));
    EXPECT_EQ(first->finished()->reason, kv::FinishReason::kLength);
    // The source ends on 5 pages, of which the fork has 4, too.
    ASSERT_TRUE(fork->finished().has_value()) << *fork->failed();
    EXPECT_EQ(fork->finished()->usage.output_tokens, std::min(40, 16 * (pages - 1) - 74));
  }
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
