#include <gtest/gtest.h>

#include <string>

#include "tests/core/kv/program.h"

namespace tokend::kv {
namespace {

// The page of a third node loses its rows: it takes nine tokens with KV to see it.
TEST(ShrinkTest, APlantedErrorShrinksToTheFewOperationsThatItTakes) {
  const ProgramOptions options = {.plant = ProgramOptions::kPageOfThirdNode};
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(seed);
    const Program program = MakeProgram(seed, 1000);
    const Outcome outcome = RunProgram(options, program, true);
    ASSERT_FALSE(outcome.ok());
    const Program shrunk = Shrink(options, program, outcome, absl::Seconds(60));
    EXPECT_LE(shrunk.size(), 6u) << AsCode(options, shrunk);
    EXPECT_EQ(RunProgram(options, shrunk, true).what, outcome.what);
  }
}

TEST(ShrinkTest, ACrashShrinksToo) {
  const ProgramOptions options = {.plant = ProgramOptions::kCrashOfFourthCommit};
  const Program program = MakeProgram(1, 1000);
  const Outcome outcome = RunProgram(options, program, true);
  ASSERT_EQ(outcome.what, "died of signal 6");
  const Program shrunk = Shrink(options, program, outcome, absl::Seconds(60));
  EXPECT_LE(shrunk.size(), 16u) << AsCode(options, shrunk);
  EXPECT_EQ(RunProgram(options, shrunk, true).what, outcome.what);
}

}  // namespace
}  // namespace tokend::kv
