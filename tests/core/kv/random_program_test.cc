// Random programs against a store that keeps plain token vectors.
#include "tests/core/kv/random_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tokend::kv {

void Program::Run(int operations, bool scarce) {
  for (step_ = 0; step_ < operations && !::testing::Test::HasFailure(); ++step_) {
    SCOPED_TRACE(absl::StrCat("operation ", step_));
    Operation();
    harness_.Audit();
    CheckModel();
  }
  CheckCoverage(scarce);
  turns_.clear();
  for (const auto& [name, session] : sessions_) {
    EXPECT_TRUE(store().DeleteSession(name.first, name.second, {}, true).ok());
  }
  store().Maintain();
  harness_.Audit();
  const PageCounts pages = store().Snapshot().pages;
  EXPECT_EQ(pages.free + pages.cached, pages.total) << "pages are lost";
}

void Program::CheckCoverage(bool scarce) {
  if (std::getenv("TOKEND_TEST_SEED") != nullptr) return;
  const CountingObserver& seen = harness_.observer();
  EXPECT_GT(seen.hits, 50);
  EXPECT_GT(seen.copies, 50);
  EXPECT_GT(parked_, 10);
  EXPECT_GT(seen.evicted.at(base::EvictionCause::kWindow), 0);
  if (scarce) {
    EXPECT_GT(seen.evicted.at(base::EvictionCause::kPressure), 100);
    EXPECT_GT(seen.evicted.at(base::EvictionCause::kIdle), 5);
    EXPECT_GT(seen.recomputed, 10);
    EXPECT_GT(refused_, 2);
  }
}

Tokens Program::Input() {
  Tokens input;
  for (int pieces = Below(4); pieces >= 0; --pieces) {
    input = Concat(input, SomeTokens(1 + Below(9), Below(3)));
  }
  return input;
}

RetentionPolicy Program::Policy() {
  RetentionPolicy policy;
  switch (Below(4)) {
    case 0:
      policy = {RetentionPolicy::Kind::kSlidingWindow, Below(3) * 3, 1 + Below(12)};
      break;
    case 1:
      policy = {RetentionPolicy::Kind::kLayered, Below(2) * 5, 1 + Below(9), 1 + Below(2)};
      break;
    default:
      break;
  }
  return policy;
}

int Program::Active(const Name& name, const std::string& uid) {
  return static_cast<int>(std::count_if(turns_.begin(), turns_.end(), [&](const OpenTurn& turn) {
    return turn.name == name && turn.uid == uid && turn.writer && turn.writer->fork_id().empty();
  }));
}

void Program::Operation() {
  const int kind = Below(100);
  if (kind < 8) {
    CreateSession();
  } else if (kind < 25) {
    Admit();
  } else if (kind < 32) {
    Checkout();
  } else if (kind < 36) {
    Ephemeral();
  } else if (kind < 66) {
    StepSome();
  } else if (kind < 76) {
    EndTurn();
  } else if (kind < 81) {
    Fork();
  } else if (kind < 86) {
    Rollback();
  } else if (kind < 89) {
    Delete();
  } else if (kind < 93) {
    ReadSome();
  } else if (kind < 96) {
    Park();
  } else {
    store().Maintain();
  }
}

namespace {

class RandomProgramTest : public ::testing::TestWithParam<int> {};

StoreOptions ProgramOptions(int pages, int digest_bits) {
  StoreOptions options = SmallOptions();
  options.pages = pages;
  options.digest_bits = digest_bits;
  options.max_versions = 4;
  return options;
}

uint32_t Seed(int parameter) {
  const char* seed = std::getenv("TOKEND_TEST_SEED");
  return seed != nullptr ? static_cast<uint32_t>(std::atoll(seed)) : parameter;
}

TEST_P(RandomProgramTest, AmpleMemory) {
  SCOPED_TRACE(absl::StrCat("TOKEND_TEST_SEED=", Seed(GetParam())));
  Program(Seed(GetParam()), ProgramOptions(2000, 64)).Run(1500, false);
}

TEST_P(RandomProgramTest, UnderPressure) {
  SCOPED_TRACE(absl::StrCat("TOKEND_TEST_SEED=", Seed(GetParam())));
  Program(Seed(GetParam()), ProgramOptions(84, 64)).Run(1500, true);
}

TEST_P(RandomProgramTest, CollidingDigests) {
  SCOPED_TRACE(absl::StrCat("TOKEND_TEST_SEED=", Seed(GetParam())));
  Program(Seed(GetParam()), ProgramOptions(300, 1)).Run(800, false);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomProgramTest, ::testing::Range(1, 6));

}  // namespace
}  // namespace tokend::kv
