// Random programs as data: operations on a store and, beside it, on a model that
// keeps plain token vectors.
#ifndef TOKEND_TESTS_CORE_KV_PROGRAM_H_
#define TOKEND_TESTS_CORE_KV_PROGRAM_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tokend::kv {

// Operands pick among what exists, modulo its number, so that each subsequence of
// a program is a program too. An operation that has nothing to work on does
// nothing. See program_*.cc for what the operands mean.
struct Op {
  enum Kind : uint8_t {
    kCreate,     // name, policy, pinned, idle_ttl and history_tokens
    kAdmit,      // name, on_conflict and allow_missing, expected_version
    kCheckout,   // turn, from_position, input
    kBeside,     // turn, from_position, input: another branch of the same writer
    kEphemeral,  // principal, -, input
    kStep,       // which turns, how many rows, what happens without room
    kDraw,       // turn, token
    kPark,       // turn
    kCommit,     // turn, where to cut
    kDrop,       // turn
    kFork,       // name, version, new name and end_position
    kRollback,   // name, version, expected_version
    kDelete,     // name, expected_version
    kRead,       // version, start, limit
    kMaintain,   // -
    kWait,       // seconds
    kFault,      // point, in how many calls
    kFailCopy,   // -
    kFailStep,   // -
    kKinds,
  };
  Kind kind = kMaintain;
  int a = 0;
  int b = 0;
  int c = 0;

  bool operator==(const Op&) const = default;
};
using Program = std::vector<Op>;

struct ProgramOptions {
  int64_t pages = 700;
  int digest_bits = 64;
  bool share_prefixes = false;
  std::vector<int64_t> local_windows = {};  // of the three layers
  int64_t quota = 0;                        // pages of principal "p", and of "q" the half; 0: none
  // What the test of the shrinker breaks, so that programs fail.
  enum Plant { kNothing, kPageOfThirdNode, kCrashOfFourthCommit } plant = kNothing;
};

// What a run came across.
struct Coverage {
  std::array<int64_t, Op::kKinds> done = {};  // operations that had something to work on
  int64_t hits = 0, copies = 0, recomputed = 0;
  int64_t evicted_window = 0, evicted_pressure = 0, evicted_idle = 0;
  int64_t refused = 0;    // for want of pages
  int64_t expired = 0;    // idle sessions
  int64_t forgotten = 0;  // times that a version's first position moved
  int64_t not_kept = 0;   // operations before a first position
  int64_t conflicts = 0;
  int64_t over_quota = 0;              // pins refused
  std::array<int64_t, 4> faults = {};  // by FaultPoint
};

struct Outcome {
  bool ok() const { return what.empty(); }
  int operation = 0;   // that failed, or how many there were
  std::string what;    // the check that failed
  std::string detail;  // values, which may differ between programs
  Coverage coverage;
};

// Runs the program and checks all invariants after each operation. In a process
// of its own, so that a crash is an outcome like any other; `quiet`: without what
// that prints.
Outcome RunProgram(const ProgramOptions& options, absl::Span<const Op> program, bool quiet = false);

Program MakeProgram(uint32_t seed, int operations);

// Looks for a short program that fails at the same check, for about so long.
Program Shrink(const ProgramOptions& options, const Program& program, const Outcome& outcome,
               absl::Duration most);

// C++ code that runs the program.
std::string AsCode(const ProgramOptions& options, absl::Span<const Op> program);

// Expects that the program runs without a failure; else shrinks and prints it.
Coverage CheckProgram(const ProgramOptions& options, const Program& program);

}  // namespace tokend::kv

#endif  // TOKEND_TESTS_CORE_KV_PROGRAM_H_
