#include "core/sampling/penalty_state.h"

namespace tokend::sampling {

PenaltyState::PenaltyState(const ops::SamplingParams& params)
    : repetition_(params.repetition_penalty != 1),
      output_(params.presence_penalty != 0 || params.frequency_penalty != 0) {
  if (!repetition_) return;
  window_.reserve(ops::kPenaltyWindowTokens);
  counts_.reserve(ops::kPenaltyWindowTokens + 1);
}

void PenaltyState::AddContext(absl::Span<const int32_t> tokens) {
  if (!repetition_) return;
  if (tokens.size() > ops::kPenaltyWindowTokens) {
    tokens = tokens.last(ops::kPenaltyWindowTokens);
  }
  for (const int32_t token : tokens) AddToWindow(token);
}

void PenaltyState::AddOutput(int32_t token) {
  if (repetition_) AddToWindow(token);
  if (output_) ++counts_[token].output;
}

void PenaltyState::AddToWindow(int32_t token) {
  ++counts_[token].window;
  if (window_.size() < ops::kPenaltyWindowTokens) {
    window_.push_back(token);
    return;
  }
  const auto left = counts_.find(window_[oldest_]);
  if (--left->second.window == 0 && left->second.output == 0) counts_.erase(left);
  window_[oldest_] = token;
  oldest_ = (oldest_ + 1) % window_.size();
}

}  // namespace tokend::sampling
