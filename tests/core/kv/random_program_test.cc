// Random programs against a store that keeps plain token vectors.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/core/kv/program.h"

namespace tokend::kv {
namespace {

// What a long program comes across; one that never gets there proves little.
void ExpectCoverage(const Coverage& seen, int operations, const ProgramOptions& options,
                    bool scarce) {
  for (int kind = 0; kind < Op::kKinds; ++kind) {
    EXPECT_GT(seen.done[kind], operations / 1000) << "operations of kind " << kind;
  }
  EXPECT_GT(seen.hits, operations / 80);
  EXPECT_GT(seen.copies, operations / 80);
  EXPECT_GT(seen.evicted_window, operations / 200);
  EXPECT_GT(seen.expired, 0);
  EXPECT_GT(seen.forgotten, operations / 10000);
  EXPECT_GT(seen.not_kept, operations / 20000);
  EXPECT_GT(seen.conflicts, operations / 1000);
  for (const int64_t faults : seen.faults) EXPECT_GT(faults, operations / 5000);
  EXPECT_EQ(seen.over_quota > 0, options.quota > 0);
  if (!scarce) return;
  EXPECT_GT(seen.evicted_pressure, operations / 20);
  EXPECT_GT(seen.evicted_idle, operations / 200);
  EXPECT_GT(seen.recomputed, operations / 200);
  EXPECT_GT(seen.refused, 0);
}

std::string Numbers(const Coverage& seen) {
  std::string text = absl::StrCat("operations ", absl::StrJoin(seen.done, " "), "; faults ",
                                  absl::StrJoin(seen.faults, " "));
  absl::StrAppend(&text, "; hits ", seen.hits, " copies ", seen.copies, " recomputed ",
                  seen.recomputed, " window ", seen.evicted_window, " pressure ",
                  seen.evicted_pressure, " idle ", seen.evicted_idle);
  absl::StrAppend(&text, " refused ", seen.refused, " expired ", seen.expired, " conflicts ",
                  seen.conflicts, " forgotten ", seen.forgotten, " not kept ", seen.not_kept,
                  " over quota ", seen.over_quota);
  return text;
}

// Programs that once failed, as they were printed.
TEST(RegressionTest, APageBehindAParkedTurnsWindowIsFree) {
  CheckProgram({.pages = 84}, {{Op::kCreate, 3, 1, 0},
                               {Op::kAdmit, 3, 0, 0},
                               {Op::kCheckout, 0, 0, 1},
                               {Op::kStep, 1, 0, 0},
                               {Op::kPark, 0, 0, 0},
                               {Op::kStep, 1, 1, 0},
                               {Op::kCommit, 0, 0, 0}});
}

struct Case {
  uint32_t seed;
  ProgramOptions options;
  bool scarce;
};

class RandomProgramTest : public ::testing::TestWithParam<Case> {};

TEST_P(RandomProgramTest, AgreesWithTheModel) {
  const char* const seed = std::getenv("TOKEND_TEST_SEED");
  const char* const size = std::getenv("TOKEND_TEST_OPERATIONS");
  const int operations = size != nullptr ? std::atoi(size) : 200000 / 5;
  const uint32_t number = seed != nullptr ? std::atoll(seed) : GetParam().seed;
  SCOPED_TRACE(absl::StrCat("TOKEND_TEST_SEED=", number));
  const Program program = MakeProgram(number, operations);
  const Coverage seen = CheckProgram(GetParam().options, program);
  SCOPED_TRACE(Numbers(seen));
  const Case& given = GetParam();
  if (!HasFailure()) ExpectCoverage(seen, operations, given.options, given.scarce);
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, RandomProgramTest,
    ::testing::Values(Case{1, {.pages = 700}, false}, Case{2, {.pages = 84}, true},
                      Case{3, {.pages = 300, .digest_bits = 1, .local_windows = {0, 9, 9}}, false},
                      Case{4, {.pages = 120, .share_prefixes = true}, true},
                      Case{5, {.pages = 84, .local_windows = {5, 0, 5}}, true},
                      Case{6, {.pages = 110, .quota = 18}, true}));

}  // namespace
}  // namespace tokend::kv
