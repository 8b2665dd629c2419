#ifndef TOKEND_CORE_ENGINE_STEP_BATCH_H_
#define TOKEND_CORE_ENGINE_STEP_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/engine/turn.h"
#include "core/ops/step.h"

namespace tokend::engine {

// Lays the rows of several turns out flat for Backend::Submit. Keeps its memory
// from step to step.
class StepBatchBuilder {
 public:
  struct Entry {
    Turn* turn = nullptr;  // nullptr: it has ended since
    int rows = 0;
    bool decode = false;  // the row of the token drawn last, and nothing else
    int logit_row = -1;   // of StepOutput::logits; -1: none wanted
  };

  void Clear();
  // The next `rows` positions of the turn, which its branch has prepared. The
  // logits of the last one are wanted if it is the last token known so far.
  void Add(Turn* turn, int rows);

  // The row of the token that draw `draw` of the step in flight will give, which is
  // behind the branch's last one; its branch has prepared for it.
  void AddAhead(Turn* turn, int draw);
  // The turn has ended: nobody waits for its rows.
  void Forget(const Turn* turn);

  // Good until the next Clear, or until a branch of the batch changes. `draw`: has the
  // backend draw the tokens, if each turn's draw needs the logits alone.
  ops::StepBatch Build(bool draw);
  const std::vector<Entry>& entries() const { return entries_; }
  int rows() const { return static_cast<int>(tokens_.size()); }

 private:
  // Logits of the last row so far are wanted, for the token at `position`.
  void AddLogitRow(Entry* entry, int64_t position);

  std::vector<Entry> entries_;
  std::vector<int32_t> tokens_;
  std::vector<ops::StepSequence> sequences_;
  std::vector<int32_t> logit_rows_;
  std::vector<ops::TokenDraw> draws_;
};

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_STEP_BATCH_H_
