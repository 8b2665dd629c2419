// Attention of a step's rows over paged KV (ops/attention.h), and what it needs: angles
// of rope, and keys and values in their pages.
//
// The KV of a row is cut into pieces of kPieceTokens positions from position 0. In one:
//   s_j = cap(scale * q . k_j) log2(e), the mask after the cap;  m = max s_j
//   p_j = 2^(s_j - m), in f16, or in mode f32 as a pair of f16, like q
//   l = sum of p_j,  o = sum of p_j v_j: chains over ascending j
// A pair's high and low parts have chains of their own, which are added at the end.
// Pieces that the row sees are merged in index order, from the first one on:
//   M' = max(M, m),  O = O 2^(M - M') + o 2^(m - M'),  L alike;  out = O / L
// None of it depends on other rows, so DecodeAttention and PrefillAttention give the
// same bits. What KV holds at positions that a row does not see does not matter.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_H_
#define TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_H_

#include <driver_types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "cuda_kernels/kernels/half_rows.h"
#include "cuda_kernels/kernels/kv_layout.h"
#include "cuda_kernels/kernels/row_norm.h"
#include "cuda_kernels/kernels/step_tables.h"
#include "cuda_kernels/runtime/device.h"

namespace tokend::cuda {

// cos and sin of the rotations of a step, for one rope (ops::RopeAngles).
struct RopeTable {
  float* cos = nullptr;  // [angle_rows, dims / 2], on the device
  float* sin = nullptr;  // the same
  int dims = 0;          // 0: no rotation
  bool halves = false;   // pairs (i, i + dims / 2), else (2i, 2i + 1)
};

struct RopeAnglesParams {
  const StepCounts* counts = nullptr;           // its angle_rows
  const int64_t* positions = nullptr;           // [angle_rows]
  const double* inverse_frequencies = nullptr;  // [dims / 2], on the device
  double magnitude = 1;                         // cos and sin times it
  RopeTable table;
  int max_angle_rows = 0;  // the launch covers as many
};

// cos and sin in double, rounded once.
absl::Status RopeAngles(const RopeAnglesParams& params, cudaStream_t stream);

struct AttentionParams {
  StepTables step;
  int layer = 0;
  KvLayout kv;
  unsigned char* arena = nullptr;  // [pages, kv.page_bytes()], 16-byte aligned
  int heads = 0;                   // a multiple of kv.kv_heads, at most 16 times as many
  const float* qkv = nullptr;      // [rows, qkv_stride]: heads, kv_heads, kv_heads of head_dim
  int64_t qkv_stride = 0;          // elements, a multiple of 4
  RowNorm query_norm;              // of each head, kRms, before the rotation; weight nullptr: none
  RowNorm key_norm;
  RopeTable rope;
  float scale = 0;     // on q . k
  float soft_cap = 0;  // cap(z) = soft_cap * tanh(z / soft_cap); 0: z
  // [rows, heads * head_dim]; zeros for rows before attend_begin. With out.lo, queries
  // and probabilities are pairs of f16, too (mode f32).
  HalfRows out;
  unsigned char* workspace = nullptr;  // AttentionWorkspaceBytes, 16-byte aligned
  int64_t workspace_bytes = 0;
  unsigned* saturations = nullptr;  // counts values that did not fit f16; on the device
};

// OK for shapes that the kernels take; else INVALID_ARGUMENT naming the shape.
absl::Status CheckAttentionShape(const KvLayout& kv, int heads);

// Tokens of one of StepCounts::attention_tiles. `pair`: mode f32.
int AttentionTileTokens(const KvLayout& kv, int heads, bool pair);

// DecodeAttention's, for `items` decode items of one layer. Zero before the first use;
// each use leaves it ready for the next.
int64_t AttentionWorkspaceBytes(const KvLayout& kv, int heads, int items);

// Keys and values of the rows of the append tiles, into their pages. The launch covers
// `tiles`, the step's or more.
absl::Status AppendKv(const AttentionParams& params, int tiles, cudaStream_t stream);

// The sequences of the layer's decode items: keys and values, then attention. Not in
// mode f32, whose steps have none. The grid depends on `max_items` (the most of one
// layer in any step that the launch is for) and the device alone, bits not on the device.
absl::Status DecodeAttention(const AttentionParams& params, const DeviceInfo& device, int max_items,
                             cudaStream_t stream);

// The rows of the attention tiles, after AppendKv. The launch covers `tiles`, the step's
// or more.
absl::Status PrefillAttention(const AttentionParams& params, const DeviceInfo& device, int tiles,
                              cudaStream_t stream);

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_H_
