// Row-wise f32 kernels, built once per instruction set; all give the same bits.
#ifndef TOKEND_CORE_CPU_VECTOR_KERNELS_H_
#define TOKEND_CORE_CPU_VECTOR_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "core/cpu/cpu_features.h"
#include "core/cpu/kv_layout.h"

namespace tokend::cpu {

// Angles of one position, times the rope's magnitude, spread to one value per rotated dimension d:
//   out[d] = x[d] cos[d] + x[partner(d)] sin[d]
// with sin negative for the first of a pair. [dims] each.
struct RopeAngleRow {
  const float* cos;
  const float* sin;
  int dims;
  bool halves;  // partner(d) is d +- dims / 2, else d ^ 1
};

// Where a row of KV goes: the half pages of one page, and the position in them.
struct KvSlot {
  std::byte* keys;
  std::byte* values;
  int slot;
};

// out[i] = act(gate[i]) * up[i]. out may be gate or up.
using GateFunction = void (*)(const float* gate, const float* up, int64_t n, float* out);
// out[i] = act(z[i]). out may be z.
using ActivateFunction = void (*)(const float* z, int64_t n, float* out);

inline constexpr int kActivations = 3;

struct VectorKernels {
  // ops/rms_norm.h. Squares are summed in 64 lanes, then pairwise. out may be x.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float epsilon, float* out);
  // ops/layer_norm.h, both sums as that of rms_norm. No bias: nullptr. out may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, int64_t n,
                     float epsilon, float* out);
  // ops/activation.h, by ops::Activation.
  GateFunction gate[kActivations];
  ActivateFunction activate[kActivations];
  // x = cap(factor * x), see ops/soft_cap.h; cap 0: factor * x.
  void (*scale_and_cap)(float factor, float cap, int64_t n, float* x);
  // to += factor * from, fused.
  void (*add_scaled)(const float* from, float factor, int64_t n, float* to);
  // ops/rope.h for one head, times `factor`; out is not head.
  void (*rotate)(const float* head, const RopeAngleRow& angles, int head_dim, float factor,
                 float* out);
  // Stores one KV head's key and value, [head_dim] each, in the page's dtype.
  // f16 rounds to nearest even and saturates at 65504; int8 codes are
  // round(x / d) with d = max|x| / 127 rounded to f16.
  void (*store_kv)(const KvLayout& layout, const KvSlot& slot, int kv_head, const float* key,
                   const float* value);
};

const VectorKernels& GetVectorKernels(Isa isa);

// Largest head_dim that store_kv and the attention kernels take.
inline constexpr int kMaxHeadDim = 512;

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_VECTOR_KERNELS_H_
