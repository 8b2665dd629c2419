// The bodies behind VectorKernels; see simd.h for what may stand here.
#ifndef TOKEND_CORE_CPU_VECTOR_KERNELS_IMPL_H_
#define TOKEND_CORE_CPU_VECTOR_KERNELS_IMPL_H_

#include "core/cpu/simd.h"
#include "core/cpu/vector_kernels.h"

namespace tokend::cpu::TOKEND_SIMD_NAMESPACE {
namespace {

Vec LoadUpTo(const float* from, int64_t n) { return n >= kLanes ? Load(from) : LoadPart(from, n); }
void StoreUpTo(float* to, Vec a, int64_t n) {
  if (n >= kLanes) {
    Store(to, a);
  } else {
    StorePart(to, a, n);
  }
}

float Sum(const Vec (&sums)[4]) {
  return SumLanes(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])));
}

void RmsNorm(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
  Vec sums[4] = {Zero(), Zero(), Zero(), Zero()};
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec v = LoadUpTo(x + i, n - i);
    Vec& sum = sums[i / kLanes % 4];
    sum = Fma(v, v, sum);
  }
  const float mean = Sum(sums) / static_cast<float>(n);
  const Vec scale = Set1(1.0f / __builtin_sqrtf(mean + epsilon));
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec v = Mul(LoadUpTo(x + i, n - i), scale);
    StoreUpTo(out + i, Mul(v, LoadUpTo(weight + i, n - i)), n - i);
  }
}

void LayerNorm(const float* x, const float* weight, const float* bias, int64_t n, float epsilon,
               float* out) {
  Vec sums[4] = {Zero(), Zero(), Zero(), Zero()};
  for (int64_t i = 0; i < n; i += kLanes) {
    Vec& sum = sums[i / kLanes % 4];
    sum = Add(sum, LoadUpTo(x + i, n - i));
  }
  const Vec mean = Set1(Sum(sums) / static_cast<float>(n));
  Vec squares[4] = {Zero(), Zero(), Zero(), Zero()};
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec v = KeepRange(Sub(LoadUpTo(x + i, n - i), mean), 0, n - i, 0.0f);
    Vec& sum = squares[i / kLanes % 4];
    sum = Fma(v, v, sum);
  }
  const float variance = Sum(squares) / static_cast<float>(n);
  const Vec scale = Set1(1.0f / __builtin_sqrtf(variance + epsilon));
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t left = n - i;
    const Vec v = Mul(Mul(Sub(LoadUpTo(x + i, left), mean), scale), LoadUpTo(weight + i, left));
    StoreUpTo(out + i, bias == nullptr ? v : Add(v, LoadUpTo(bias + i, left)), left);
  }
}

// exp(-z) = 2^(-z log2(e)); where it would pass 2^126 the result is 0 anyway.
Vec Silu(Vec z) {
  const Vec exponent = Min(Set1(126.0f), Mul(z, Set1(-0x1.715476p+0f)));
  return Div(z, Add(Set1(1.0f), Exp2(exponent)));
}

// z / 2 (1 + tanh(u)) = z / (1 + exp(-2 u)) with u = sqrt(2 / pi) (z + 0.044715 z^3):
// the constants are -2 sqrt(2 / pi) log2(e), the second one times 0.044715.
Vec GeluTanh(Vec z) {
  const Vec factor = Fma(Mul(z, z), Set1(-0x1.a5a7d0p-4f), Set1(-0x1.26aec2p+1f));
  const Vec exponent = Min(Set1(126.0f), Mul(z, factor));
  return Div(z, Add(Set1(1.0f), Exp2(exponent)));
}

