#include "core/cpu/panel_work.h"

#include <algorithm>

#include "absl/functional/function_ref.h"
#include "core/base/check.h"
#include "core/cpu/matmul.h"

namespace tokend::cpu {
namespace {

// Of a job's panels [begin, end): output `first` of the job is where the panels'
// outputs begin, and they stand `at` outputs behind the chunk's first.
struct JobPanels {
  const MatmulJob* job;
  int64_t begin, end;
  int64_t at;

  int64_t first() const { return begin * kPanelOutputs; }
  int64_t outputs() const {
    return std::min(job->linear->matrix.rows(), end * kPanelOutputs) - first();
  }
};

// The jobs that the range touches, in order.
void ForJobs(const PanelWork& work, const PanelRange& range,
             absl::FunctionRef<void(const JobPanels&)> fn) {
  int64_t before = 0;  // panels of earlier jobs
  for (int i = 0; i < work.count; ++i) {
    const int64_t panels = work.jobs[i].linear->matrix.panels();
    const int64_t begin = std::max(range.panel_begin, before);
    const int64_t end = std::min(range.panel_end, before + panels);
    if (begin < end) {
      fn({&work.jobs[i], begin - before, end - before,
          (begin - range.panel_begin) * kPanelOutputs});
    }
    before += panels;
  }
}

int64_t ScratchStride(const PanelRange& range) {
  return (range.panel_end - range.panel_begin) * kPanelOutputs;
}

}  // namespace

int64_t PanelWork::panels() const {
  if (gate != nullptr) return jobs[0].linear->matrix.panels();
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) sum += jobs[i].linear->matrix.panels();
  return sum;
}

int64_t PanelWork::panel_bytes() const {
  int64_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    const PackedMatrix& matrix = jobs[i].linear->matrix;
    bytes += matrix.panels() * matrix.panel_bytes();
  }
  const int64_t all = panels();
  TOKEND_CHECK(all > 0);
  return bytes / all;
}

void PanelWork::ComputeActivated(const MatmulInput& input, const PanelRange& range,
                                 const PanelScratch& scratch, float* out, int64_t stride) const {
  const int64_t first = range.panel_begin * kPanelOutputs;
  const int64_t width = ScratchStride(range);
  const int64_t shift = range.row_begin * width + first;
  float* const results[] = {scratch.result, scratch.other};
  TOKEND_CHECK(count <= 2);
  for (int i = 0; i < count; ++i) {
    const PackedLinear& linear = *jobs[i].linear;
    MatmulPanels(isa, linear.matrix, input.For(linear.matrix), range.row_begin, range.row_end,
                 range.panel_begin, range.panel_end, results[i] - shift, width,
                 {linear.bias, false});
  }
  const int64_t outputs = std::min(jobs[0].linear->matrix.rows() - first, width);
  for (int64_t row = 0; row < range.row_end - range.row_begin; ++row) {
    const float* const result = scratch.result + row * width;
    if (gate != nullptr) {
      gate(result, scratch.other + row * width, outputs, out + row * stride);
    } else {
      activate(result, outputs, out + row * stride);
    }
  }
}

void PanelWork::Run(const MatmulInput& input, const PanelRange& range,
                    const PanelScratch& scratch) const {
  if (activated()) {
    // Panel by panel: scratch holds one for all rows.
    for (int64_t panel = range.panel_begin; panel < range.panel_end; ++panel) {
      float* out = jobs[0].out + range.row_begin * jobs[0].stride + panel * kPanelOutputs;
      ComputeActivated(input, {range.row_begin, range.row_end, panel, panel + 1}, scratch, out,
                       jobs[0].stride);
    }
    return;
  }
  ForJobs(*this, range, [&](const JobPanels& part) {
    const PackedLinear& linear = *part.job->linear;
    MatmulPanels(isa, linear.matrix, input.For(linear.matrix), range.row_begin, range.row_end,
                 part.begin, part.end, part.job->out, part.job->stride,
                 {linear.bias, part.job->accumulate});
  });
}

void PanelWork::Compute(const MatmulInput& input, const PanelRange& range,
                        const PanelScratch& scratch) const {
  const int64_t stride = ScratchStride(range);
  if (activated()) return ComputeActivated(input, range, scratch, scratch.result, stride);
  ForJobs(*this, range, [&](const JobPanels& part) {
    const PackedLinear& linear = *part.job->linear;
    MatmulPanels(isa, linear.matrix, input.For(linear.matrix), range.row_begin, range.row_end,
                 part.begin, part.end,
                 scratch.result + part.at - part.first() - range.row_begin * stride, stride,
                 {linear.bias, false});
  });
}

void PanelWork::Publish(const PanelRange& range, const PanelScratch& scratch) const {
  const int64_t stride = ScratchStride(range);
  auto move = [&](const JobPanels& part) {
    for (int64_t row = range.row_begin; row < range.row_end; ++row) {
      const float* from = scratch.result + (row - range.row_begin) * stride + part.at;
      float* to = part.job->out + row * part.job->stride + part.first();
      if (part.job->accumulate) {
        for (int64_t i = 0; i < part.outputs(); ++i) to[i] += from[i];
      } else {
        std::copy_n(from, part.outputs(), to);
      }
    }
  };
  if (activated()) return move({&jobs[0], range.panel_begin, range.panel_end, 0});
  ForJobs(*this, range, move);
}

}  // namespace tokend::cpu
