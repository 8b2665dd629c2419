// Random programs of clients under one scheduler.
#include "tests/service/simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "tests/support/run_in_child.h"

namespace tokend::testing {
namespace {

constexpr int kOperations = 90;

struct Report {
  bool finished = false;
  uint32_t seed = 0;
  int operation = 0;
  char what[128] = {};
  char detail[32768] = {};
  SimulationCoverage coverage;
};

void Add(const SimulationCoverage& more, SimulationCoverage* sum) {
  constexpr size_t kCounts = sizeof(SimulationCoverage) / sizeof(int64_t);
  int64_t counts[kCounts], others[kCounts];
  std::memcpy(counts, sum, sizeof(counts));
  std::memcpy(others, &more, sizeof(others));
  for (size_t i = 0; i < kCounts; ++i) counts[i] += others[i];
  std::memcpy(sum, counts, sizeof(counts));
}

void RunHere(const SimulationOptions& options, const ClientProgram& program, Report* report) {
  {
    Simulation simulation(options);
    const ProgramEnd end = simulation.Run(program);
    report->operation = end.operation;
    std::strncpy(report->what, end.what.c_str(), sizeof(report->what) - 1);
    std::strncpy(report->detail, simulation.detail().c_str(), sizeof(report->detail) - 1);
    Add(simulation.coverage(), &report->coverage);
  }
  if (report->what[0] == '\0' && ::testing::Test::HasFailure()) {
    std::strcpy(report->what, "the harness found something");
  }
}

ProgramEnd RunProgram(const SimulationOptions& options, const ClientProgram& program,
                      std::string* detail) {
  Report report;
  const std::string died =
      RunInChild<Report>([&](Report* to) { RunHere(options, program, to); }, true, &report);
  *detail = report.detail;
  if (report.what[0] != '\0') return {report.what, report.operation};
  return {died, static_cast<int>(program.size()) - 1};
}

// Expects that the program runs well; else shrinks and prints it.
void CheckProgram(const SimulationOptions& options, const ClientProgram& program) {
  std::string detail;
  const ProgramEnd end = RunProgram(options, program, &detail);
  if (end.what.empty()) return;
  const auto run = [&](const ClientProgram& candidate) {
    return RunProgram(options, candidate, &detail);
  };
  const ClientProgram shrunk =
      Shrinker<ClientOp>(run, end.what, absl::Seconds(60)).Shrink(program, end.operation);
  RunProgram(options, shrunk, &detail);
  ADD_FAILURE() << end.what << "\n"
                << detail << "\nThis fails alike:\nCheckProgram({.pages = " << options.pages
                << "}, {" << AsCode(shrunk) << "});";
}

// Many programs in one process; the first that fails is looked at.
SimulationCoverage CheckPrograms(const SimulationOptions& options, uint32_t first, int count) {
  Report report;
  const std::string died = RunInChild<Report>(
      [&](Report* to) {
        for (int i = 0; i < count && to->what[0] == '\0'; ++i) {
          to->seed = first + static_cast<uint32_t>(i);
          RunHere(options, MakeClientProgram(to->seed, kOperations), to);
        }
        to->finished = true;
      },
      false, &report);
  if (!died.empty() || !report.finished || report.what[0] != '\0') {
    ADD_FAILURE() << "seed " << report.seed << ": " << report.what << died;
    CheckProgram(options, MakeClientProgram(report.seed, kOperations));
  }
  return report.coverage;
}

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

class SimulationTest : public ::testing::TestWithParam<int64_t> {
 protected:
  // Each turn writes a line.
  static void SetUpTestSuite() { spdlog::set_level(spdlog::level::off); }
};

TEST_P(SimulationTest, WhatClientsSeeHasAnOrder) {
  const int count = FromEnvironment("TOKEND_TEST_PROGRAMS", 200);
  const SimulationOptions options = {.pages = GetParam()};
  const SimulationCoverage seen =
      CheckPrograms(options, static_cast<uint32_t>(FromEnvironment("TOKEND_TEST_SEED", 1)), count);
  // Programs that never get there prove little.
  EXPECT_GT(seen.finished, 4 * count);
  EXPECT_GT(seen.lost, count);
  EXPECT_GT(seen.conflicts, count / 2);
  EXPECT_GT(seen.deleted, count / 8);
  EXPECT_GT(seen.busy, count / 4);
  EXPECT_GT(seen.forks, count / 8);
  EXPECT_GT(seen.partial, count / 8);
  EXPECT_GT(seen.interrupted, count / 8);
  EXPECT_GT(seen.nested, count);
  EXPECT_LE(seen.undecided, 1 + count / 1000);
  if (options.pages < 100) {
    EXPECT_GT(seen.parks, count / 50);
  }
  std::printf(
      "calls %ld finished %ld lost %ld refused %ld conflicts %ld deleted %ld busy %ld "
      "forks %ld partial %ld interrupted %ld nested %ld parks %ld undecided %ld\n",
      seen.calls, seen.finished, seen.lost, seen.refused, seen.conflicts, seen.deleted, seen.busy,
      seen.forks, seen.partial, seen.interrupted, seen.nested, seen.parks, seen.undecided);
}

INSTANTIATE_TEST_SUITE_P(Pages, SimulationTest, ::testing::Values(3 * 400, 3 * 18));

}  // namespace
}  // namespace tokend::testing
