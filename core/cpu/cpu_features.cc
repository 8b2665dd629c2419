#include "core/cpu/cpu_features.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace tokend::cpu {
namespace {

constexpr Isa kAll[] = {Isa::kAvx512Vnni, Isa::kAvxVnni, Isa::kAvx2, Isa::kNeonDot, Isa::kPlain};

#if defined(__x86_64__)
bool HasAvx2() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool HasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvxVnniBit = 1u << 4;  // leaf 7, sub-leaf 1, EAX
  return HasAvx2() && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & kAvxVnniBit) != 0;
}

bool IsSupported(Isa isa) {
  switch (isa) {
    case Isa::kPlain:
      return true;
    case Isa::kAvx2:
      return HasAvx2();
    case Isa::kAvxVnni:
      return HasAvxVnni();
    case Isa::kAvx512Vnni:
      return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512vnni");
    case Isa::kNeonDot:
      return false;
  }
  return false;
}
#elif defined(__aarch64__)
bool IsSupported(Isa isa) {
  constexpr unsigned long kAsimdDp = 1ul << 20;  // HWCAP_ASIMDDP
  if (isa == Isa::kNeonDot) return (getauxval(AT_HWCAP) & kAsimdDp) != 0;
  return isa == Isa::kPlain;
}
#else
bool IsSupported(Isa isa) { return isa == Isa::kPlain; }
#endif

}  // namespace

absl::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPlain:
      return "plain";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvxVnni:
      return "avxvnni";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
    case Isa::kNeonDot:
      return "neondot";
  }
  return "";
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> supported;
  for (Isa isa : kAll) {
    if (IsSupported(isa)) supported.push_back(isa);
  }
  return supported;
}

absl::StatusOr<Isa> ChooseIsa(absl::string_view name) {
  if (name.empty()) {
    const char* from_environment = std::getenv("TOKEND_CPU_ISA");
    if (from_environment != nullptr) name = from_environment;
  }
  std::string names;
  for (Isa isa : SupportedIsas()) {
    if (name.empty() || name == IsaName(isa)) return isa;
    absl::StrAppend(&names, names.empty() ? "" : ", ", IsaName(isa));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("instruction set '", name, "' is not supported here; there is: ", names));
}

}  // namespace tokend::cpu
