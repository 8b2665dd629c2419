// Work on a whole head, done by one warp: q/k norm, rope, and its way into a page or a
// block's shared memory. DecodeAttention, PrefillAttention and AppendKv share it.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_HEAD_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_HEAD_CUH_

#include "cuda_kernels/kernels/attention.h"
#include "cuda_kernels/kernels/attention_tile.cuh"
#include "cuda_kernels/kernels/half_rows.cuh"

namespace tokend::cuda {

// A lane holds the elements lane + 32 i of a head.
inline constexpr int kLaneElements = kMaxHeadDim / kWarpLanes;

struct HeadValues {
  float at[kLaneElements];
};

TOKEND_DEVICE HeadValues LoadHead(const float* head, int head_dim) {
  HeadValues values;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    const int e = Lane() + i * kWarpLanes;
    values.at[i] = e < head_dim ? head[e] : 0.0f;
  }
  return values;
}

// RMS norm: squares by lane, i ascending, then a butterfly over the lanes.
TOKEND_DEVICE void NormHead(const RowNorm& norm, int head_dim, HeadValues* values) {
  if (norm.weight == nullptr) return;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) sum = fmaf(values->at[i], values->at[i], sum);
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, offset);
  }
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(head_dim) + norm.epsilon);
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    const int e = Lane() + i * kWarpLanes;
    if (e < head_dim) values->at[i] = values->at[i] * scale * norm.weight[e];
  }
}

// Rotates by row `angles` of the table. `scratch` [head_dim] holds the values, which the
// warp's lanes have all written.
TOKEND_DEVICE HeadValues RotateHead(const RopeTable& rope, int64_t angles, int head_dim,
                                    const HeadValues& values, const float* scratch) {
  const int pairs = rope.dims / 2;
  const float* cos = rope.cos + angles * pairs;
  const float* sin = rope.sin + angles * pairs;
  HeadValues rotated = values;
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    const int e = Lane() + i * kWarpLanes;
    if (e >= head_dim || e >= rope.dims) continue;
    const bool first = rope.halves ? e < pairs : e % 2 == 0;
    const int distance = rope.halves ? pairs : 1;
    const int pair = rope.halves ? (first ? e : e - pairs) : e / 2;
    const float other = scratch[first ? e + distance : e - distance] * sin[pair];
    rotated.at[i] = fmaf(values.at[i], cos[pair], first ? -other : other);
  }
  return rotated;
}

// Other lanes' elements are at hand in `scratch` [head_dim] afterwards.
TOKEND_DEVICE void ShareHead(const HeadValues& values, int head_dim, float* scratch) {
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    const int e = Lane() + i * kWarpLanes;
    if (e < head_dim) scratch[e] = values.at[i];
  }
  __syncwarp();
}

// One f16 scale for the head, max |x| / 127; codes round(x / scale).
TOKEND_DEVICE __half Int8Scale(const HeadValues& values, unsigned* saturations) {
  float largest = 0;
  float poison = 0;  // NaN where a value is not finite
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    largest = fmaxf(largest, fabsf(values.at[i]));
    poison = fmaf(values.at[i], 0.0f, poison);
  }
#pragma unroll
  for (int offset = kWarpLanes / 2; offset > 0; offset /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, offset));
    poison += __shfl_xor_sync(kAllLanes, poison, offset);
  }
  // 127 times the largest scale is an f16.
  constexpr float kLargestScale = 515.5f;
  float scale = largest / 127.0f + poison;
  if (scale > kLargestScale) {
    scale = kLargestScale;
    if (Lane() == 0) atomicAdd(saturations, 1u);
  }
  return __float2half_rn(scale);
}

// Writes a head to elements `stride` apart from `codes` on, in f16 or as int8 codes with
// their scale.
TOKEND_DEVICE void StoreHead(const HeadValues& values, int head_dim, bool int8,
                             unsigned char* codes, int64_t stride, unsigned char* scale,
                             unsigned* saturations) {
  float inverse = 0;
  if (int8) {
    const __half rounded = Int8Scale(values, saturations);
    if (Lane() == 0) *reinterpret_cast<__half*>(scale) = rounded;
    const float wide = __half2float(rounded);
    inverse = wide > 0 ? 1.0f / wide : 0.0f;
  }
#pragma unroll
  for (int i = 0; i < kLaneElements; ++i) {
    const int e = Lane() + i * kWarpLanes;
    if (e >= head_dim) continue;
    if (int8) {
      const float code = inverse > 0 ? rintf(values.at[i] * inverse) : 0.0f;
      reinterpret_cast<int8_t*>(codes)[e * stride] =
          static_cast<int8_t>(fminf(fmaxf(code, -127.0f), 127.0f));
    } else {
      reinterpret_cast<__half*>(codes)[e * stride] = SplitHalf(values.at[i], saturations).hi;
    }
  }
}

