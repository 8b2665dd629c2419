// CUDA's built-in functions for kernels on the host, as the programming guide and
// the math API manual define them. Included by simt.h alone.
#ifndef TOKEND_TESTS_SIMT_INTRINSICS_H_
#define TOKEND_TESTS_SIMT_INTRINSICS_H_

#ifndef __launch_bounds__
#define __launch_bounds__(...)
#endif

// ---- Barriers and fences ----
inline void __syncthreads(TOKEND_SIMT_SITE) {
  tokend::simt::SyncBlock(tokend::simt::BlockVote::kNone, 0, site);
}
inline int __syncthreads_or(int predicate, TOKEND_SIMT_SITE) {
  return tokend::simt::SyncBlock(tokend::simt::BlockVote::kOr, predicate, site);
}
inline int __syncthreads_and(int predicate, TOKEND_SIMT_SITE) {
  return tokend::simt::SyncBlock(tokend::simt::BlockVote::kAnd, predicate, site);
}
inline int __syncthreads_count(int predicate, TOKEND_SIMT_SITE) {
  return tokend::simt::SyncBlock(tokend::simt::BlockVote::kCount, predicate, site);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, TOKEND_SIMT_SITE) {
  tokend::simt::WarpCollective(tokend::simt::WarpOp::kSync, mask, 0, 0, 32, site);
}
// Blocks run one after the other: only the shadow has something to order.
inline void __threadfence() { tokend::simt::ThreadFence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { tokend::simt::ThreadFence(); }
inline void __nanosleep(unsigned) {}
inline void __trap(TOKEND_SIMT_SITE) { tokend::simt::Trap(site); }
inline unsigned __activemask() { return tokend::simt::ActiveMask(); }

// ---- Warp votes and shuffles ----
inline unsigned __ballot_sync(unsigned mask, int predicate, TOKEND_SIMT_SITE) {
  return static_cast<unsigned>(tokend::simt::WarpCollective(tokend::simt::WarpOp::kBallot, mask,
                                                            predicate != 0, 0, 32, site));
}
inline int __any_sync(unsigned mask, int predicate, TOKEND_SIMT_SITE) {
  return __ballot_sync(mask, predicate, site) != 0;
}
inline int __all_sync(unsigned mask, int predicate, TOKEND_SIMT_SITE) {
  return __ballot_sync(mask, predicate, site) == mask;
}

namespace tokend::simt {
template <typename T>
uint64_t ToBits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <typename T>
T FromBits(uint64_t bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T>
T Shuffle(WarpOp op, unsigned mask, T value, int argument, int width, Site site) {
  return FromBits<T>(WarpCollective(op, mask, ToBits(value), argument, width, site));
}
}  // namespace tokend::simt

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, TOKEND_SIMT_SITE) {
  return tokend::simt::Shuffle(tokend::simt::WarpOp::kShuffle, mask, value, source, width, site);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, TOKEND_SIMT_SITE) {
  return tokend::simt::Shuffle(tokend::simt::WarpOp::kShuffleUp, mask, value,
                               static_cast<int>(delta), width, site);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, TOKEND_SIMT_SITE) {
  return tokend::simt::Shuffle(tokend::simt::WarpOp::kShuffleDown, mask, value,
                               static_cast<int>(delta), width, site);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, TOKEND_SIMT_SITE) {
  return tokend::simt::Shuffle(tokend::simt::WarpOp::kShuffleXor, mask, value, lanes, width, site);
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value, TOKEND_SIMT_SITE) {
  return static_cast<unsigned>(tokend::simt::WarpCollective(
      tokend::simt::WarpOp::kMatch, mask, tokend::simt::ToBits(value), 0, 32, site));
}

#define TOKEND_SIMT_REDUCE(name, op)                                                       \
  inline unsigned name(unsigned mask, unsigned value, TOKEND_SIMT_SITE) {                  \
    return static_cast<unsigned>(                                                          \
        tokend::simt::WarpCollective(tokend::simt::WarpOp::op, mask, value, 0, 32, site)); \
  }                                                                                        \
  inline int name(unsigned mask, int value, TOKEND_SIMT_SITE) {                            \
    return static_cast<int>(tokend::simt::WarpCollective(                                  \
        tokend::simt::WarpOp::op, mask, static_cast<unsigned>(value), 1, 32, site));       \
  }
TOKEND_SIMT_REDUCE(__reduce_add_sync, kReduceAdd)
TOKEND_SIMT_REDUCE(__reduce_min_sync, kReduceMin)
TOKEND_SIMT_REDUCE(__reduce_max_sync, kReduceMax)
TOKEND_SIMT_REDUCE(__reduce_and_sync, kReduceAnd)
TOKEND_SIMT_REDUCE(__reduce_or_sync, kReduceOr)
TOKEND_SIMT_REDUCE(__reduce_xor_sync, kReduceXor)
#undef TOKEND_SIMT_REDUCE

// ---- Atomics: each returns the old value ----
namespace tokend::simt {
template <typename T>
__attribute__((no_sanitize("thread"))) T AtomicLoad(const T* at) {
  AtomicAccess(at, sizeof(T));
  return *at;
}
template <typename T>
__attribute__((no_sanitize("thread"))) void AtomicStore(T* at, T value) {
  *at = value;
}
}  // namespace tokend::simt

#define TOKEND_SIMT_ATOMIC(name, expression)           \
  template <typename T>                                \
  T name(T* address, std::type_identity_t<T> value) {  \
    const T old = tokend::simt::AtomicLoad(address);   \
    tokend::simt::AtomicStore<T>(address, expression); \
    return old;                                        \
  }
TOKEND_SIMT_ATOMIC(atomicAdd, old + value)
TOKEND_SIMT_ATOMIC(atomicSub, old - value)
TOKEND_SIMT_ATOMIC(atomicExch, value)
TOKEND_SIMT_ATOMIC(atomicMin, value < old ? value : old)
TOKEND_SIMT_ATOMIC(atomicMax, value > old ? value : old)
TOKEND_SIMT_ATOMIC(atomicAnd, old& value)
TOKEND_SIMT_ATOMIC(atomicOr, old | value)
TOKEND_SIMT_ATOMIC(atomicXor, old ^ value)
TOKEND_SIMT_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
TOKEND_SIMT_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1)
#undef TOKEND_SIMT_ATOMIC
template <typename T>
T atomicCAS(T* address, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  const T old = tokend::simt::AtomicLoad(address);
  if (old == compare) tokend::simt::AtomicStore<T>(address, value);
  return old;
}

