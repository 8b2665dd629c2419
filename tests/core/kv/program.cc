// Programs: made, printed and run.
#include "tests/core/kv/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/core/kv/interpreter.h"
#include "tests/support/run_in_child.h"

namespace tokend::kv {
namespace {

constexpr const char* kNames[] = {"kCreate", "kAdmit",    "kCheckout", "kBeside",  "kEphemeral",
                                  "kStep",   "kDraw",     "kPark",     "kCommit",  "kDrop",
                                  "kFork",   "kRollback", "kDelete",   "kRead",    "kMaintain",
                                  "kWait",   "kFault",    "kFailCopy", "kFailStep"};
static_assert(std::size(kNames) == Op::kKinds);

// How often, of about 1,000.
constexpr int kWeights[] = {60, 130, 130, 20, 30, 300, 60, 25, 80, 20,
                            40, 40,  16,  30, 50, 4,   8,  4,  4};
static_assert(std::size(kWeights) == Op::kKinds);

// What a run tells the process that started it.
struct Report {
  bool finished;
  int operation;
  char what[256];
  char detail[2048];
  Coverage coverage;
};

void Copy(const std::string& text, char* to, size_t size) {
  std::strncpy(to, text.c_str(), size - 1);
}

void RunHere(const ProgramOptions& options, absl::Span<const Op> program, Report* report) {
  Interpreter interpreter(options);
  bool ok = true;
  for (const Op& op : program) {
    ok = interpreter.Run(op);
    if (!ok) break;
    ++report->operation;
  }
  report->coverage = interpreter.coverage();
  if (ok) interpreter.Finish();
  Copy(interpreter.what(), report->what, sizeof(report->what));
  Copy(interpreter.detail(), report->detail, sizeof(report->detail));
  report->finished = true;
}

std::string CodeOf(const Op& op) {
  return absl::StrCat("{Op::", kNames[op.kind], ", ", op.a, ", ", op.b, ", ", op.c, "}");
}

}  // namespace

Outcome RunProgram(const ProgramOptions& options, absl::Span<const Op> program, bool quiet) {
  Report report = {};
  std::string died = testing::RunInChild<Report>([&](Report* to) { RunHere(options, program, to); },
                                                 quiet, &report);
  Outcome outcome = {.operation = report.operation,
                     .what = report.what,
                     .detail = report.detail,
                     .coverage = report.coverage};
  if (outcome.what.empty() || !report.finished) outcome.what = std::move(died);
  return outcome;
}

Program MakeProgram(uint32_t seed, int operations) {
  std::mt19937 random(seed);
  std::vector<int> kinds;
  for (int kind = 0; kind < Op::kKinds; ++kind) kinds.insert(kinds.end(), kWeights[kind], kind);
  Program program;
  program.reserve(operations);
  const auto operand = [&](int percent_of_zeros) {
    const int value = static_cast<int>(random() % 100000);
    return static_cast<int>(random() % 100) < percent_of_zeros ? 0 : value;
  };
  while (static_cast<int>(program.size()) < operations) {
    Op op = {.kind = static_cast<Op::Kind>(kinds[random() % kinds.size()])};
    op.a = operand(0);
    // Absent positions and versions, whole turns.
    const bool often = op.kind == Op::kAdmit || op.kind == Op::kCreate || op.kind == Op::kRead;
    op.b = operand(often ? 0 : 70);
    op.c = operand(op.kind == Op::kAdmit || op.kind == Op::kRollback ? 80 : 0);
    // Most programs share principal "p".
    if (op.a % 14 >= 5 && op.a % 14 < 10 && random() % 2 == 0) op.a += 9;
    program.push_back(op);
  }
  return program;
}

std::string AsCode(const ProgramOptions& options, absl::Span<const Op> program) {
  constexpr const char* kPlants[] = {"kNothing", "kPageOfThirdNode", "kCrashOfFourthCommit"};
  std::string code = absl::StrCat("CheckProgram({.pages = ", options.pages);
  if (options.digest_bits != 64) absl::StrAppend(&code, ", .digest_bits = ", options.digest_bits);
  if (options.share_prefixes) absl::StrAppend(&code, ", .share_prefixes = true");
  if (!options.local_windows.empty()) {
    absl::StrAppend(&code, ", .local_windows = {", absl::StrJoin(options.local_windows, ", "), "}");
  }
  if (options.quota > 0) absl::StrAppend(&code, ", .quota = ", options.quota);
  if (options.plant != ProgramOptions::kNothing) {
    absl::StrAppend(&code, ", .plant = ProgramOptions::", kPlants[options.plant]);
  }
  absl::StrAppend(&code, "}, {");
  const char* separator = "";
  for (const Op& op : program) {
    absl::StrAppend(&code, separator, CodeOf(op));
    separator = ", ";
  }
  return absl::StrCat(code, "});");
}

Coverage CheckProgram(const ProgramOptions& options, const Program& program) {
  const Outcome outcome = RunProgram(options, program);
  if (!outcome.ok()) {
    const Program shrunk = Shrink(options, program, outcome, absl::Seconds(60));
    ADD_FAILURE() << "operation " << outcome.operation << ": " << outcome.what << "\n"
                  << outcome.detail << "\nThis fails alike:\n"
                  << AsCode(options, shrunk) << "\nwith " << RunProgram(options, shrunk).detail;
  }
  return outcome.coverage;
}

}  // namespace tokend::kv