// The page that holds logical page `index`; -1: none.
TOKEND_DEVICE int32_t FindPage(const StepTables& step, const LayerTable& table, int64_t index) {
  int64_t entry = index;
  if (index >= table.sink_pages) {
    if (index < table.first_page) return -1;
    entry = table.sink_pages + index - table.first_page;
  }
  return entry < table.page_count ? step.words[table.pages + entry] : -1;
}

// Keys or values of one KV head of row `row`, which stands at `position`, into its page.
// `scratch` is [head_dim] of this warp.
TOKEND_DEVICE void AppendHead(const AttentionParams& params, const LayerTable& table, int64_t row,
                              int64_t position, int kv_head, bool keys, int head_dim, bool int8,
                              float* scratch) {
  const KvLayout& kv = params.kv;
  const int32_t page = FindPage(params.step, table, position >> kv.page_shift());
  if (page < 0) return;
  const auto slot = static_cast<int>(position & (kv.page_tokens - 1));
  const int head = params.heads + (keys ? 0 : kv.kv_heads) + kv_head;
  HeadValues values =
      LoadHead(params.qkv + row * params.qkv_stride + int64_t{head} * head_dim, head_dim);
  if (keys) {
    NormHead(params.key_norm, head_dim, &values);
    ShareHead(values, head_dim, scratch);
    values = RotateHead(params.rope, row, head_dim, values, scratch);
  }
  const int64_t codes = keys ? kv.key_offset(kv_head) + slot * head_dim * kv.element_bytes()
                             : kv.value_offset(kv_head) + slot * kv.element_bytes();
  const int64_t scale = keys ? kv.key_scale_offset(kv_head) : kv.value_scale_offset(kv_head);
  unsigned char* base = params.arena + page * kv.page_bytes();
  StoreHead(values, head_dim, int8, base + codes, keys ? 1 : kv.page_tokens,
            base + scale + slot * 2, params.saturations);
}

// Rounds a query head into row `to` of a block's queries, for its own position and, if
// `sinks`, for sinks. `low`, unless negative: the row of the low parts.
template <typename Tile>
TOKEND_DEVICE void PrepareQuery(const AttentionParams& params, const LayerTable& table, int64_t row,
                                int64_t position, int head, int to, int low, bool sinks,
                                unsigned char* shared) {
  float* scratch = reinterpret_cast<float*>(shared + Tile::kScratch) + Warp() * Tile::kHeadDim;
  HeadValues values = LoadHead(
      params.qkv + row * params.qkv_stride + int64_t{head} * Tile::kHeadDim, Tile::kHeadDim);
  NormHead(params.query_norm, Tile::kHeadDim, &values);
  ShareHead(values, Tile::kHeadDim, scratch);
#pragma unroll 1
  for (int sink = 0; sink < (sinks ? 2 : 1); ++sink) {
    const int64_t angles = sink && position > table.sink_position ? table.sink_angles : row;
    const HeadValues rotated = RotateHead(params.rope, angles, Tile::kHeadDim, values, scratch);
    unsigned char* query = shared + (sink ? Tile::kSinkQuery : Tile::kQuery);
#pragma unroll
    for (int i = 0; i < kLaneElements; ++i) {
      const int e = Lane() + i * kWarpLanes;
      if (e >= Tile::kHeadDim) continue;
      const HalfPair pair = SplitHalf(rotated.at[i], params.saturations);
      const int at = e % 16 * 2;
      *reinterpret_cast<__half*>(query + HalfUnit<Tile::kHeadDim>(to, e / 16) + at) = pair.hi;
      if (low < 0) continue;
      *reinterpret_cast<__half*>(query + HalfUnit<Tile::kHeadDim>(low, e / 16) + at) = pair.lo;
    }
  }
}

// A row of zeros in place of a query, which nobody looks at.
template <typename Tile>
TOKEND_DEVICE void ClearQuery(int to, bool sinks, unsigned char* shared) {
  for (int chunk = Lane(); chunk < Tile::kHeadDim / 8; chunk += kWarpLanes) {
    const int at = HalfUnit<Tile::kHeadDim>(to, chunk / 2) + chunk % 2 * 16;
    *reinterpret_cast<uint4*>(shared + Tile::kQuery + at) = make_uint4(0, 0, 0, 0);
    if (sinks) *reinterpret_cast<uint4*>(shared + Tile::kSinkQuery + at) = make_uint4(0, 0, 0, 0);
  }
}

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_HEAD_CUH_