// ---- Loads and stores with a cache hint ----
template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
template <typename T>
T __ldca(const T* address) {
  return *address;
}
template <typename T>
T __ldcs(const T* address) {
  return *address;
}
template <typename T>
T __ldcv(const T* address) {
  return *address;
}
template <typename T>
void __stcg(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <typename T>
void __stcs(T* address, std::type_identity_t<T> value) {
  *address = value;
}
template <typename T>
void __stwt(T* address, std::type_identity_t<T> value) {
  *address = value;
}

// ---- Bits ----
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) {
    r |= static_cast<unsigned>(bytes >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
  }
  return r;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) << (shift & 31) >> 32);
}
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<uint64_t>(x) * y >> 32);
}
__extension__ typedef unsigned __int128 tokend_simt_u128;
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
  return static_cast<unsigned long long>(static_cast<tokend_simt_u128>(x) * y >> 64);
}
inline int __dp4a(int x, int y, int sum) {
  for (int i = 0; i < 32; i += 8) {
    sum += static_cast<signed char>(x >> i) * static_cast<signed char>(y >> i);
  }
  return sum;
}
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// ---- Arithmetic ----
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fmaf(x, y, z); }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return std::fma(x, y, z); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }
inline int __float2int_rn(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return static_cast<int>(x); }
inline unsigned __float2uint_rn(float x) { return static_cast<unsigned>(std::nearbyint(x)); }
inline unsigned __float2uint_rz(float x) { return static_cast<unsigned>(x); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline unsigned long long __float2ull_rn(float x) {
  return static_cast<unsigned long long>(std::nearbyint(x));
}
inline unsigned long long __double2ull_rn(double x) {
  return static_cast<unsigned long long>(std::nearbyint(x));
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }

// CUDA's mixed overloads: the common type of both.
template <typename A, typename B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(
    A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmin(static_cast<T>(a), static_cast<T>(b));
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <typename A, typename B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(
    A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmax(static_cast<T>(a), static_cast<T>(b));
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

// ---- half: what cuda_fp16.h has for nvcc alone ----
// The product of two halves is exact in double, and so is nearly every sum.
inline __half __hfma(__half x, __half y, __half z) {
  return __double2half(std::fma(static_cast<double>(__half2float(x)),
                                static_cast<double>(__half2float(y)),
                                static_cast<double>(__half2float(z))));
}
inline __half2 __hfma2(__half2 x, __half2 y, __half2 z) {
  return __halves2half2(__hfma(x.x, y.x, z.x), __hfma(x.y, y.y, z.y));
}

#endif  // TOKEND_TESTS_SIMT_INTRINSICS_H_
