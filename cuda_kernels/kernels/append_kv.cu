#include "cuda_kernels/device/dependent_launch.cuh"
#include "cuda_kernels/device/launch.cuh"
#include "cuda_kernels/device/shared_memory.cuh"
#include "cuda_kernels/kernels/attention.h"
#include "cuda_kernels/kernels/attention_head.cuh"

namespace tokend::cuda {
namespace {

constexpr int kWarps = 4;

// Block: the rows of a tile, one KV head.
__global__ void __launch_bounds__(kWarps* kWarpLanes) AppendKvKernel(AttentionParams params) {
  AllowNextKernel();
  WaitForPreviousKernel();
  const int head_dim = params.kv.head_dim;
  float* scratch = SharedArray<float>(0, kWarps * head_dim) + Warp() * head_dim;
  const StepTables& step = params.step;
  const int index = static_cast<int>(blockIdx.x) / params.kv.kv_heads;
  const int kv_head = static_cast<int>(blockIdx.x) % params.kv.kv_heads;
  if (index >= step.counts->append_tile_count) return;
  const RowTile tile =
      reinterpret_cast<const RowTile*>(step.words + step.counts->append_tiles)[index];
  const SequenceEntry sequence = step.sequences[tile.sequence];
  const LayerTable table = step.tables[int64_t{tile.sequence} * step.layers + params.layer];
  for (int i = Warp(); i < 2 * tile.rows; i += kWarps) {
    const int at = tile.first + i / 2;
    const int64_t position = sequence.position + at;
    const int64_t row = sequence.first_row + at;
    if (position < table.store_begin) continue;
    AppendHead(params, table, row, position, kv_head, i % 2 == 0, head_dim, params.kv.int8,
               scratch);
  }
}

}  // namespace

absl::Status AppendKv(const AttentionParams& params, int tiles, cudaStream_t stream) {
  if (tiles == 0) return absl::OkStatus();
  LaunchDims dims;
  dims.grid_x = static_cast<unsigned>(tiles * params.kv.kv_heads);
  dims.threads = kWarps * kWarpLanes;
  dims.shared_bytes = static_cast<size_t>(kWarps * params.kv.head_dim) * sizeof(float);
  return Launch("AppendKv", AppendKvKernel, dims, params, stream);
}

}  // namespace tokend::cuda
