// Attention over one piece, by a block for up to Tile::kRows query rows. A warp takes
// some columns of 8 keys of each tile, and some columns of 8 dimensions of the output,
// for all rows; so every key and value is read from shared memory once.
//
// Fragments hold, in place of elements 2t, 2t+1, 2t+8, 2t+9 of the 16 that an mma sums
// over, elements 4t to 4t+3: side by side in memory, alike in both operands.
#ifndef TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_PIECE_CUH_
#define TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_PIECE_CUH_

#include "cuda_kernels/device/mma.cuh"
#include "cuda_kernels/kernels/attention_feed.cuh"

namespace tokend::cuda {

inline constexpr float kLog2E = 1.4426950408889634f;

// Four int8 codes as f16, exactly: 0x6400 + u is 1024 + u for u in [0, 256).
TOKEND_DEVICE void WidenCodes(uint32_t codes, __half2 (&wide)[2]) {
  const uint32_t u = codes ^ 0x80808080u;
  const uint32_t pairs[2] = {__byte_perm(u, 0x64646464u, 0x4140),
                             __byte_perm(u, 0x64646464u, 0x4342)};
  const __half2 offset = __half2half2(__ushort_as_half(0x6480));  // 1152
  wide[0] = __hsub2(*reinterpret_cast<const __half2*>(&pairs[0]), offset);
  wide[1] = __hsub2(*reinterpret_cast<const __half2*>(&pairs[1]), offset);
}

TOKEND_DEVICE uint32_t Bits(__half2 pair) { return *reinterpret_cast<const uint32_t*>(&pair); }

// Rows g and g + 8 of 16 elements of an f16 matrix in shared memory.
template <int kElements>
TOKEND_DEVICE void LoadRows(const unsigned char* matrix, int first_row, int unit,
                            uint32_t (&a)[4]) {
  const int g = Lane() / 4;
  const int t = Lane() % 4;
  const auto upper =
      *reinterpret_cast<const uint2*>(matrix + HalfUnit<kElements>(first_row + g, unit) + t * 8);
  const auto lower = *reinterpret_cast<const uint2*>(
      matrix + HalfUnit<kElements>(first_row + g + 8, unit) + t * 8);
  a[0] = upper.x;
  a[1] = lower.x;
  a[2] = upper.y;
  a[3] = lower.y;
}

template <typename Tile>
struct PieceWork {
  // Score columns of 8 keys that a warp has of a piece.
  static constexpr int kColumns = Tile::kTiles * Tile::kKeyColumns;
  static constexpr int kHalfTiles = Tile::kRowTiles / 2;

  const AttentionParams& params;
  unsigned char* shared;
  int stages;
  bool sink_query;  // sinks have a query of their own
  bool pair;        // mode f32; false where there is one row tile
  int stage = 0;    // of the tile at hand

  float scores[Tile::kRowTiles][kColumns][4];
  float out[Tile::kRowTiles][Tile::kValueColumns][4];

  template <typename T>
  TOKEND_DEVICE T* At(int offset) const {
    return reinterpret_cast<T*>(shared + offset);
  }
  TOKEND_DEVICE const unsigned char* Stage() const {
    return shared + Tile::kRing + stage * Tile::kStageBytes;
  }
  TOKEND_DEVICE void NextStage() { stage = stage + 1 == stages ? 0 : stage + 1; }
  TOKEND_DEVICE bool Low(int m) const { return pair && m >= kHalfTiles; }
  // First key of the warp's column n of a tile, of which the lane holds two.
  TOKEND_DEVICE static int KeyOf(int n) { return (n * Tile::kWarps + Warp()) * 8 + Lane() % 4 * 2; }

  // The tile at hand is in shared memory, and the one before it is no longer needed.
  TOKEND_DEVICE void AwaitTile(TileFeed<Tile>* feed) const {
    WaitForAllBut(stages - 2);
    __syncthreads();
    feed->Issue();
  }

