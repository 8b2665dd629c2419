// The walk over a panel: unpacking, chunks of inputs, tiles of rows, epilogue.
// Included once by each instruction set's translation unit, which then defines
// its MatmulKernels with MakeMatmulKernels<S>().
#ifndef TOKEND_CORE_CPU_MATMUL_IMPL_H_
#define TOKEND_CORE_CPU_MATMUL_IMPL_H_

#include <cstdint>

#include "core/cpu/matmul_kernels.h"
#include "core/cpu/matmul_tile.h"
#include "core/cpu/quantize_impl.h"

namespace tokend::cpu {

// Rows whose sums are kept while the weights go by in chunks: 12 KB of f32.
inline constexpr int kRowBlock = 96;
// Blocks per chunk: 30 KB unpacked, so that a chunk stays in the L1 cache while
// all tiles of rows pass. A multiple of the K types' 8.
inline constexpr int kChunkBlocks = 24;
// The same in f32: 32 KB.
inline constexpr int kFloatChunkBlocks = 8;

template <class S>
struct PanelWalk {
  using F = typename S::F;

  // The tiles of an int mode.
  template <class Format, class Block>
  struct IntTiles {
    static constexpr int64_t kBytesOf8 = Format::kBytesOf8;
    static constexpr int64_t kRowBlockBytes = sizeof(Block);
    template <int R, int N>
    using Tile = IntTile<S, Format, Block, R, N>;
  };

  template <class Format>
  struct FloatTiles {
    static constexpr int64_t kBytesOf8 = 8 * kBlockInputs * kPanelOutputs * Format::kElementBytes;
    static constexpr int64_t kRowBlockBytes = kBlockInputs * sizeof(float);
    template <int R, int N>
    using Tile = FloatTile<S, Format, R, N>;
  };

  template <class Tiles, int R>
  static void RunTile(const uint8_t* weights, int64_t blocks, const uint8_t* rows,
                      int64_t row_bytes, bool first, float* acc) {
    constexpr int N = S::VectorsFor(R);
    for (int v = 0; v < S::kVectors; v += N) {
      Tiles::template Tile<R, N>::Run(weights, blocks, v, rows, row_bytes, first, acc);
    }
  }

  // All `count` rows against `blocks` blocks, at most kMost in a tile. acc: [count][32].
  template <class Tiles, int kMost>
  static void RunRows(const uint8_t* weights, int64_t blocks, const uint8_t* rows,
                      int64_t row_bytes, int64_t count, bool first, float* acc) {
    for (int64_t tiles = (count + kMost - 1) / kMost; tiles > 0; --tiles) {
      const int64_t r = (count + tiles - 1) / tiles;
      switch (r) {
        case 1:
          if constexpr (kMost >= 1) RunTile<Tiles, 1>(weights, blocks, rows, row_bytes, first, acc);
          break;
        case 2:
          if constexpr (kMost >= 2) RunTile<Tiles, 2>(weights, blocks, rows, row_bytes, first, acc);
          break;
        case 3:
          if constexpr (kMost >= 3) RunTile<Tiles, 3>(weights, blocks, rows, row_bytes, first, acc);
          break;
        case 4:
          if constexpr (kMost >= 4) RunTile<Tiles, 4>(weights, blocks, rows, row_bytes, first, acc);
          break;
        case 5:
          if constexpr (kMost >= 5) RunTile<Tiles, 5>(weights, blocks, rows, row_bytes, first, acc);
          break;
        case 6:
          if constexpr (kMost >= 6) RunTile<Tiles, 6>(weights, blocks, rows, row_bytes, first, acc);
          break;
      }
      count -= r;
      rows += r * row_bytes;
      acc += r * kPanelOutputs;
    }
  }

  template <class Format>
  static void Unpack(const uint8_t* weights, int64_t count, UnpackedBlock* out) {
    constexpr int kCodesPerVector = S::kLanes * 4;
    constexpr bool kMoves = kMovesZero<S, Format>;
    for (int64_t b = 0; b < count; ++b, ++out) {
      const BlockParts parts = Format::Parts(weights, b);
      if constexpr (Format::kNibbles) {
        for (int i = 0; i < kNibbleBytes; i += kCodesPerVector) {
          const typename S::C codes = S::LoadCodes(parts.codes + i);
          typename S::C low = S::LowNibbles(codes);
          typename S::C high = S::HighNibbles(codes);
          if constexpr (kMoves) {
            low = S::AddCodes(low, 120);
            high = S::AddCodes(high, 120);
          }
          S::StoreCodes(out->codes + i, low);
          S::StoreCodes(out->codes + kNibbleBytes + i, high);
        }
      } else {
        for (int i = 0; i < kByteBytes; i += kCodesPerVector) {
          S::StoreCodes(out->codes + i, S::LoadCodes(parts.codes + i));
        }
      }
      for (int v = 0; v < S::kVectors; ++v) {
        S::Store(out->scale + v * S::kLanes, Format::Scale(parts, 0, v));
        if constexpr (Format::kMinima) {
          S::Store(out->second + v * S::kLanes, Format::Minimum(parts, v));
        } else if constexpr (Format::kGroups == 2) {
          S::Store(out->second + v * S::kLanes, Format::Scale(parts, 1, v));
        }
      }
    }
  }

