// The innermost loop of the decode matmul for each format by itself, whose instructions
// code_facts.py counts. Never run.
#include "cuda_kernels/kernels/matmul_decode.cuh"

namespace tokend::cuda {

template <PackedFormat kFormat>
TOKEND_DEVICE void MultiplySlot(const MatmulParams& params) {
  const unsigned char* slot = SharedArray<unsigned char>(0, params.slot_bytes);
  DecodeSums<1> sums = {};
  AddSlot<kFormat, 1, false>(params, slot, slot + params.slot_rows_at, 0,
                             params.plans[0].slot_blocks, sums);
  for (int e = 0; e < 4; ++e) {
    params.matmul.output.out[4 * threadIdx.x + e] = sums.accumulators[0][e];
  }
}

#define TOKEND_COST(format)                                                \
  __global__ void __launch_bounds__(kDecodeThreads)                        \
      Cost_##format##Kernel(const __grid_constant__ MatmulParams params) { \
    MultiplySlot<PackedFormat::k##format>(params);                         \
  }

TOKEND_COST(F16)
TOKEND_COST(Q4_0)
TOKEND_COST(Q4_1)
TOKEND_COST(Q5_0)
TOKEND_COST(Q5_1)
TOKEND_COST(Q8_0)
TOKEND_COST(Q4_K)
TOKEND_COST(Q5_K)
TOKEND_COST(Q6_K)

}  // namespace tokend::cuda