  // The low parts' products or outputs onto those of the high parts.
  template <int kCount>
  TOKEND_DEVICE void AddLow(float (&d)[Tile::kRowTiles][kCount][4]) const {
    if (!pair) return;
#pragma unroll
    for (int m = 0; m < kHalfTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kCount; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) d[m][n][e] += d[m + kHalfTiles][n][e];
      }
    }
  }

  TOKEND_DEVICE void LoadKeys(int n, int unit, uint32_t (&b)[2]) const {
    const int key = (n * Tile::kWarps + Warp()) * 8 + Lane() / 4;
    const int t = Lane() % 4;
    if (Tile::kInt8) {
      __half2 wide[2];
      WidenCodes(*reinterpret_cast<const uint32_t*>(
                     Stage() + UnitAt<Tile::kHeadDim / 16, 8>(key, unit) * 16 + t * 4),
                 wide);
      b[0] = Bits(wide[0]);
      b[1] = Bits(wide[1]);
    } else {
      const auto pairs =
          *reinterpret_cast<const uint2*>(Stage() + HalfUnit<Tile::kHeadDim>(key, unit) + t * 8);
      b[0] = pairs.x;
      b[1] = pairs.y;
    }
  }

  // q . k of all rows and this warp's columns of the tile.
  TOKEND_DEVICE void Products(int query, float (&d)[Tile::kRowTiles][Tile::kKeyColumns][4]) const {
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < Tile::kKeyColumns; ++n) {
        d[m][n][0] = d[m][n][1] = d[m][n][2] = d[m][n][3] = 0;
      }
    }
#pragma unroll 2
    for (int unit = 0; unit < Tile::kHeadDim / 16; ++unit) {
      uint32_t b[Tile::kKeyColumns][2];
#pragma unroll
      for (int n = 0; n < Tile::kKeyColumns; ++n) LoadKeys(n, unit, b[n]);
#pragma unroll
      for (int m = 0; m < Tile::kRowTiles; ++m) {
        uint32_t a[4];
        LoadRows<Tile::kHeadDim>(shared + query, m * 16, unit, a);
#pragma unroll
        for (int n = 0; n < Tile::kKeyColumns; ++n) MmaF16(d[m][n], a, b[n]);
      }
    }
    AddLow(d);
  }

  TOKEND_DEVICE float Finish(float product, float key_scale, float inverse_cap) const {
    float s = Tile::kInt8 ? product * key_scale : product;
    s *= params.scale;
    if (params.soft_cap > 0) s = params.soft_cap * tanhf(s * inverse_cap);
    return s * kLog2E;
  }

  // Scores of one tile of keys; -Inf where a row does not see. `sink_end` is the first
  // position of the piece behind the sinks.
  TOKEND_DEVICE void ScoreTile(int tile, int sink_end,
                               float (&d)[Tile::kRowTiles][Tile::kKeyColumns][4]) const {
    const int start = tile * Tile::kTileTokens;
    const bool sinks = sink_query && start < sink_end;
    const bool own = !sinks || start + Tile::kTileTokens > sink_end;
#pragma unroll 1
    for (int pass = own ? 0 : 1; pass < (sinks ? 2 : 1); ++pass) {
      float products[Tile::kRowTiles][Tile::kKeyColumns][4];
      Products(pass == 0 ? Tile::kQuery : Tile::kSinkQuery, products);
#pragma unroll
      for (int n = 0; n < Tile::kKeyColumns; ++n) {
#pragma unroll
        for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            if (pass == 0 || start + KeyOf(n) + e % 2 < sink_end) d[m][n][e] = products[m][n][e];
          }
        }
      }
    }
    const float inverse_cap = 1.0f / params.soft_cap;
