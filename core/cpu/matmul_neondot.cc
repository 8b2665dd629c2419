#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "core/cpu/matmul_impl.h"

namespace tokend::cpu {
namespace {

struct NeonDot {
  using F = float32x4_t;
  using I = int32x4_t;
  using C = int8x16_t;
  static constexpr int kLanes = 4;
  static constexpr int kVectors = kPanelOutputs / kLanes;
  static constexpr int kRegisters = 32;
  static constexpr int kTileRows = 4;
  static constexpr int VectorsFor(int rows) { return rows <= 2 ? 4 : 2; }
  // See matmul_formats.h.
  static constexpr int kDirectRows = 2;
  static constexpr bool kOffsetStarts = false;

  static TOKEND_INLINE F Zero() { return vdupq_n_f32(0); }
  static TOKEND_INLINE F Load(const float* p) { return vld1q_f32(p); }
  static TOKEND_INLINE void Store(float* p, F v) { vst1q_f32(p, v); }
  static TOKEND_INLINE F Broadcast(const float* p) { return vld1q_dup_f32(p); }
  static TOKEND_INLINE F Fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static TOKEND_INLINE F Mul(F a, F b) { return vmulq_f32(a, b); }
  static TOKEND_INLINE F Add(F a, F b) { return vaddq_f32(a, b); }
  static TOKEND_INLINE F Sub(F a, F b) { return vsubq_f32(a, b); }
  static TOKEND_INLINE F ToFloat(I v) { return vcvtq_f32_s32(v); }
  static TOKEND_INLINE uint16x4_t LoadWords(const uint8_t* p) {
    return vreinterpret_u16_u8(vld1_u8(p));
  }
  static TOKEND_INLINE F LoadF16(const uint8_t* p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(LoadWords(p)));
  }
  static TOKEND_INLINE F LoadBf16(const uint8_t* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(LoadWords(p), 16));
  }
  static TOKEND_INLINE uint8x8_t LoadFourBytes(const uint8_t* p) {
    uint32_t bytes;
    std::memcpy(&bytes, p, sizeof(bytes));
    return vreinterpret_u8_u32(vdup_n_u32(bytes));
  }
  static TOKEND_INLINE F LoadU8(const uint8_t* p) {
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(LoadFourBytes(p)))));
  }
  static TOKEND_INLINE F LoadS8(const uint8_t* p) {
    return ToFloat(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(LoadFourBytes(p))))));
  }

  static TOKEND_INLINE I BroadcastInt(const int32_t* p) { return vld1q_dup_s32(p); }
  static TOKEND_INLINE I AddInt(I a, I b) { return vaddq_s32(a, b); }
  static TOKEND_INLINE I ShiftLeft7(I v) { return vshlq_n_s32(v, 7); }

  static TOKEND_INLINE C LoadCodes(const uint8_t* p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }
  static TOKEND_INLINE void StoreCodes(uint8_t* p, C v) { vst1q_u8(p, vreinterpretq_u8_s8(v)); }
  static TOKEND_INLINE C LowNibbles(C v) { return vandq_s8(v, vdupq_n_s8(15)); }
  static TOKEND_INLINE C HighNibbles(C v) {
    return vreinterpretq_s8_u8(vshrq_n_u8(vreinterpretq_u8_s8(v), 4));
  }
  static TOKEND_INLINE C AddCodes(C v, char offset) {
    return vaddq_s8(v, vdupq_n_s8(static_cast<int8_t>(offset)));
  }
  static TOKEND_INLINE C BroadcastQuad(const int8_t* p) {
    int32_t quad;
    std::memcpy(&quad, p, sizeof(quad));
    return vreinterpretq_s8_s32(vdupq_n_s32(quad));
  }
  // The codes of one input each.
  static TOKEND_INLINE void SplitCodes(C v, F (&out)[4]) {
    const uint32x4_t lanes = vreinterpretq_u32_s8(v);
    const uint32x4_t mask = vdupq_n_u32(255);
    out[0] = vcvtq_f32_u32(vandq_u32(lanes, mask));
    out[1] = vcvtq_f32_u32(vandq_u32(vshrq_n_u32(lanes, 8), mask));
    out[2] = vcvtq_f32_u32(vandq_u32(vshrq_n_u32(lanes, 16), mask));
    out[3] = vcvtq_f32_u32(vshrq_n_u32(lanes, 24));
  }

  static TOKEND_INLINE int32_t Sum16(const int32_t* p) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(vld1q_s32(p), vld1q_s32(p + 4)),
                                vaddq_s32(vld1q_s32(p + 8), vld1q_s32(p + 12))));
  }
  static TOKEND_INLINE int32_t LargestMagnitude32(const float* p) {
    int32x4_t largest = vdupq_n_s32(0);
    for (int i = 0; i < 32; i += 4) {
      const int32x4_t bits = vreinterpretq_s32_f32(vabsq_f32(vld1q_f32(p + i)));
      largest = vmaxq_s32(largest, bits);
    }
    return vmaxvq_s32(largest);
  }

  // Signed times signed: codes below 128 as they are, those that count from 128
  // with their top bit flipped.
  template <bool kFrom128>
  struct Sdot {
    using A = int32x4_t;
    static constexpr bool kWide = true;
    static constexpr bool kStarts = false;
    static constexpr float kZero = kFrom128 ? 128 : 0;
    static TOKEND_INLINE A Zero() { return vdupq_n_s32(0); }
    static TOKEND_INLINE A Step(A sum, C codes, C quad) {
      return vdotq_s32(sum, kFrom128 ? veorq_s8(codes, vdupq_n_s8(-128)) : codes, quad);
    }
    static TOKEND_INLINE I Total(A sum) { return sum; }
  };
  using NibbleDot = Sdot<false>;
  using SmallDot = Sdot<false>;
  using OffsetDot = Sdot<true>;
};

}  // namespace

constexpr MatmulKernels kMatmulNeonDot = MakeMatmulKernels<NeonDot>();

}  // namespace tokend::cpu
