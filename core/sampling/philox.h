#ifndef TOKEND_CORE_SAMPLING_PHILOX_H_
#define TOKEND_CORE_SAMPLING_PHILOX_H_

#include <array>
#include <cstdint>

namespace tokend::sampling {

// Philox4x32 with 10 rounds (Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3"): a bijection of the counter under a key. No state, so a
// token's draw depends on nothing but its own seed and position.
std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The 64 random bits of the token at `position`: words 0 (low) and 1 (high) of
// the block with counter (position low, position high, 0, 0) and key (seed low,
// seed high).
uint64_t RandomBits(uint64_t seed, int64_t position);

}  // namespace tokend::sampling

#endif  // TOKEND_CORE_SAMPLING_PHILOX_H_
