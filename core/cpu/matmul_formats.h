// How the matmul kernels read a block of each packed format (packed_matrix.h).
// S is the instruction set's traits type (see matmul_avx512.cc for one); every
// instance belongs to one translation unit.
#ifndef TOKEND_CORE_CPU_MATMUL_FORMATS_H_
#define TOKEND_CORE_CPU_MATMUL_FORMATS_H_

#include <cstdint>
#include <type_traits>

#include "core/cpu/packed_matrix.h"

namespace tokend::cpu {

#define TOKEND_INLINE inline __attribute__((always_inline))
#define TOKEND_NOINLINE __attribute__((noinline))

inline constexpr int kNibbleBytes = 512;  // codes of a block of 32 x 32
inline constexpr int kByteBytes = 1024;

// A block's parts.
struct BlockParts {
  const uint8_t* codes;
  const uint8_t* scales;  // behind the codes
  const uint8_t* super;   // head of the super-block; K types only
};

// What a format says of itself:
//   Dot       S's policy for the range of its codes
//   kNibbles  codes are nibbles, otherwise bytes
//   kZero8    weights count from code 8
//   kMinima   a minimum is added
//   kGroups   scales per block and output
//   kDirectRows   up to so many rows are multiplied straight from the panel, more
//                 through blocks unpacked once; 0: any number
//   kBytesOf8 bytes of 8 blocks of a panel
// Parts(panel, b) finds block b; Scale and Minimum give vector `v` of outputs.
template <class S, class DotPolicy, bool kNibblesValue, bool kZero8Value, bool kMinimaValue>
struct SimpleFormat {
  using Dot = DotPolicy;
  static constexpr bool kNibbles = kNibblesValue;
  static constexpr bool kZero8 = kZero8Value;
  static constexpr bool kMinima = kMinimaValue;
  static constexpr int kGroups = 1;
  static constexpr int kDirectRows = kNibbles ? S::kDirectRows : 0;
  static constexpr int kCodeBytes = kNibbles ? kNibbleBytes : kByteBytes;
  static constexpr int kBlockBytes = kCodeBytes + (kMinima ? 128 : 64);
  static constexpr int kBytesOf8 = 8 * kBlockBytes;

  static TOKEND_INLINE BlockParts Parts(const uint8_t* panel, int64_t b) {
    const uint8_t* codes = panel + b * kBlockBytes;
    return {codes, codes + kCodeBytes, nullptr};
  }
  static TOKEND_INLINE typename S::F Scale(const BlockParts& parts, int /*group*/, int v) {
    return S::LoadF16(parts.scales + v * S::kLanes * 2);
  }
  static TOKEND_INLINE typename S::F Minimum(const BlockParts& parts, int v) {
    return S::LoadF16(parts.scales + 64 + v * S::kLanes * 2);
  }
};

// Q4_K and Q5_K: d and -dmin ahead of 8 blocks, u8 scales and minima in each.
template <class S, class DotPolicy, bool kNibblesValue>
struct SuperFormat {
  using Dot = DotPolicy;
  static constexpr bool kNibbles = kNibblesValue;
  static constexpr bool kZero8 = false;
  static constexpr bool kMinima = true;
  static constexpr int kGroups = 1;
  static constexpr int kDirectRows = kNibbles || S::kDirectRows == 0 ? S::kDirectRows : 1;
  static constexpr int kCodeBytes = kNibbles ? kNibbleBytes : kByteBytes;
  static constexpr int kBlockBytes = kCodeBytes + 64;
  static constexpr int kBytesOf8 = 128 + 8 * kBlockBytes;

  static TOKEND_INLINE BlockParts Parts(const uint8_t* panel, int64_t b) {
    const uint8_t* super = panel + (b >> 3) * kBytesOf8;
    const uint8_t* codes = super + 128 + (b & 7) * kBlockBytes;
    return {codes, codes + kCodeBytes, super};
  }
  static TOKEND_INLINE typename S::F Scale(const BlockParts& parts, int /*group*/, int v) {
    return S::Mul(S::LoadF16(parts.super + v * S::kLanes * 2),
                  S::LoadU8(parts.scales + v * S::kLanes));
  }
  static TOKEND_INLINE typename S::F Minimum(const BlockParts& parts, int v) {
    return S::Mul(S::LoadF16(parts.super + 64 + v * S::kLanes * 2),
                  S::LoadU8(parts.scales + 32 + v * S::kLanes));
  }
};

// Q6_K: d ahead of 8 blocks, two s8 scales in each.
template <class S>
struct HalvesFormat {
  using Dot = typename S::OffsetDot;
  static constexpr bool kNibbles = false;
  static constexpr bool kZero8 = false;
  static constexpr bool kMinima = false;
  static constexpr int kGroups = 2;
  static constexpr int kDirectRows = S::kDirectRows == 0 ? 0 : 1;
  static constexpr int kCodeBytes = kByteBytes;
  static constexpr int kBlockBytes = kCodeBytes + 64;
  static constexpr int kBytesOf8 = 64 + 8 * kBlockBytes;

