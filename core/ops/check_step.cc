#include "core/ops/check_step.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace tokend::ops {
namespace {

absl::Status CheckSequences(const StepBatch& batch, const StepLimits& limits) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  int64_t next = 0;
  size_t logit_row = 0;
  int64_t last = -1;
  for (const StepSequence& sequence : batch.sequences) {
    if (sequence.first_row != next || sequence.rows < 1 || sequence.position < 0 ||
        static_cast<int64_t>(sequence.layers.size()) != limits.layers) {
      return BadStep(absl::StrCat("the sequence at row ", next));
    }
    next += sequence.rows;
    if (limits.positions > 0 && sequence.position + sequence.rows > limits.positions) {
      return BadStep(absl::StrCat("a position from ", limits.positions, " on"));
    }
    int64_t attend_begin = 0;
    for (const LayerKv& layer : sequence.layers) {
      if (layer.attend_begin < attend_begin) return BadStep("attend_begin falls");
      attend_begin = layer.attend_begin;
    }
    for (; logit_row < batch.logit_rows.size() && batch.logit_rows[logit_row] < next; ++logit_row) {
      const int64_t row = batch.logit_rows[logit_row];
      if (row <= last || sequence.position + row - sequence.first_row < attend_begin) {
        return BadStep(absl::StrCat("logits of row ", row));
      }
      last = row;
    }
  }
  if (!batch.draws.empty() && batch.draws.size() != batch.logit_rows.size()) {
    return BadStep(absl::StrCat(batch.draws.size(), " draws"));
  }
  if (next != rows) return BadStep(absl::StrCat("sequences cover ", next, " of ", rows, " rows"));
  if (logit_row < batch.logit_rows.size()) {
    return BadStep(absl::StrCat("logits of row ", batch.logit_rows[logit_row]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BadStep(absl::string_view problem) {
  return base::MakeError(absl::StatusCode::kInternal, absl::StrCat("backend: ", problem),
                         {base::ErrorReason::kBackendFailed, {}, {}});
}

absl::Status CheckStep(const StepBatch& batch, const StepLimits& limits) {
  const auto rows = static_cast<int64_t>(batch.tokens.size());
  if (limits.pages == 0) return BadStep("no arena yet");
  if (rows < 1 || rows > limits.max_batch_tokens) {
    return BadStep(absl::StrCat(rows, " rows of at most ", limits.max_batch_tokens));
  }
  if (static_cast<int64_t>(batch.sequences.size()) > limits.max_sequences) {
    return BadStep(
        absl::StrCat(batch.sequences.size(), " sequences of at most ", limits.max_sequences));
  }
  for (const int32_t token : batch.tokens) {
    if (token < -limits.draws_before || token >= limits.vocabulary_size) {
      return BadStep(absl::StrCat("token ", token));
    }
  }
  return CheckSequences(batch, limits);
}

absl::Status CheckCopies(absl::Span<const PageCopy> copies, const StepLimits& limits) {
  for (const PageCopy& copy : copies) {
    for (const base::PageId page : {copy.from, copy.to}) {
      const auto id = static_cast<int64_t>(page);
      if (id < 0 || id >= limits.pages) return BadStep(absl::StrCat("copy of page ", id));
    }
    if (copy.rows < 0 || copy.rows > limits.page_tokens) {
      return BadStep(absl::StrCat("copy of ", copy.rows, " rows"));
    }
  }
  return absl::OkStatus();
}

}  // namespace tokend::ops
