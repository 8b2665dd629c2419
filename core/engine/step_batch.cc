#include "core/engine/step_batch.h"

namespace tokend::engine {

void StepBatchBuilder::Clear() {
  entries_.clear();
  tokens_.clear();
  sequences_.clear();
  logit_rows_.clear();
  draws_.clear();
}

void StepBatchBuilder::Add(Turn* turn, int rows) {
  const kv::Branch& branch = *turn->branch;
  ops::StepSequence sequence;
  sequence.first_row = static_cast<int32_t>(tokens_.size());
  sequence.rows = rows;
  sequence.position = branch.computed();
  sequence.layers = branch.layers();
  sequences_.push_back(sequence);
  branch.ReadTokens(branch.computed(), branch.computed() + rows, &tokens_);

  Entry entry;
  entry.turn = turn;
  entry.rows = rows;
  const bool last = branch.computed() + rows == branch.tokens();
  entry.decode = turn->decoding() && rows == 1 && last;
  if (last && turn->limit.tokens > 0) AddLogitRow(&entry, branch.tokens());
  entries_.push_back(entry);
}

void StepBatchBuilder::AddAhead(Turn* turn, int draw) {
  const kv::Branch& branch = *turn->branch;
  sequences_.push_back({rows(), 1, branch.tokens(), branch.layers()});
  tokens_.push_back(-1 - draw);
  Entry entry;
  entry.turn = turn;
  entry.rows = 1;
  entry.decode = true;
  AddLogitRow(&entry, branch.tokens() + 1);
  entries_.push_back(entry);
}

void StepBatchBuilder::AddLogitRow(Entry* entry, int64_t position) {
  entry->logit_row = static_cast<int>(logit_rows_.size());
  logit_rows_.push_back(rows() - 1);
  const Request& request = entry->turn->request;
  if (ops::DrawsAlone(request.sampling) && !request.top_logprobs.has_value()) {
    draws_.push_back({&request.sampling, position});
  }
}

void StepBatchBuilder::Forget(const Turn* turn) {
  for (Entry& entry : entries_) {
    if (entry.turn == turn) entry.turn = nullptr;
  }
}

ops::StepBatch StepBatchBuilder::Build(bool draw) {
  ops::StepBatch batch;
  batch.tokens = tokens_;
  batch.sequences = sequences_;
  batch.logit_rows = logit_rows_;
  if (draw && draws_.size() == logit_rows_.size()) batch.draws = draws_;
  return batch;
}

}  // namespace tokend::engine
