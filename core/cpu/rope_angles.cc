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
    cos[first] = cos[second] = static_cast<float>(std::cos(angle));
    sin[second] = static_cast<float>(std::sin(angle));
    sin[first] = -sin[second];
  }
}

void RopeAngles::StartStep(const ops::StepBatch& batch) {
  sinks_.clear();
  int64_t last = -1;
  for (const ops::StepSequence& sequence : batch.sequences) {
    for (const ops::LayerKv& layer : sequence.layers) {
      const int64_t end = sequence.position + sequence.rows - 1;
      const int64_t position = layer.mask.SinkPosition(end);
      if (position == end || position == last) continue;
      last = position;
      bool known = false;
      for (const Sink& sink : sinks_) known = known || sink.position == position;
      if (known) continue;
      sinks_.push_back({position, std::vector<float>(static_cast<size_t>(stride_))});
      Fill(position, sinks_.back().angles.data());
    }
  }
}

void RopeAngles::SetRow(int64_t row, int64_t position) {
  Fill(position, rows_.data() + row * stride_);
}

RopeAngleRow RopeAngles::SinkRow(int64_t row, int64_t position,
                                 const ops::AttentionMask& mask) const {
  const int64_t from = mask.SinkPosition(position);
  if (from == position) return Row(row);
  for (const Sink& sink : sinks_) {
    if (sink.position == from) return View(sink.angles.data());
  }
  TOKEND_CHECK(false);
}

}  // namespace tokend::cpu
