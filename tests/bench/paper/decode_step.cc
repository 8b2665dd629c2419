#include "tests/bench/paper/decode_step.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "cuda_kernels/kernels/matmul_launch.h"
#include "cuda_kernels/kernels/step_tables.h"
#include "tests/bench/paper/record_step.h"

namespace tokend::bench {
namespace {

using cuda::MatmulParams;
using cuda::PackedFormat;

constexpr int kWarpLanes = 32;
constexpr double kMmaFlops = 2 * 16 * 8 * 16;
// Beside the products of a ring's slot: its wait and what comes next; each copy of 16
// bytes a lane; where rows are no norm's, their copies, by turns of up to eight blocks
// of a row. Beside its slots, a chunk of a tile: the ring's next tile, the format's
// switch, sums and barrier. Counted in the object code of sm_90.
constexpr double kSlotInstructions = 60;
constexpr double kCopyInstructions = 3;
constexpr double kRowsInstructions = 20;
constexpr double kRowsTurnInstructions = 25;
constexpr double kChunkInstructions = 130;
// Of a norm in a matmul's prologue, for each value of a lane: squares, then the product.
constexpr double kNormInstructions = 14;

absl::string_view FormatName(PackedFormat format) {
  switch (format) {
    case PackedFormat::kF16:
      return "F16";
    case PackedFormat::kF16Pair:
      return "F16Pair";
    case PackedFormat::kQ4_0:
      return "Q4_0";
    case PackedFormat::kQ4_1:
      return "Q4_1";
    case PackedFormat::kQ5_0:
      return "Q5_0";
    case PackedFormat::kQ5_1:
      return "Q5_1";
    case PackedFormat::kQ8_0:
      return "Q8_0";
    case PackedFormat::kQ4_K:
      return "Q4_K";
    case PackedFormat::kQ5_K:
      return "Q5_K";
    case PackedFormat::kQ6_K:
      return "Q6_K";
  }
  return "?";
}

template <typename Params>
Params ParamsOf(const simt::LaunchRecord& record) {
  Params params;
  std::memcpy(&params, record.params.data(), std::min(sizeof(params), record.params.size()));
  return params;
}

// Beside products, of one slot.
double SlotInstructions(const cuda::Matmul& matmul, const cuda::SegmentPlan& plan) {
  const double instructions =
      kSlotInstructions + std::ceil(plan.tile_slot_bytes / (16.0 * kWarpLanes)) * kCopyInstructions;
  if (matmul.input.residual != nullptr) return instructions;
  const int row_tiles = (matmul.rows + 7) / 8;
  const double turns = std::ceil(plan.slot_blocks * std::min(matmul.rows, 8) / 8.0);
  return instructions + kRowsInstructions +
         turns * (kRowsTurnInstructions + (row_tiles - 1) * kCopyInstructions);
}

// The mean of all multiprocessors' work over the most of one, which takes every
// `multiprocessors`-th block.
double Evenness(const MatmulParams& params, int multiprocessors) {
  std::vector<double> load(static_cast<size_t>(multiprocessors));
  double total = 0;
  for (int s = 0; s < params.matmul.segment_count; ++s) {
    const cuda::SegmentPlan& plan = params.plans[s];
    for (int block = 0; block < plan.blocks; ++block) {
      const cuda::SetRange sets = cuda::SetsOf(plan, block);
      const double bytes = static_cast<double>(plan.tile_bytes) * (sets.end - sets.begin);
      load[static_cast<size_t>((plan.first_block + block) % multiprocessors)] += bytes;
      total += bytes;
    }
  }
  return total / (multiprocessors * *std::max_element(load.begin(), load.end()));
}

absl::Status FillMatmul(const MatmulParams& params, const Target& target, const CodeFacts& facts,
                        PaperLaunch* out) {
  const cuda::Matmul& matmul = params.matmul;
  const int row_tiles = (matmul.rows + 7) / 8;
  // Beside the products, unpacking is done once for all rows.
  constexpr double kOfRows = 0.25;
  const double widened = 1 + kOfRows * (row_tiles - 1);
  double beside = 0;
  for (int s = 0; s < matmul.segment_count; ++s) {
    const cuda::PackedMatrix& matrix = matmul.segments[s].matrix;
    const cuda::SegmentPlan& plan = params.plans[s];
    const cuda::PackedLayout layout = cuda::LayoutOf(matrix.format);
    const double records = static_cast<double>(plan.tiles) * plan.records;
    const double blocks = records * layout.record_blocks;
    TOKEND_ASSIGN_OR_RETURN(const BlockCost cost, facts.Cost(FormatName(matrix.format)));
    out->bytes += records * layout.record_bytes();
    out->instructions += blocks * cost.instructions * widened;
    out->integer_instructions += blocks * cost.integer_instructions;
    out->mma_flops += blocks * 2 * kMmaFlops * row_tiles;
    beside += blocks / plan.slot_blocks * SlotInstructions(matmul, plan) +
              static_cast<double>(plan.tiles) * plan.chunks * kChunkInstructions;
    const double own_slots =
        static_cast<double>(plan.records) / plan.chunks * layout.record_blocks / plan.slot_blocks;
    const double issued =
        std::min<double>(params.stages - 1, own_slots) * plan.tile_slot_bytes * cuda::kMatmulWarps;
    out->issued_bytes = std::max(out->issued_bytes, issued);
  }
  out->instructions += beside;
  out->integer_instructions += beside / 2;
  out->evenness = Evenness(params, target.multiprocessors);
  out->round_trips = 2;  // rows, then what the epilogue adds to
  if (matmul.input.residual != nullptr) {
    const double values = static_cast<double>(matmul.segments[0].matrix.cols) * matmul.rows;
    out->instructions += values / kWarpLanes * kNormInstructions * static_cast<double>(out->grid);
    out->round_trips = 3;  // the norm's weights, too
  }
  return absl::OkStatus();
}

// Of the ring of keys and values: what the block's shared memory holds beside the
// queries, twice, and the weights of 16 rows, in tiles of 64 positions (32 of wide
// heads). One of the tiles is being read.
double AttentionBytesInFlight(const ops::ModelPlan& plan, int64_t shared_bytes) {
  constexpr int kRows = 16;
  const int64_t tile = int64_t{plan.head_dim > 128 ? 32 : 64} * plan.head_dim * 2;
  const int64_t beside = 2 * kRows * plan.head_dim * 2 + kRows * cuda::kPieceTokens * 2;
  const int64_t piece = 2 * int64_t{cuda::kPieceTokens} * plan.head_dim * 2;
  return static_cast<double>(std::min(((shared_bytes - beside) / tile - 1) * tile, piece));
}

// Blocks that find work: the grid is made for the longest context.
void FillAttention(const ops::ModelPlan& plan, const PaperStep& step, PaperLaunch* out) {
  const auto pieces = (step.context + cuda::kPieceTokens) / cuda::kPieceTokens;
  const int64_t items = step.rows * pieces * plan.kv_heads;
  out->grid = std::min(out->grid, items);
  out->bytes = KvBytes(plan, step) / static_cast<double>(plan.layers.size());
  // The lists, the item, its tables, pages, keys; then the count and the other slots.
  out->round_trips = pieces > 1 ? 7 : 5;
  const double keys = static_cast<double>(step.context) * step.rows * plan.kv_heads;
  out->mma_flops = keys * 2 * 2 * 16 * plan.head_dim;
  // Products and copies of keys and values, and exponentials: by strips of 16 keys.
  out->instructions = keys / 16 * (plan.head_dim / 16 * 12 + 60);
  out->integer_instructions = out->instructions / 3;
}

absl::StatusOr<PaperLaunch> LaunchOf(const simt::LaunchRecord& record, const ops::ModelPlan& plan,
                                     const PaperStep& step, const Target& target,
                                     const CodeFacts& facts) {
  PaperLaunch launch;
  launch.name = record.name;
  launch.grid = int64_t{record.grid[0]} * record.grid[1] * record.grid[2];
  launch.threads = static_cast<int>(record.threads);
  launch.shared_bytes = static_cast<int64_t>(record.shared_bytes);
  launch.dependent = record.dependent;
  launch.round_trips = 2;
  TOKEND_ASSIGN_OR_RETURN(launch.registers,
                          facts.Registers(record.kernel, 10 * target.major + target.minor));
  if (record.name == "MatmulDecode") {
    TOKEND_RETURN_IF_ERROR(FillMatmul(ParamsOf<MatmulParams>(record), target, facts, &launch));
  } else if (record.name == "DecodeAttention") {
    FillAttention(plan, step, &launch);
    launch.issued_bytes = AttentionBytesInFlight(plan, launch.shared_bytes);
  }
  return launch;
}

}  // namespace

double KvBytes(const ops::ModelPlan& plan, const PaperStep& step) {
  double tokens = 0;
  for (const ops::LayerPlan& layer : plan.layers) {
    const int64_t seen =
        layer.local_tokens == 0 ? step.context : std::min(step.context, layer.local_tokens);
    tokens += static_cast<double>(step.rows * seen);
  }
  return tokens * 2 * 2 * plan.kv_heads * plan.head_dim;
}

absl::StatusOr<std::vector<PaperLaunch>> DecodeLaunches(const ops::ModelPlan& plan,
                                                        const PaperStep& step, const Target& target,
                                                        const CodeFacts& facts) {
  TOKEND_ASSIGN_OR_RETURN(const auto records, RecordDecodeStep(plan, step.rows, target));
  std::vector<PaperLaunch> launches;
  for (const simt::LaunchRecord& record : records) {
    TOKEND_ASSIGN_OR_RETURN(launches.emplace_back(), LaunchOf(record, plan, step, target, facts));
  }
  return launches;
}

}  // namespace tokend::bench
