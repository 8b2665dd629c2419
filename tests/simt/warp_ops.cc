// What each warp operation gives each lane, from what all lanes brought.
#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/simt/machine.h"

namespace tokend::simt {
namespace {

// The lane that `lane` reads from (PTX ISA, shfl.sync): its own where the source
// is outside its segment of `width` lanes.
int SourceLane(const PendingOp& op, int lane) {
  const int segment = lane & ~(op.width - 1);
  const int argument = op.arguments[lane];
  int source = lane;
  switch (op.op) {
    case WarpOp::kShuffleUp:
      source = lane - argument;
      return source < segment ? lane : source;
    case WarpOp::kShuffleDown:
      source = lane + argument;
      return source >= segment + op.width ? lane : source;
    case WarpOp::kShuffleXor:
      source = lane ^ argument;
      return source >= segment + op.width ? lane : source;
    default:
      return segment + (argument & (op.width - 1));
  }
}

uint32_t Reduce(WarpOp op, bool is_signed, uint32_t x, uint32_t y) {
  const auto sx = static_cast<int32_t>(x);
  const auto sy = static_cast<int32_t>(y);
  switch (op) {
    case WarpOp::kReduceAdd:
      return x + y;
    case WarpOp::kReduceMin:
      return (is_signed ? sx < sy : x < y) ? x : y;
    case WarpOp::kReduceMax:
      return (is_signed ? sx > sy : x > y) ? x : y;
    case WarpOp::kReduceAnd:
      return x & y;
    case WarpOp::kReduceOr:
      return x | y;
    default:
      return x ^ y;
  }
}

struct MmaOperands {
  float* d;
  const uint32_t* a;
  const uint32_t* b;
};

// One of a register's two halves as f32: exact.
float HalfAt(uint32_t pair, int index) {
  const uint32_t half = pair >> (16 * index) & 0xffff;
  const uint32_t magnitude = (half & 0x7fff) << 13;
  // The exponent's bias goes from 15 to 127; a subnormal is read as a normal one with
  // the same fraction, less what that adds (slow subnormal arithmetic is avoided).
  constexpr uint32_t kBias = 112u << 23;
  const float normal = std::bit_cast<float>(magnitude + kBias);
  const float subnormal = std::bit_cast<float>(magnitude + kBias + (1u << 23)) - 0x1p-14f;
  const uint32_t special = (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
  const float finite = (half & 0x7c00) == 0 ? subnormal : normal;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(finite) | special | (half & 0x8000) << 16);
}

// One row of D, [8]: products of halves are exact in f32. Tensor cores add a group of
// products to the accumulator with more bits than f32 and round once: double stands for
// that. Inlined, GCC 12 leaves out half of the roundings, which a test sees.
[[gnu::noinline]] void AddProducts(const float (&a)[16], const double (&b)[16][8], int group,
                                   double (&sums)[8]) {
  for (int k = 0; k < 16; k += group) {
    for (int j = k; j < k + group; ++j) {
      const double x = a[j];
      for (int column = 0; column < 8; ++column) sums[column] += x * b[j][column];
    }
    for (int column = 0; column < 8; ++column) sums[column] = static_cast<float>(sums[column]);
  }
}

// What the fault makes of a row of D; `sums` is what it was before the products.
void AddProductsBadly(const float (&a)[16], const double (&b)[16][8], int group, MmaFault fault,
                      double (&sums)[8]) {
  double other[8];
  std::copy(sums, sums + 8, other);
  AddProducts(a, b, group, sums);
  AddProducts(a, b, 24 - group, other);
  if (fault == MmaFault::kOrder) std::copy(other, other + 8, sums);
  if (fault == MmaFault::kColumns) std::copy(other + 4, other + 8, sums + 4);
  if (fault != MmaFault::kNeighbours) return;
  for (const double sum : other) {
    if (std::isnan(sum)) std::fill(sums, sums + 8, sum);
  }
}

void Mma(const PendingOp& op, bool split_sums, MmaFault fault) {
  float a[16][16];
  double b[16][8];
  double d[16][8];
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& operands = *reinterpret_cast<const MmaOperands*>(op.values[lane]);
    const int g = lane / 4;
    const int t = lane % 4;
    for (int i = 0; i < 2; ++i) {
      a[g][2 * t + i] = HalfAt(operands.a[0], i);
      a[g + 8][2 * t + i] = HalfAt(operands.a[1], i);
      a[g][2 * t + 8 + i] = HalfAt(operands.a[2], i);
      a[g + 8][2 * t + 8 + i] = HalfAt(operands.a[3], i);
      b[2 * t + i][g] = HalfAt(operands.b[0], i);
      b[2 * t + 8 + i][g] = HalfAt(operands.b[1], i);
      d[g][2 * t + i] = operands.d[i];
      d[g + 8][2 * t + i] = operands.d[2 + i];
    }
  }
  const int group = split_sums ? 8 : 16;
  for (int row = 0; row < 16; ++row) {
    if (fault == MmaFault::kNone) {
      AddProducts(a[row], b, group, d[row]);
    } else {
      AddProductsBadly(a[row], b, group, fault, d[row]);
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto& operands = *reinterpret_cast<const MmaOperands*>(op.values[lane]);
    for (int i = 0; i < 4; ++i) {
      operands.d[i] = static_cast<float>(d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
    }
  }
}

}  // namespace

int LaneThatReadsOutside(const PendingOp& op) {
  if (op.op < WarpOp::kShuffle || op.op > WarpOp::kShuffleXor) return -1;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((op.mask >> lane & 1) == 0) continue;
    if ((op.mask >> SourceLane(op, lane) & 1) == 0) return lane;
  }
  return -1;
}

void Evaluate(const PendingOp& op, bool split_mma_sums, MmaFault fault,
              uint64_t (&results)[kLanes]) {
  if (op.op == WarpOp::kMma) return Mma(op, split_mma_sums, fault);
  uint32_t common = 0;
  bool first = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((op.mask >> lane & 1) == 0) continue;
    const auto value = static_cast<uint32_t>(op.values[lane]);
    if (op.op == WarpOp::kBallot) {
      common |= value << lane;
    } else if (op.op >= WarpOp::kReduceAdd && op.op <= WarpOp::kReduceXor) {
      common = first ? value : Reduce(op.op, op.arguments[lane] != 0, common, value);
    }
    first = false;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((op.mask >> lane & 1) == 0) continue;
    switch (op.op) {
      case WarpOp::kShuffle:
      case WarpOp::kShuffleUp:
      case WarpOp::kShuffleDown:
      case WarpOp::kShuffleXor:
        results[lane] = op.values[SourceLane(op, lane)];
        break;
      case WarpOp::kMatch: {
        unsigned same = 0;
        for (int other = 0; other < kLanes; ++other) {
          if ((op.mask >> other & 1) != 0 && op.values[other] == op.values[lane])
            same |= 1u << other;
        }
        results[lane] = same;
        break;
      }
      default:
        results[lane] = common;
    }
  }
}

void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], Site site) {
  const MmaOperands operands = {d, a, b};
  WarpCollective(WarpOp::kMma, ~0u, reinterpret_cast<uintptr_t>(&operands), 0, kLanes, site);
}

}  // namespace tokend::simt
