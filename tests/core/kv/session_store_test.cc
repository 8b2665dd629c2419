#include "core/kv/session_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/core/kv/kv_harness.h"

namespace tokend::kv {
namespace {

using base::ErrorReason;
using base::GetErrorReason;

TEST(SessionStoreTest, TurnsContinueASession) {
  KvHarness harness;
  ASSERT_TRUE(harness.Create("a").ok());
  Tokens want;
  for (int turn = 0; turn < 12; ++turn) {
    const Tokens input = SomeTokens(1 + turn, turn);
    auto version = harness.Turn("a", input, 3);
    ASSERT_TRUE(version.ok()) << version.status();
    EXPECT_EQ(static_cast<int64_t>(version->number), turn + 1);
    EXPECT_EQ(static_cast<int64_t>(version->parent), turn);
    want = Concat(want, input);
    EXPECT_EQ(harness.Read("a"), want);
    harness.Audit();
  }
}

}  // namespace
}  // namespace tokend::kv
