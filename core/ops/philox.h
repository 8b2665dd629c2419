// The random bits of a draw. constexpr, and so usable on a device.
#ifndef TOKEND_CORE_OPS_PHILOX_H_
#define TOKEND_CORE_OPS_PHILOX_H_

#include <cstdint>

namespace tokend::ops {

struct PhiloxBlock {
  uint32_t word[4];

  bool operator==(const PhiloxBlock&) const = default;
};

// Philox4x32 with 10 rounds (Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3"): a bijection of the counter under a key. No state, so a
// token's draw depends on nothing but its own seed and position.
constexpr PhiloxBlock Philox4x32(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  // Golden ratio and sqrt(3) - 1: what the key grows by each round.
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter.word[0];
    const uint64_t product1 = kMultiplier1 * counter.word[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.word[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.word[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

// The 64 random bits of the token at `position`: words 0 (low) and 1 (high) of
// the block with counter (position low, position high, 0, 0) and key (seed low,
// seed high).
constexpr uint64_t RandomBits(uint64_t seed, int64_t position) {
  const auto at = static_cast<uint64_t>(position);
  const PhiloxBlock block =
      Philox4x32({{static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0}},
                 static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  return uint64_t{block.word[1]} << 32 | block.word[0];
}

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_PHILOX_H_
