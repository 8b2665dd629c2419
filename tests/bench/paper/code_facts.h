// What the compiler made of the kernels, read from the object code at build time.
#ifndef TOKEND_TESTS_BENCH_PAPER_CODE_FACTS_H_
#define TOKEND_TESTS_BENCH_PAPER_CODE_FACTS_H_

#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tokend::bench {

// Of a warp, for one block of 16 outputs x 32 inputs of packed weights and 8 rows.
struct BlockCost {
  double instructions = 0;
  double integer_instructions = 0;  // among them
};

class CodeFacts {
 public:
  // Written by code_facts.py. NOT_FOUND: there is no such file.
  static absl::StatusOr<CodeFacts> Read(const std::string& path);

  // Registers of a thread of the kernel at this address of the host's own program, as
  // compiled for sm_`part`, or for 90 where that was not compiled. NOT_FOUND: by name.
  absl::StatusOr<int> Registers(const void* kernel, int part) const;
  // Of a format by its name ("Q4_K").
  absl::StatusOr<BlockCost> Cost(absl::string_view format) const;

 private:
  std::map<std::pair<int, std::string>, int> registers_;  // by part and symbol
  std::map<std::string, BlockCost> costs_;
  mutable std::map<const void*, std::string> symbols_;  // of kernels asked for before
};

// The symbol of a function of the running program, without the compiler's name for its
// file's own namespace; empty: unknown.
std::string SymbolOf(const void* function);

}  // namespace tokend::bench

#endif  // TOKEND_TESTS_BENCH_PAPER_CODE_FACTS_H_
