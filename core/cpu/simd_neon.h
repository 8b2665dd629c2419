// Vec for AArch64 NEON; see simd.h.
#ifndef TOKEND_CORE_CPU_SIMD_NEON_H_
#define TOKEND_CORE_CPU_SIMD_NEON_H_

#include <arm_neon.h>

#include <cstdint>

namespace tokend::cpu::neon {

struct Vec {
  float32x4_t v[4];
};
struct Mask {
  uint32x4_t m[4];
};

// Lanes [begin, end); either may lie outside [0, 16].
inline Mask LaneRange(int64_t begin, int64_t end) {
  const int32_t from = begin < 0 ? 0 : begin > 16 ? 16 : static_cast<int32_t>(begin);
  const int32_t to = end < 0 ? 0 : end > 16 ? 16 : static_cast<int32_t>(end);
  const int32_t first[4] = {0, 1, 2, 3};
  Mask mask;
  for (int i = 0; i < 4; ++i) {
    const int32x4_t lane = vaddq_s32(vld1q_s32(first), vdupq_n_s32(4 * i));
    mask.m[i] = vandq_u32(vcgeq_s32(lane, vdupq_n_s32(from)), vcltq_s32(lane, vdupq_n_s32(to)));
  }
  return mask;
}

inline Vec Set1(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {{v, v, v, v}};
}
inline Vec Zero() { return Set1(0.0f); }
inline Vec Load(const float* from) {
  return {{vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
}
inline void Store(float* to, Vec a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(to + 4 * i, a.v[i]);
}
inline Vec LoadPart(const float* from, int64_t n) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n && i < 16; ++i) lanes[i] = from[i];
  return Load(lanes);
}
inline void StorePart(float* to, Vec a, int64_t n) {
  float lanes[16];
  Store(lanes, a);
  for (int64_t i = 0; i < n && i < 16; ++i) to[i] = lanes[i];
}
inline Vec Load(const uint16_t* from) {
  Vec a;
  for (int i = 0; i < 4; ++i) {
    a.v[i] = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + 4 * i)));
  }
  return a;
}
inline Vec Load(const int8_t* from) {
  const int8x16_t bytes = vld1q_s8(from);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
  return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
           vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
           vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))}};
}
inline void StoreF16(uint16_t* to, Vec a) {
  for (int i = 0; i < 4; ++i) vst1_u16(to + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
}

#define TOKEND_NEON_LANES(expression)              \
  Vec r;                                           \
  for (int i = 0; i < 4; ++i) r.v[i] = expression; \
  return r

inline Vec Add(Vec a, Vec b) { TOKEND_NEON_LANES(vaddq_f32(a.v[i], b.v[i])); }
inline Vec Sub(Vec a, Vec b) { TOKEND_NEON_LANES(vsubq_f32(a.v[i], b.v[i])); }
inline Vec Mul(Vec a, Vec b) { TOKEND_NEON_LANES(vmulq_f32(a.v[i], b.v[i])); }
inline Vec Div(Vec a, Vec b) { TOKEND_NEON_LANES(vdivq_f32(a.v[i], b.v[i])); }
inline Vec Fma(Vec a, Vec b, Vec c) { TOKEND_NEON_LANES(vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
// b where either is NaN.
inline Vec Max(Vec a, Vec b) {
  TOKEND_NEON_LANES(vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]));
}
inline Vec Min(Vec a, Vec b) {
  TOKEND_NEON_LANES(vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]));
}
inline Vec Abs(Vec a) { TOKEND_NEON_LANES(vabsq_f32(a.v[i])); }
inline Vec Round(Vec a) { TOKEND_NEON_LANES(vrndnq_f32(a.v[i])); }
// Lanes 2i and 2i + 1 change places.
inline Vec SwapPairs(Vec a) { TOKEND_NEON_LANES(vrev64q_f32(a.v[i])); }
inline Vec Blend(Vec where_set, Vec where_clear, Mask mask) {
  TOKEND_NEON_LANES(vbslq_f32(mask.m[i], where_set.v[i], where_clear.v[i]));
}
inline Vec ZeroWhereLess(Vec x, float limit, Vec a) {
  TOKEND_NEON_LANES(vreinterpretq_f32_u32(
      vbicq_u32(vreinterpretq_u32_f32(a.v[i]), vcltq_f32(x.v[i], vdupq_n_f32(limit)))));
}
// a * 2^n for whole n; the result is a normal number.
inline Vec AddToExponent(Vec a, Vec n) {
  TOKEND_NEON_LANES(vreinterpretq_f32_s32(
      vaddq_s32(vreinterpretq_s32_f32(a.v[i]), vshlq_n_s32(vcvtnq_s32_f32(n.v[i]), 23))));
}

#undef TOKEND_NEON_LANES

// Lane i with lane i + 8, then i + 4, i + 2, i + 1.
inline float SumLanes(Vec a) {
  const float32x4_t four = vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
// NaN lanes may or may not count.
inline float MaxLanes(Vec a) {
  return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[2]), vmaxq_f32(a.v[1], a.v[3])));
}

}  // namespace tokend::cpu::neon

#endif  // TOKEND_CORE_CPU_SIMD_NEON_H_
