// Vec in plain C++ at the compiler's baseline; see simd.h.
#ifndef TOKEND_CORE_CPU_SIMD_PLAIN_H_
#define TOKEND_CORE_CPU_SIMD_PLAIN_H_

#include <cstdint>

#include "core/ops/half.h"

namespace tokend::cpu::plain {

struct Vec {
  float v[16];
};
struct Mask {
  int begin, end;
};

// Lanes [begin, end); either may lie outside [0, 16].
inline Mask LaneRange(int64_t begin, int64_t end) {
  auto clamp = [](int64_t x) { return static_cast<int>(x < 0 ? 0 : x > 16 ? 16 : x); };
  return {clamp(begin), clamp(end)};
}

template <typename F>
inline Vec Lanes(F lane) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.v[i] = lane(i);
  return r;
}

inline Vec Set1(float x) {
  return Lanes([&](int) { return x; });
}
inline Vec Zero() { return Set1(0.0f); }
inline Vec Load(const float* from) {
  return Lanes([&](int i) { return from[i]; });
}
inline void Store(float* to, const Vec& a) {
  for (int i = 0; i < 16; ++i) to[i] = a.v[i];
}
inline Vec LoadPart(const float* from, int64_t n) {
  return Lanes([&](int i) { return i < n ? from[i] : 0.0f; });
}
inline void StorePart(float* to, const Vec& a, int64_t n) {
  for (int i = 0; i < 16 && i < n; ++i) to[i] = a.v[i];
}
inline Vec Load(const uint16_t* from) {
  return Lanes([&](int i) { return ops::F16ToF32(from[i]); });
}
inline Vec Load(const int8_t* from) {
  return Lanes([&](int i) { return static_cast<float>(from[i]); });
}
inline void StoreF16(uint16_t* to, const Vec& a) {
  for (int i = 0; i < 16; ++i) to[i] = ops::F32ToF16(a.v[i]);
}

inline Vec Add(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.v[i] + b.v[i]; });
}
inline Vec Sub(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.v[i] - b.v[i]; });
}
inline Vec Mul(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.v[i] * b.v[i]; });
}
inline Vec Div(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.v[i] / b.v[i]; });
}
inline Vec Fma(const Vec& a, const Vec& b, const Vec& c) {
  return Lanes([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
// b where either is NaN.
inline Vec Max(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec Min(const Vec& a, const Vec& b) {
  return Lanes([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec Abs(const Vec& a) {
  return Lanes([&](int i) { return __builtin_fabsf(a.v[i]); });
}
inline Vec Round(const Vec& a) {
  return Lanes([&](int i) { return __builtin_rintf(a.v[i]); });
}
// Lanes 2i and 2i + 1 change places.
inline Vec SwapPairs(const Vec& a) {
  return Lanes([&](int i) { return a.v[i ^ 1]; });
}
inline Vec Blend(const Vec& where_set, const Vec& where_clear, const Mask& mask) {
  return Lanes(
      [&](int i) { return i >= mask.begin && i < mask.end ? where_set.v[i] : where_clear.v[i]; });
}
inline Vec ZeroWhereLess(const Vec& x, float limit, const Vec& a) {
  return Lanes([&](int i) { return x.v[i] < limit ? 0.0f : a.v[i]; });
}
// a * 2^n for whole n; the result is a normal number. n may be anything where
// the result is thrown away.
inline Vec AddToExponent(const Vec& a, const Vec& n) {
  return Lanes([&](int i) {
    const bool whole = n.v[i] >= -127.0f && n.v[i] <= 127.0f;
    const auto by = static_cast<uint32_t>(whole ? static_cast<int32_t>(n.v[i]) : 0);
    return ops::FloatFromBits(ops::FloatBits(a.v[i]) + (by << 23));
  });
}

// Lane i with lane i + 8, then i + 4, i + 2, i + 1.
inline float SumLanes(Vec a) {
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) a.v[i] += a.v[i + half];
  }
  return a.v[0];
}
// NaN lanes may or may not count.
inline float MaxLanes(const Vec& a) {
  float max = a.v[0];
  for (int i = 1; i < 16; ++i) max = a.v[i] > max ? a.v[i] : max;
  return max;
}

}  // namespace tokend::cpu::plain

#endif  // TOKEND_CORE_CPU_SIMD_PLAIN_H_
