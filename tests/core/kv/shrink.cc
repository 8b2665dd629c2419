#include "tests/support/shrink.h"

#include "tests/core/kv/program.h"

namespace tokend::kv {

Program Shrink(const ProgramOptions& options, const Program& program, const Outcome& outcome,
               absl::Duration most) {
  const auto run = [&options](const Program& candidate) -> testing::ProgramEnd {
    const Outcome end = RunProgram(options, candidate, true);
    return {end.what, end.operation};
  };
  return testing::Shrinker<Op>(run, outcome.what, most).Shrink(program, outcome.operation);
}

}  // namespace tokend::kv
