// What is left for an arena: code is loaded when a kernel first runs, and graphs take
// memory of the device, so both are there before the free memory is read.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "cuda_kernels/backend/cuda_backend.h"

namespace tokend::cuda {

absl::Status CudaBackend::MeasureFreeMemory() {
  const auto pages = static_cast<int64_t>(model_->layers().size());
  TOKEND_RETURN_IF_ERROR(UseArena(pages));
  TOKEND_RETURN_IF_ERROR(Rehearse());
  TOKEND_ASSIGN_OR_RETURN(const DeviceMemory memory, ReadDeviceMemory(options_.device));
  // The graphs stay counted: those of the arena to come take as much.
  free_bytes_ = memory.free_bytes + arena_.bytes();
  logit_graphs_ = {};
  draw_graphs_ = {};
  pass_.reset();
  arena_ = DeviceBuffer();
  pages_ = 0;
  return absl::OkStatus();
}

// A prompt of two rows and a token, drawn, with one page a layer.
absl::Status CudaBackend::Rehearse() {
  const size_t layers = model_->layers().size();
  std::vector<base::PageId> pages(layers);
  std::vector<ops::LayerKv> tables(layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    pages[layer] = static_cast<base::PageId>(layer);
    tables[layer].pages = &pages[layer];
    tables[layer].page_count = 1;
  }
  const ops::SamplingParams sampling;
  const int32_t tokens[2] = {0, 0};
  const int32_t first_row = 0;
  const auto rows = static_cast<int32_t>(std::min<int64_t>(2, options_.max_batch_tokens));
  for (const ops::StepSequence& sequence :
       {ops::StepSequence{0, rows, 0, tables}, ops::StepSequence{0, 1, rows, tables}}) {
    const ops::TokenDraw draw = {&sampling, sequence.position + 1};
    ops::StepBatch batch;
    batch.tokens = absl::MakeConstSpan(tokens, static_cast<size_t>(sequence.rows));
    batch.sequences = absl::MakeConstSpan(&sequence, 1);
    batch.logit_rows = absl::MakeConstSpan(&first_row, 1);
    batch.draws = absl::MakeConstSpan(&draw, 1);
    TOKEND_RETURN_IF_ERROR(Forward(batch).status());
  }
  return absl::OkStatus();
}

}  // namespace tokend::cuda
