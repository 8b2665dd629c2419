// Prints speed on paper: ./dev bench paper.
#include <cstdio>
#include <exception>
#include <string>

#include "CLI/CLI.hpp"
#include "core/base/status_macros.h"
#include "tests/bench/paper/paper.h"

namespace tokend::bench {
namespace {

const char* UnitOf(GoalKind kind) {
  switch (kind) {
    case GoalKind::kFloorShare:
      return "% of the floor";
    case GoalKind::kRate:
      return "tokens/s";
    case GoalKind::kBatchGain:
      return "times batch 1 at batch 8";
  }
  return "";
}

void PrintLaunches(const PaperResult& result) {
  std::printf("    %-18s %5s %6s %6s %5s %6s %6s %6s %5s %8s %6s  %s\n", "kernel", "count", "grid",
              "shared", "regs", "blocks", "needed", "flight", "wave", "us", "+us", "bound");
  for (const TimedLaunch& timed : result.launches) {
    const PaperLaunch& launch = timed.launch;
    const PaperTime& time = timed.time;
    std::printf("    %-18s %5d %6lld %5.0fK %5d %6d %5.1fK %5.1fK %5.2f %8.2f %6.2f  %s\n",
                launch.name.c_str(), timed.count, static_cast<long long>(launch.grid),
                static_cast<double>(launch.shared_bytes) / 1024, launch.registers, time.blocks,
                time.needed / 1024, time.inflight / 1024, time.wave, time.seconds * 1e6,
                time.boundary * 1e6, time.bound);
  }
}

absl::Status PrintTarget(const Target& target, bool detail, Paper* paper) {
  std::printf("\n%s (sm_%d%d): %.0f GB/s, %d multiprocessors, %.2f GHz\n", target.name,
              target.major, target.minor, target.bandwidth / 1e9, target.multiprocessors,
              target.clock / 1e9);
  std::printf("  %-22s %5s %9s %9s %9s %7s %10s\n", "model", "batch", "floor us", "kernels",
              "between", "share", "tokens/s");
  for (const testing::ModelShape& shape : testing::RealShapes()) {
    for (const testing::WeightMix mix :
         {testing::WeightMix::kF16, testing::WeightMix::kQ4_0, testing::WeightMix::kQ4_K_M}) {
      for (const int rows : {1, 8}) {
        PaperStep step;
        step.rows = rows;
        TOKEND_ASSIGN_OR_RETURN(const PaperResult result, paper->Time(shape, mix, step, target));
        const std::string name =
            std::string(shape.name) + " " + std::string(testing::WeightMixName(mix));
        std::printf("  %-22s %5d %9.1f %9.1f %9.1f %6.1f%% %10.1f\n", name.c_str(), rows,
                    result.floor * 1e6, result.kernels * 1e6, result.boundaries * 1e6,
                    100 * result.share(), rows / result.seconds());
        if (detail) PrintLaunches(result);
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> PrintVerdicts(Paper* paper) {
  std::printf("\n%s, what is asked of it\n", H200().name);
  bool all = true;
  for (const Goal& goal : Goals()) {
    TOKEND_ASSIGN_OR_RETURN(const double reached, paper->Reached(goal, H200()));
    const bool met = reached >= goal.at_least;
    all = all && met;
    std::printf("  %-14s %-7s %8.1f of %6.0f %-26s %s\n", goal.shape,
                std::string(testing::WeightMixName(goal.mix)).c_str(), reached, goal.at_least,
                UnitOf(goal.kind), met ? "ok" : "BELOW");
  }
  return all;
}

absl::StatusOr<bool> Run(const std::string& facts_path, const std::string& only, bool detail) {
  TOKEND_ASSIGN_OR_RETURN(CodeFacts facts, CodeFacts::Read(facts_path));
  Paper paper(std::move(facts));
  for (const Target& target : Targets()) {
    if (!only.empty() && only != target.name) continue;
    TOKEND_RETURN_IF_ERROR(PrintTarget(target, detail, &paper));
  }
  return PrintVerdicts(&paper);
}

int Main(int argc, char** argv) {
  std::string facts = TOKEND_CODE_FACTS, only;
  bool detail = false;
  CLI::App app("Decode on paper, from the kernels' own launches and object code", "tokend_paper");
  app.add_option("--facts", facts, "what the build read from the object code");
  app.add_option("--target", only, "one part by name");
  app.add_flag("--detail", detail, "each kernel");
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<bool> met = Run(facts, only, detail);
  if (!met.ok()) {
    std::fprintf(stderr, "%s\n", std::string(met.status().message()).c_str());
    return 1;
  }
  return *met ? 0 : 1;
}

}  // namespace
}  // namespace tokend::bench

int main(int argc, char** argv) {
  try {
    return tokend::bench::Main(argc, argv);
  } catch (const std::exception& error) {  // of CLI11
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