// z times the normal distribution's integral up to z, which for -|z| is
// exp(-z^2 / 2) t g(t) with t = 1 / (1 + 0.3 |z|). g is a polynomial through its values
// at the 10 Chebyshev nodes of |z| in [0, 12], relative error 4e-9; beyond, it is 0.
Vec Gelu(Vec z) {
  const Vec t = Div(Set1(1.0f), Fma(Abs(z), Set1(0.3f), Set1(1.0f)));
  Vec g = Set1(-0x1.510188p-6f);
  g = Fma(g, t, Set1(0x1.cb6830p-4f));
  g = Fma(g, t, Set1(-0x1.d223c8p-3f));
  g = Fma(g, t, Set1(0x1.8738acp-3f));
  g = Fma(g, t, Set1(-0x1.42df9cp-4f));
  g = Fma(g, t, Set1(0x1.889874p-4f));
  g = Fma(g, t, Set1(0x1.4183e2p-4f));
  g = Fma(g, t, Set1(0x1.c36e08p-4f));
  g = Fma(g, t, Set1(0x1.e9c73cp-4f));
  g = Fma(g, t, Set1(0x1.ea3c6ap-4f));
  const Vec below = Mul(Exp2(Mul(Mul(z, z), Set1(-0x1.715476p-1f))), Mul(g, t));
  const Vec rest = Fma(below, Set1(-2.0f), Set1(1.0f));  // between -|z| and |z|
  return Mul(z, Add(below, ZeroWhereLess(z, 0.0f, rest)));
}

template <Vec (*kActivate)(Vec)>
void Gate(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec activated = kActivate(LoadUpTo(gate + i, n - i));
    StoreUpTo(out + i, Mul(activated, LoadUpTo(up + i, n - i)), n - i);
  }
}

template <Vec (*kActivate)(Vec)>
void Activate(const float* z, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    StoreUpTo(out + i, kActivate(LoadUpTo(z + i, n - i)), n - i);
  }
}

void ScaleAndCap(float factor, float cap, int64_t n, float* x) {
  const Vec times = Set1(cap == 0 ? factor : factor / cap);
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec v = Mul(LoadUpTo(x + i, n - i), times);
    StoreUpTo(x + i, cap == 0 ? v : Mul(Tanh(v), Set1(cap)), n - i);
  }
}

void AddScaled(const float* from, float factor, int64_t n, float* to) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec v = LoadUpTo(from + i, n - i);
    StoreUpTo(to + i, Fma(v, Set1(factor), LoadUpTo(to + i, n - i)), n - i);
  }
}

// One run of `n` dimensions whose partners stand at `partner`.
void RotateRun(const float* x, const float* partner, const float* cos, const float* sin, int64_t n,
               Vec factor, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t left = n - i;
    const Vec turned = Mul(LoadUpTo(partner + i, left), LoadUpTo(sin + i, left));
    const Vec sum = Fma(LoadUpTo(x + i, left), LoadUpTo(cos + i, left), turned);
    StoreUpTo(out + i, Mul(sum, factor), left);
  }
}

void Rotate(const float* head, const RopeAngleRow& angles, int head_dim, float factor, float* out) {
  const int dims = angles.dims;
  const Vec times = Set1(factor);
  if (angles.halves) {
    const int half = dims / 2;
    RotateRun(head, head + half, angles.cos, angles.sin, half, times, out);
    RotateRun(head + half, head, angles.cos + half, angles.sin + half, half, times, out + half);
  } else {
    for (int64_t i = 0; i < dims; i += kLanes) {
      const int64_t left = dims - i;
      const Vec x = LoadUpTo(head + i, left);
      const Vec turned = Mul(SwapPairs(x), LoadUpTo(angles.sin + i, left));
      const Vec sum = Fma(x, LoadUpTo(angles.cos + i, left), turned);
      StoreUpTo(out + i, Mul(sum, times), left);
    }
  }
  for (int64_t i = dims; i < head_dim; i += kLanes) {
    StoreUpTo(out + i, Mul(LoadUpTo(head + i, head_dim - i), times), head_dim - i);
  }
}