  // One unpacked block as f32: [32 inputs][32 outputs].
  template <class Format>
  static void ToFloats(const UnpackedBlock& block, float* out) {
    using From = Unpacked<S, Format>;
    const float from = From::Dot::kZero + (From::kZero8 ? 8.0f : 0.0f);
    const F zero = S::Broadcast(&from);
    for (int q = 0; q < 8; ++q) {
      const float* scales = Format::kGroups == 2 && q >= 4 ? block.second : block.scale;
      for (int v = 0; v < S::kVectors; ++v) {
        const F scale = S::Load(scales + v * S::kLanes);
        const F minimum = Format::kMinima ? S::Load(block.second + v * S::kLanes) : S::Zero();
        F values[4];
        S::SplitCodes(S::LoadCodes(block.codes + q * 128 + v * S::kLanes * 4), values);
        for (int j = 0; j < 4; ++j) {
          const F code = S::Sub(values[j], zero);
          S::Store(out + (4 * q + j) * kPanelOutputs + v * S::kLanes,
                   Format::kMinima ? S::Fma(code, scale, minimum) : S::Mul(code, scale));
        }
      }
    }
  }

  // Sums of full panels to the output.
  template <bool kBias, bool kAccumulate>
  static void FinishFull(const PanelTask& task, float* out, int64_t count, const float* acc) {
    for (int64_t r = 0; r < count; ++r, acc += kPanelOutputs, out += task.out_stride) {
      for (int v = 0; v < kPanelOutputs; v += S::kLanes) {
        F y = S::Load(acc + v);
        if constexpr (kBias) y = S::Add(y, S::Load(task.bias + v));
        if constexpr (kAccumulate) y = S::Add(S::Load(out + v), y);
        S::Store(out + v, y);
      }
    }
  }

  // The last panel may have fewer outputs than its sums.
  static void FinishPart(const PanelTask& task, float* out, int64_t count, const float* acc) {
    for (int64_t r = 0; r < count; ++r, acc += kPanelOutputs, out += task.out_stride) {
      for (int o = 0; o < task.outputs; ++o) {
        const float y = task.bias == nullptr ? acc[o] : acc[o] + task.bias[o];
        out[o] = task.accumulate ? out[o] + y : y;
      }
    }
  }

  static void Finish(const PanelTask& task, int64_t row, int64_t count, const float* acc) {
    float* out = task.out + row * task.out_stride;
    if (task.outputs < kPanelOutputs) return FinishPart(task, out, count, acc);
    if (task.bias == nullptr) {
      return task.accumulate ? FinishFull<false, true>(task, out, count, acc)
                             : FinishFull<false, false>(task, out, count, acc);
    }
    return task.accumulate ? FinishFull<true, true>(task, out, count, acc)
                           : FinishFull<true, false>(task, out, count, acc);
  }

  // Straight from the panel.
  template <class Tiles, int kMost>
  static void RunDirect(const PanelTask& task, const uint8_t* rows, int64_t count, float* acc) {
    // One tile reads the panel once and gains nothing from chunks.
    const int64_t chunk = count <= kMost ? task.blocks : kChunkBlocks;
    for (int64_t b = 0; b < task.blocks; b += chunk) {
      const int64_t left = task.blocks - b;
      RunRows<Tiles, kMost>(task.panel + b / 8 * Tiles::kBytesOf8, left < chunk ? left : chunk,
                            rows + b * Tiles::kRowBlockBytes, task.row_bytes, count, b == 0, acc);
    }
  }

  // Through unpacked blocks.
  template <class Format, class Block>
  static void RunUnpacked(const PanelTask& task, const uint8_t* rows, int64_t count, float* acc) {
    UnpackedBlock unpacked[kChunkBlocks];
    for (int64_t b = 0; b < task.blocks; b += kChunkBlocks) {
      const int64_t left = task.blocks - b;
      const int64_t blocks = left < kChunkBlocks ? left : kChunkBlocks;
      Unpack<Format>(task.panel + b / 8 * Format::kBytesOf8, blocks, unpacked);
      RunRows<IntTiles<Unpacked<S, Format>, Block>, S::kTileRows>(
          unpacked[0].codes, blocks, rows + b * static_cast<int64_t>(sizeof(Block)), task.row_bytes,
          count, b == 0, acc);
    }
  }

