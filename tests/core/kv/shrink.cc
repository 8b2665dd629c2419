// Makes failing programs short.
#include <algorithm>
#include <chrono>

#include "tests/core/kv/program.h"

namespace tokend::kv {
namespace {

class Shrinker {
 public:
  Shrinker(const ProgramOptions& options, const Outcome& outcome, absl::Duration most)
      : options_(options), what_(outcome.what), most_(absl::ToChronoNanoseconds(most)) {}

  Program Run(Program program, int last) {
    // What comes behind the failure has no part in it, and what lies long before
    // seldom has.
    program_ = std::move(program);
    program_.resize(std::min(program_.size(), static_cast<size_t>(last) + 1));
    for (size_t size = 64; size < program_.size(); size *= 2) {
      if (Try(Program(program_.end() - static_cast<int64_t>(size), program_.end()))) break;
    }
    bool better = true;
    while (better && !Late()) {
      better = RemoveOperations();
      better = ReduceOperands() || better;
    }
    return program_;
  }

 private:
  bool Late() const { return std::chrono::steady_clock::now() - start_ > most_; }

  // Whether it fails at the same check; then it takes the place of the last.
  bool Try(Program candidate) {
    if (Late()) return false;
    const Outcome outcome = RunProgram(options_, candidate, true);
    if (outcome.what != what_) return false;
    candidate.resize(std::min(candidate.size(), static_cast<size_t>(outcome.operation) + 1));
    program_ = std::move(candidate);
    return true;
  }

  // Zeller and Hildebrandt 2002, "Simplifying and isolating failure-inducing input",
  // without its tests of single pieces.
  bool RemoveOperations() {
    const size_t before = program_.size();
    for (size_t piece = std::max<size_t>(1, before / 2); piece > 0; piece /= 2) {
      for (size_t at = 0; at < program_.size();) {
        Program candidate(program_.begin(), program_.begin() + static_cast<int64_t>(at));
        const size_t end = std::min(program_.size(), at + piece);
        candidate.insert(candidate.end(), program_.begin() + static_cast<int64_t>(end),
                         program_.end());
        if (candidate.empty() || !Try(std::move(candidate))) at += piece;
      }
    }
    return program_.size() < before;
  }

  bool ReduceOperands() {
    bool better = false;
    for (size_t i = 0; i < program_.size(); ++i) {
      for (int Op::*operand : {&Op::a, &Op::b, &Op::c}) {
        const int value = program_[i].*operand;
        for (const int smaller : {0, 1, 2, 3, value / 1024, value / 32, value / 2, value - 1}) {
          if (i >= program_.size() || smaller < 0 || smaller >= program_[i].*operand) continue;
          Program candidate = program_;
          candidate[i].*operand = smaller;
          if (Try(std::move(candidate))) better = true;
        }
      }
    }
    return better;
  }

  const ProgramOptions options_;
  const std::string what_;
  const std::chrono::nanoseconds most_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Program program_;
};

}  // namespace

Program Shrink(const ProgramOptions& options, const Program& program, const Outcome& outcome,
               absl::Duration most) {
  return Shrinker(options, outcome, most).Run(program, outcome.operation);
}

}  // namespace tokend::kv
