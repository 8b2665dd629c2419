#include "core/sampling/philox.h"

namespace tokend::sampling {
namespace {

constexpr uint64_t kMultiplier0 = 0xD2511F53;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
// Golden ratio and sqrt(3) - 1: what the key grows by each round.
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;

uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }
uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1),
               High(product0) ^ counter[3] ^ key[1], Low(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint64_t RandomBits(uint64_t seed, int64_t position) {
  const auto at = static_cast<uint64_t>(position);
  const auto block = Philox4x32({Low(at), High(at), 0, 0}, {Low(seed), High(seed)});
  return uint64_t{block[1]} << 32 | block[0];
}

}  // namespace tokend::sampling
