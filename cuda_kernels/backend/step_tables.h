#ifndef TOKEND_CUDA_KERNELS_BACKEND_STEP_TABLES_H_
#define TOKEND_CUDA_KERNELS_BACKEND_STEP_TABLES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/ops/step.h"
#include "cuda_kernels/kernels/step_tables.h"

namespace tokend::cuda {

// The largest step of a plan.
struct StepLimits {
  int rows = 0;
  int sequences = 0;
  int layers = 0;
  int64_t context_tokens = 0;  // positions that one layer of one sequence may hold
  int page_tokens = 16;
  int tile_tokens = 1;  // of an attention tile (AttentionTileTokens)
  // Sequences of a single row become decode items, else tiles (mode f32).
  bool decode = true;
};

// What the host knows of a step that it wrote.
struct StepShape {
  int64_t used_bytes = 0;  // of the block, from its start
  StepCounts counts;
  int decode_items = 0;  // most of any layer
};

// Writes steps as kernels read them into a block of memory. Not thread-safe.
class StepTableWriter {
 public:
  explicit StepTableWriter(const StepLimits& limits);

  // Of the block. All but used_bytes of a step need not be copied to the device.
  int64_t block_bytes() const { return block_bytes_; }
  // Decode items of a layer in the largest step.
  int max_decode_items() const;
  int max_angle_rows() const { return limits_.rows + limits_.sequences * limits_.layers; }

  // Writes `batch` into `block`, [block_bytes()], 16-byte aligned. The batch is valid
  // (the backend checked it). INVALID_ARGUMENT: it has hidden ranges, kept pages or
  // scores, which only other backends know. RESOURCE_EXHAUSTED: beyond the limits.
  absl::StatusOr<StepShape> Write(const ops::StepBatch& batch, absl::Span<std::byte> block);

  // The tables of a block that lies at `block`, on the device.
  StepTables View(const std::byte* block) const;

 private:
  // Whether the sequence becomes decode items.
  bool Decodes(const ops::StepSequence& rows) const { return limits_.decode && rows.rows == 1; }

  // Byte offsets of the parts.
  struct Offsets {
    int64_t tokens, logit_rows, angle_positions, sequences, tables, lists, words;
  };

  absl::Status WriteLayer(const ops::StepBatch& batch, size_t layer);
  absl::Status WriteTable(const ops::StepBatch& batch, size_t sequence, size_t layer);
  absl::Status WriteDecodeItems(const ops::StepBatch& batch, size_t layer);
  absl::Status WriteTiles(const ops::StepBatch& batch);
  // `count` words, rounded up to 4; the index of the first.
  absl::StatusOr<int32_t> TakeWords(int64_t count);
  // The row of the angle table of sinks seen from `position`.
  int32_t SinkAngles(int64_t position);

  const StepLimits limits_;
  Offsets offsets_ = {};
  int64_t block_bytes_ = 0;
  int64_t word_limit_ = 0;

  // The step under way.
  std::byte* block_ = nullptr;
  int64_t words_ = 0;
  StepShape shape_;
  std::vector<DecodeItem> items_;
  std::vector<RowTile> tiles_;
  struct Sink {
    int64_t position;
    int32_t row;
  };
  std::vector<Sink> sinks_;  // of this step
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_BACKEND_STEP_TABLES_H_