template <typename T>
void Scatter(const T* from, int64_t n, T* column, int64_t stride) {
  for (int64_t i = 0; i < n; ++i) column[i * stride] = from[i];
}

void EncodeF16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    // NaN is Min's and Max's second operand, and stays.
    const Vec capped = Max(Set1(-65504.0f), Min(Set1(65504.0f), LoadUpTo(x + i, n - i)));
    StoreF16(out + i, capped);
  }
}

// Codes, and the f16 scale.
uint16_t EncodeInt8(const float* x, int64_t n, int8_t* out) {
  Vec largest = Zero();
  Vec poison = Zero();  // NaN where x is not finite
  for (int64_t i = 0; i < n; i += kLanes) {
    const Vec v = LoadUpTo(x + i, n - i);
    largest = Max(largest, Abs(v));
    poison = Fma(v, Zero(), poison);
  }
  const float scale = MaxLanes(largest) / 127.0f + SumLanes(poison);
  uint16_t halves[kLanes];
  StoreF16(halves, Min(Set1(65504.0f), Set1(scale)));
  float rounded[kLanes];
  Store(rounded, Load(halves));
  const float inverse = rounded[0] > 0 ? 1.0f / rounded[0] : 0.0f;
  for (int64_t i = 0; i < n; i += kLanes) {
    float codes[kLanes];
    const Vec code = Round(Mul(LoadUpTo(x + i, n - i), Set1(inverse)));
    Store(codes, Max(Min(code, Set1(127.0f)), Set1(-127.0f)));
    for (int64_t j = 0; j < Least(kLanes, n - i); ++j) {
      out[i + j] = inverse > 0 ? static_cast<int8_t>(codes[j]) : int8_t{0};
    }
  }
  return halves[0];
}

void StoreKv(const KvLayout& layout, const KvSlot& slot, int kv_head, const float* key,
             const float* value) {
  const int64_t n = layout.head_dim;
  const int64_t stride = layout.page_tokens;
  std::byte* keys = slot.keys + kv_head * layout.head_bytes();
  std::byte* values = slot.values + kv_head * layout.head_bytes();
  if (layout.dtype == base::KvDtype::kF32) {
    Scatter(key, n, reinterpret_cast<float*>(keys) + slot.slot, stride);
    Scatter(value, n, reinterpret_cast<float*>(values) + slot.slot * n, 1);
  } else if (layout.dtype == base::KvDtype::kF16) {
    uint16_t halves[kMaxHeadDim + kLanes];
    EncodeF16(key, n, halves);
    Scatter(halves, n, reinterpret_cast<uint16_t*>(keys) + slot.slot, stride);
    EncodeF16(value, n, halves);
    Scatter(halves, n, reinterpret_cast<uint16_t*>(values) + slot.slot * n, 1);
  } else {
    int8_t codes[kMaxHeadDim];
    const int64_t scales = layout.scale_offset(kv_head) + slot.slot * 2;
    *reinterpret_cast<uint16_t*>(slot.keys + scales) = EncodeInt8(key, n, codes);
    Scatter(codes, n, reinterpret_cast<int8_t*>(keys) + slot.slot, stride);
    *reinterpret_cast<uint16_t*>(slot.values + scales) = EncodeInt8(value, n, codes);
    Scatter(codes, n, reinterpret_cast<int8_t*>(values) + slot.slot * n, 1);
  }
}

}  // namespace

extern const VectorKernels kVectorKernels;
const VectorKernels kVectorKernels = {
    RmsNorm,
    LayerNorm,
    {Gate<Silu>, Gate<GeluTanh>, Gate<Gelu>},
    {Activate<Silu>, Activate<GeluTanh>, Activate<Gelu>},
    ScaleAndCap,
    AddScaled,
    Rotate,
    StoreKv,
};

}  // namespace tokend::cpu::TOKEND_SIMD_NAMESPACE

#endif  // TOKEND_CORE_CPU_VECTOR_KERNELS_IMPL_H_