  static TOKEND_INLINE BlockParts Parts(const uint8_t* panel, int64_t b) {
    const uint8_t* super = panel + (b >> 3) * kBytesOf8;
    const uint8_t* codes = super + 64 + (b & 7) * kBlockBytes;
    return {codes, codes + kCodeBytes, super};
  }
  static TOKEND_INLINE typename S::F Scale(const BlockParts& parts, int group, int v) {
    return S::Mul(S::LoadF16(parts.super + v * S::kLanes * 2),
                  S::LoadS8(parts.scales + group * 32 + v * S::kLanes));
  }
};

template <class S>
using Q4_0Format = SimpleFormat<S, typename S::NibbleDot, true, true, false>;
template <class S>
using Q4_1Format = SimpleFormat<S, typename S::NibbleDot, true, false, true>;
template <class S>
using OffsetByteFormat = SimpleFormat<S, typename S::OffsetDot, false, false, false>;
template <class S>
using Q5_1Format = SimpleFormat<S, typename S::SmallDot, false, false, true>;
template <class S>
using Q4_KFormat = SuperFormat<S, typename S::NibbleDot, true>;
template <class S>
using Q5_KFormat = SuperFormat<S, typename S::SmallDot, false>;
template <class S>
using Q6_KFormat = HalvesFormat<S>;

// A block unpacked for many rows: byte codes and f32 scales.
struct alignas(64) UnpackedBlock {
  uint8_t codes[kByteBytes];
  float scale[kPanelOutputs];
  float second[kPanelOutputs];  // minimum, or the scale of group 1
};

template <class S, class DotPolicy, bool kZero8Value, bool kMinimaValue, int kGroupsValue>
struct UnpackedFormat {
  using Dot = DotPolicy;
  static constexpr bool kNibbles = false;
  static constexpr bool kZero8 = kZero8Value;
  static constexpr bool kMinima = kMinimaValue;
  static constexpr int kGroups = kGroupsValue;
  static constexpr int kBytesOf8 = 8 * sizeof(UnpackedBlock);

  static TOKEND_INLINE BlockParts Parts(const uint8_t* blocks, int64_t b) {
    const uint8_t* block = blocks + b * static_cast<int64_t>(sizeof(UnpackedBlock));
    return {block, block + kByteBytes, nullptr};
  }
  static TOKEND_INLINE typename S::F Scale(const BlockParts& parts, int group, int v) {
    return S::Load(reinterpret_cast<const float*>(parts.scales) + group * kPanelOutputs +
                   v * S::kLanes);
  }
  static TOKEND_INLINE typename S::F Minimum(const BlockParts& parts, int v) {
    return S::Load(reinterpret_cast<const float*>(parts.scales) + kPanelOutputs + v * S::kLanes);
  }
};

// Where an accumulator can start anywhere, codes that count from 8 are moved to
// count from 128, which costs nothing in the kernel.
template <class S, class Source>
inline constexpr bool kMovesZero = Source::kZero8&& S::kOffsetStarts;

// The format of unpacked blocks of Source.
template <class S, class Source>
using Unpacked = UnpackedFormat<
    S, std::conditional_t<kMovesZero<S, Source>, typename S::OffsetDot, typename Source::Dot>,
    Source::kZero8 && !kMovesZero<S, Source>, Source::kMinima, Source::kGroups>;

// F32, F16, BF16 and what other types become in f32 mode: [32 inputs][32 outputs].
template <class S>
struct F32Format {
  static constexpr int kElementBytes = 4;
  static TOKEND_INLINE typename S::F Load(const uint8_t* at) {
    return S::Load(reinterpret_cast<const float*>(at));
  }
};

template <class S>
struct F16Format {
  static constexpr int kElementBytes = 2;
  static TOKEND_INLINE typename S::F Load(const uint8_t* at) { return S::LoadF16(at); }
};

template <class S>
struct Bf16Format {
  static constexpr int kElementBytes = 2;
  static TOKEND_INLINE typename S::F Load(const uint8_t* at) { return S::LoadBf16(at); }
};

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_MATMUL_FORMATS_H_