#pragma unroll
    for (int n = 0; n < Tile::kKeyColumns; ++n) {
      const int key = KeyOf(n);
      float2 key_scales = make_float2(1, 1);
      if (Tile::kInt8) {
        key_scales =
            __half22float2(*reinterpret_cast<const __half2*>(Stage() + Tile::kTileBytes + key * 2));
      }
#pragma unroll
      for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const RowView view = At<RowView>(Tile::kViews)[m * 16 + half * 8 + Lane() / 4];
          float* s = d[m][n] + 2 * half;
          s[0] = Sees(view, start + key) ? Finish(s[0], key_scales.x, inverse_cap) : -INFINITY;
          s[1] = Sees(view, start + key + 1) ? Finish(s[1], key_scales.y, inverse_cap) : -INFINITY;
        }
      }
    }
  }

  // All scores of the piece; what the warps found largest goes to kWarpMax.
  TOKEND_DEVICE void Score(const RowView& seen, TileFeed<Tile>* feed) {
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[m][i][e] = -INFINITY;
      }
    }
#pragma unroll 1
    for (unsigned left = CellsOf(seen, Tile::kTileTokens); left != 0; left &= left - 1) {
      const int tile = __ffs(static_cast<int>(left)) - 1;
      AwaitTile(feed);
      float d[Tile::kRowTiles][Tile::kKeyColumns][4] = {};
      ScoreTile(tile, seen.sink_end, d);
      NextStage();
      // Registers have no index.
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (i / Tile::kKeyColumns != tile) continue;
#pragma unroll
        for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
          for (int e = 0; e < 4; ++e) scores[m][i][e] = d[m][i % Tile::kKeyColumns][e];
        }
      }
    }
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = -INFINITY;
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          largest = fmaxf(largest, fmaxf(scores[m][i][2 * half], scores[m][i][2 * half + 1]));
        }
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
        if (Lane() % 4 == 0) {
          At<float>(Tile::kWarpMax)[Warp() * Tile::kRows + m * 16 + half * 8 + Lane() / 4] =
              largest;
        }
      }
    }
  }

  // p = 2^(s - max) to kWeights; after kRowMax is there.
  TOKEND_DEVICE void Weigh() const {
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
      if (Low(m)) break;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = m * 16 + half * 8 + Lane() / 4;
        const float largest = At<float>(Tile::kRowMax)[row];
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          const int key = i / Tile::kKeyColumns * Tile::kTileTokens + KeyOf(i % Tile::kKeyColumns);
          const float p[2] = {exp2f(scores[m][i][2 * half] - largest),
                              exp2f(scores[m][i][2 * half + 1] - largest)};
          const __half2 high = __floats2half2_rn(p[0], p[1]);
          const int at = Tile::kWeights + key % 16 * 2;
          *At<__half2>(at + HalfUnit<kPieceTokens>(row, key / 16)) = high;
          if (!pair) continue;
          const float2 rounded = __half22float2(high);
          *At<__half2>(at + HalfUnit<kPieceTokens>(row + kHalfTiles * 16, key / 16)) =
              __floats2half2_rn(p[0] - rounded.x, p[1] - rounded.y);
        }
      }
    }
  }

  // Sums of p over blocks of 32 positions, to kSums.
  TOKEND_DEVICE void SumWeights() const {
    const uint32_t ones[2] = {0x3c003c00u, 0x3c003c00u};
#pragma unroll 1
    for (int block = Warp(); block < Tile::kSumBlocks; block += Tile::kWarps) {
#pragma unroll
      for (int m = 0; m < Tile::kRowTiles; ++m) {
        float d[4] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t a[4];
          LoadRows<kPieceTokens>(shared + Tile::kWeights, m * 16, 2 * block + i, a);
          MmaF16(d, a, ones);
        }
        if (Lane() % 4 == 0) {
          float* sums = At<float>(Tile::kSums) + block * Tile::kRows + m * 16 + Lane() / 4;
          sums[0] = d[0];
          sums[8] = d[2];
        }
      }
    }
  }

  // Values of one column of 8 dimensions and 16 positions; zeros at those that no row
  // sees. `seen` is nullptr where some row sees each of them.
  TOKEND_DEVICE void LoadValues(int column, int tile, int strip, const RowView* seen,
                                uint32_t (&b)[2]) const {
    const int t = Lane() % 4;
    const int dim = column * 8 + Lane() / 4;
    uint32_t keep[2] = {0xffffffffu, 0xffffffffu};
    if (seen != nullptr) {
      const int at = tile * Tile::kTileTokens + strip * kStripTokens + 4 * t;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        keep[i] = (Sees(*seen, at + 2 * i) ? 0xffffu : 0u) |
                  (Sees(*seen, at + 2 * i + 1) ? 0xffff0000u : 0u);
      }
    }
    if (Tile::kInt8) {
      __half2 wide[2];
      WidenCodes(*reinterpret_cast<const uint32_t*>(
                     Stage() + UnitAt<Tile::kTileStrips, 8>(dim, strip) * 16 + t * 4),
                 wide);
      auto scales = *reinterpret_cast<const uint2*>(Stage() + Tile::kTileBytes +
                                                    strip * kStripTokens * 2 + t * 8);
      scales.x &= keep[0];
      scales.y &= keep[1];
      b[0] = Bits(__hmul2(wide[0], *reinterpret_cast<const __half2*>(&scales.x)));
      b[1] = Bits(__hmul2(wide[1], *reinterpret_cast<const __half2*>(&scales.y)));
    } else {
      const auto halves = *reinterpret_cast<const uint2*>(
          Stage() + UnitAt<Tile::kTileStrips, 4>(dim, strip) * 32 + t * 8);
      b[0] = halves.x & keep[0];
      b[1] = halves.y & keep[1];
    }
  }

  // o += p v over one strip of a tile of values.
  TOKEND_DEVICE void AddStrip(int tile, int strip, const RowView* seen) {
    uint32_t a[Tile::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
      LoadRows<kPieceTokens>(shared + Tile::kWeights, m * 16, tile * Tile::kTileStrips + strip,
                             a[m]);
    }
#pragma unroll
    for (int j = 0; j < Tile::kValueColumns; ++j) {
      const int column = j * Tile::kWarps + Warp();
      if (column >= Tile::kHeadDim / 8) break;
      uint32_t b[2];
      LoadValues(column, tile, strip, seen, b);
#pragma unroll
      for (int m = 0; m < Tile::kRowTiles; ++m) MmaF16(out[m][j], a[m], b);
    }
  }

  // o of the piece into `out`, and the sums of p; after Weigh.
  TOKEND_DEVICE void AddValues(const RowView& seen, TileFeed<Tile>* feed) {
#pragma unroll
    for (int m = 0; m < Tile::kRowTiles; ++m) {
#pragma unroll
      for (int j = 0; j < Tile::kValueColumns; ++j) {
        out[m][j][0] = out[m][j][1] = out[m][j][2] = out[m][j][3] = 0;
      }
    }
    const unsigned tiles = CellsOf(seen, Tile::kTileTokens);
    const unsigned strips = CellsOf(seen, kStripTokens);
    bool first = true;
#pragma unroll 1
    for (unsigned left = tiles; left != 0; left &= left - 1) {
      const int tile = __ffs(static_cast<int>(left)) - 1;
      AwaitTile(feed);
      if (first) SumWeights();
      first = false;
#pragma unroll 1
      for (int strip = 0; strip < Tile::kTileStrips; ++strip) {
        const int unit = tile * Tile::kTileStrips + strip;
        if ((strips >> unit & 1) == 0) continue;
        AddStrip(tile, strip, WhollySeen(seen, unit * kStripTokens) ? nullptr : &seen);
      }
      NextStage();
    }
    AddLow(out);
  }

  TOKEND_DEVICE static bool WhollySeen(const RowView& seen, int at) {
    return (at >= seen.begin && at + kStripTokens <= seen.end) ||
           (at >= seen.sink_begin && at + kStripTokens <= seen.sink_end);
  }
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_KERNELS_ATTENTION_PIECE_CUH_
