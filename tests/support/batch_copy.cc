#include "tests/support/batch_copy.h"

namespace tokend::testing {

BatchCopy::BatchCopy(const ops::StepBatch& batch)
    : tokens_(batch.tokens.begin(), batch.tokens.end()),
      sequences_(batch.sequences.begin(), batch.sequences.end()),
      logit_rows_(batch.logit_rows.begin(), batch.logit_rows.end()),
      draws_(batch.draws.begin(), batch.draws.end()) {
  for (ops::StepSequence& sequence : sequences_) {
    layers_.emplace_back(sequence.layers.begin(), sequence.layers.end());
    for (ops::LayerKv& layer : layers_.back()) {
      tables_.emplace_back(layer.pages, layer.pages + layer.page_count);
      layer.pages = tables_.back().data();
      kept_.emplace_back(layer.kept, layer.kept + layer.kept_pages);
      layer.kept = kept_.back().data();
    }
    sequence.layers = layers_.back();
  }
  for (ops::TokenDraw& draw : draws_) draw.params = &params_.emplace_back(*draw.params);
}

ops::StepBatch BatchCopy::batch() const {
  ops::StepBatch batch;
  batch.tokens = tokens_;
  batch.sequences = sequences_;
  batch.logit_rows = logit_rows_;
  batch.draws = draws_;
  return batch;
}

}  // namespace tokend::testing
