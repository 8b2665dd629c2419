// GGUF's quantised blocks, taken apart into codes and scales.
#ifndef TOKEND_CORE_OPS_UNPACK_BLOCKS_H_
#define TOKEND_CORE_OPS_UNPACK_BLOCKS_H_

#include <cstdint>

#include "core/base/dtype.h"

namespace tokend::ops {

// 32 weights: scale * (code - zero) + minimum.
struct SimpleBlock {
  uint8_t codes[32];     // Q8_0: s8 plus 128
  uint16_t scale = 0;    // f16
  uint16_t minimum = 0;  // f16
  bool has_minimum = false;
};

// 256 weights in 8 (Q4_K, Q5_K) or 16 (Q6_K) runs of one scale each:
// scale * scales[run] * (code - zero) - minimum * minima[run].
struct SuperBlock {
  uint8_t codes[256];
  uint16_t scale = 0;       // f16
  uint16_t minimum = 0;     // f16
  uint8_t scales[16] = {};  // Q6_K: s8
  uint8_t minima[8] = {};
};

SimpleBlock UnpackSimpleBlock(base::WeightType type, const uint8_t* block);
SuperBlock UnpackSuperBlock(base::WeightType type, const uint8_t* block);

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_UNPACK_BLOCKS_H_
