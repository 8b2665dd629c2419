// Makes failing programs short.
#ifndef TOKEND_TESTS_SUPPORT_SHRINK_H_
#define TOKEND_TESTS_SUPPORT_SHRINK_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace tokend::testing {

// What became of a program.
struct ProgramEnd {
  std::string what;   // the check that failed; empty: none
  int operation = 0;  // that failed
};

// A program is a vector of `Op`, which has operands a, b and c; each subsequence of
// a program is one too, and operands may have any value that is not negative.
template <typename Op>
class Shrinker {
 public:
  using Program = std::vector<Op>;
  using Run = std::function<ProgramEnd(const Program&)>;

  Shrinker(Run run, std::string what, absl::Duration most)
      : run_(std::move(run)), what_(std::move(what)), most_(absl::ToChronoNanoseconds(most)) {}

  // Looks, for about `most`, for a short program that fails at the check `what`, as
  // `program` does at operation `last`.
  Program Shrink(Program program, int last) {
    // What comes behind the failure has no part in it, and what lies long before
    // seldom has.
    program_ = std::move(program);
    program_.resize(std::min(program_.size(), static_cast<size_t>(last) + 1));
    for (size_t size = 64; size < program_.size(); size *= 2) {
      if (Try(Program(program_.end() - static_cast<std::ptrdiff_t>(size), program_.end()))) break;
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
    const ProgramEnd end = run_(candidate);
    if (end.what != what_) return false;
    candidate.resize(std::min(candidate.size(), static_cast<size_t>(end.operation) + 1));
    program_ = std::move(candidate);
    return true;
  }

  // Zeller and Hildebrandt 2002, "Simplifying and isolating failure-inducing input",
  // without its tests of single pieces.
  bool RemoveOperations() {
    const size_t before = program_.size();
    for (size_t piece = std::max<size_t>(1, before / 2); piece > 0; piece /= 2) {
      for (size_t at = 0; at < program_.size();) {
        const auto begin = program_.begin() + static_cast<std::ptrdiff_t>(at);
        const auto size = static_cast<std::ptrdiff_t>(std::min(piece, program_.size() - at));
        Program candidate(program_.begin(), begin);
        candidate.insert(candidate.end(), begin + size, program_.end());
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

  const Run run_;
  const std::string what_;
  const std::chrono::nanoseconds most_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  Program program_;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_SHRINK_H_