  // Quantised weights in f32 mode.
  template <class Format>
  static void RunAsFloats(const PanelTask& task, const uint8_t* rows, int64_t count, float* acc) {
    alignas(64) float floats[kFloatChunkBlocks][kBlockInputs * kPanelOutputs];
    UnpackedBlock unpacked[kFloatChunkBlocks];
    for (int64_t b = 0; b < task.blocks; b += kFloatChunkBlocks) {
      const int64_t left = task.blocks - b;
      const int64_t blocks = left < kFloatChunkBlocks ? left : kFloatChunkBlocks;
      Unpack<Format>(task.panel + b / 8 * Format::kBytesOf8, blocks, unpacked);
      for (int64_t i = 0; i < blocks; ++i) ToFloats<Format>(unpacked[i], floats[i]);
      using Tiles = FloatTiles<F32Format<S>>;
      RunRows<Tiles, S::kTileRows>(reinterpret_cast<const uint8_t*>(floats), blocks,
                                   rows + b * Tiles::kRowBlockBytes, task.row_bytes, count, b == 0,
                                   acc);
    }
  }

  // Calls run(rows, count, acc) for blocks of rows.
  template <class Function>
  static TOKEND_INLINE void ForRowBlocks(const PanelTask& task, Function run) {
    alignas(64) float acc[kRowBlock * kPanelOutputs];
    for (int64_t row = 0; row < task.row_count; row += kRowBlock) {
      const int64_t left = task.row_count - row;
      const int64_t count = left < kRowBlock ? left : kRowBlock;
      run(task.rows + row * task.row_bytes, count, acc);
      Finish(task, row, count, acc);
    }
  }

  template <class Format, class Block>
  static void RunInt(const PanelTask& task) {
    ForRowBlocks(task, [&](const uint8_t* rows, int64_t count, float* acc) {
      constexpr int kDirect = Format::kDirectRows;
      if constexpr (kDirect > 0) {
        if (count > kDirect) return RunUnpacked<Format, Block>(task, rows, count, acc);
      }
      constexpr int kMost = kDirect > 0 ? kDirect : S::kTileRows;
      RunDirect<IntTiles<Format, Block>, kMost>(task, rows, count, acc);
    });
  }

  template <class Format>
  static void RunQuantizedFloat(const PanelTask& task) {
    ForRowBlocks(task, [&](const uint8_t* rows, int64_t count, float* acc) {
      RunAsFloats<Format>(task, rows, count, acc);
    });
  }

  template <class Format>
  static void RunFloat(const PanelTask& task) {
    ForRowBlocks(task, [&](const uint8_t* rows, int64_t count, float* acc) {
      RunDirect<FloatTiles<Format>, S::kTileRows>(task, rows, count, acc);
    });
  }

  template <class Format>
  static PanelFunction FindQuantized(base::Activations mode) {
    switch (mode) {
      case base::Activations::kF32:
        return RunQuantizedFloat<Format>;
      case base::Activations::kInt16:
        return RunInt<Format, ActivationBlock16>;
      case base::Activations::kInt8:
        return RunInt<Format, ActivationBlock8>;
      case base::Activations::kF16:
        break;
    }
    return nullptr;
  }

  static PanelFunction Find(base::WeightType type, base::Activations mode) {
    const bool f32 = mode == base::Activations::kF32;
    switch (type) {
      case base::WeightType::kF32:
        return f32 ? RunFloat<F32Format<S>> : nullptr;
      case base::WeightType::kF16:
        return f32 ? RunFloat<F16Format<S>> : nullptr;
      case base::WeightType::kBF16:
        return f32 ? RunFloat<Bf16Format<S>> : nullptr;
      case base::WeightType::kQ4_0:
        return FindQuantized<Q4_0Format<S>>(mode);
      case base::WeightType::kQ4_1:
        return FindQuantized<Q4_1Format<S>>(mode);
      case base::WeightType::kQ5_0:
      case base::WeightType::kQ8_0:
        return FindQuantized<OffsetByteFormat<S>>(mode);
      case base::WeightType::kQ5_1:
        return FindQuantized<Q5_1Format<S>>(mode);
      case base::WeightType::kQ4_K:
        return FindQuantized<Q4_KFormat<S>>(mode);
      case base::WeightType::kQ5_K:
        return FindQuantized<Q5_KFormat<S>>(mode);
      case base::WeightType::kQ6_K:
        return FindQuantized<Q6_KFormat<S>>(mode);
    }
    return nullptr;
  }
};

template <class S>
constexpr MatmulKernels MakeMatmulKernels() {
  return {PanelWalk<S>::Find, Quantizer<S>::Row8, Quantizer<S>::Row16};
}

}  // namespace tokend::cpu

#endif  // TOKEND_CORE_CPU_MATMUL_IMPL_H_
