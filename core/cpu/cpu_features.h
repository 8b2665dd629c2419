// Instruction sets that the kernels of this folder are built for, and the choice
// among them at run time.
#ifndef TOKEND_CORE_CPU_CPU_FEATURES_H_
#define TOKEND_CORE_CPU_CPU_FEATURES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tokend::cpu {

enum class Isa {
  kPlain,       // C++ at the compiler's baseline
  kAvx2,        // x86-64: AVX2, FMA, F16C
  kAvxVnni,     // kAvx2 and AVX-VNNI
  kAvx512Vnni,  // x86-64: AVX-512 F, BW, DQ, VL and VNNI
  kNeonDot,     // AArch64: dot product
};

absl::string_view IsaName(Isa isa);  // "plain", "avx2", "avxvnni", "avx512vnni", "neondot"

// Built into this binary and present on this processor; best first, kPlain last.
std::vector<Isa> SupportedIsas();

// The best one, or the one that `name` asks for. An empty name means the
// environment's TOKEND_CPU_ISA, if that is set and not empty.
// INVALID_ARGUMENT: no such name, or not supported here.
absl::StatusOr<Isa> ChooseIsa(absl::string_view name = "");

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_CPU_FEATURES_H_
