#include "core/cpu/rope_angles.h"

#include <cmath>

#include "core/base/check.h"

namespace tokend::cpu {

RopeAngles::RopeAngles(const ops::Rope& rope, int64_t max_rows)
    : rope_(rope),
      stride_(2 * int64_t{rope.dims}),
      rows_(static_cast<size_t>(max_rows * stride_)) {}

void RopeAngles::Fill(int64_t position, float* out) const {
  const bool halves = rope_.pairing == ops::RopePairing::kHalves;
  const int pairs = rope_.dims / 2;
  float* cos = out;
  float* sin = out + rope_.dims;
  for (int i = 0; i < pairs; ++i) {
    const double angle =
        static_cast<double>(position) * rope_.inverse_frequencies[static_cast<size_t>(i)];
    const int first = halves ? i : 2 * i;
    const int second = halves ? i + pairs : 2 * i + 1;
    cos[first] = cos[second] = static_cast<float>(rope_.magnitude * std::cos(angle));
    sin[second] = static_cast<float>(rope_.magnitude * std::sin(angle));
    sin[first] = -sin[second];
  }
}

void RopeAngles::StartStep(const ops::StepBatch& batch) {
  sink_count_ = 0;
  if (rope_.dims == 0) return;
  int64_t last = -1;
  for (const ops::StepSequence& sequence : batch.sequences) {
    for (const ops::LayerKv& layer : sequence.layers) {
      const int64_t end = sequence.position + sequence.rows - 1;
      const int64_t position = layer.mask.SinkPosition(end);
      if (position == end || position == last) continue;
      last = position;
      if (FindSink(position) != nullptr) continue;
      if (sink_count_ == sinks_.size()) {
        sinks_.push_back({0, std::vector<float>(static_cast<size_t>(stride_))});
      }
      Sink& sink = sinks_[sink_count_++];
      sink.position = position;
      Fill(position, sink.angles.data());
    }
  }
}

void RopeAngles::SetRow(int64_t row, int64_t position) {
  Fill(position, rows_.data() + row * stride_);
}

RopeAngleRow RopeAngles::SinkRow(int64_t row, int64_t position,
                                 const ops::AttentionMask& mask) const {
  const int64_t from = mask.SinkPosition(position);
  if (from == position || rope_.dims == 0) return Row(row);
  const Sink* const sink = FindSink(from);
  TOKEND_CHECK(sink != nullptr);
  return View(sink->angles.data());
}

const RopeAngles::Sink* RopeAngles::FindSink(int64_t position) const {
  for (size_t i = 0; i < sink_count_; ++i) {
    if (sinks_[i].position == position) return &sinks_[i];
  }
  return nullptr;
}

}  // namespace tokend::cpu
