#ifndef TOKEND_TESTS_SUPPORT_BATCH_COPY_H_
#define TOKEND_TESTS_SUPPORT_BATCH_COPY_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "core/base/page_id.h"
#include "core/ops/step.h"

namespace tokend::testing {

// A batch with all that it points to but scores, so that its step can run after Submit
// has returned.
class BatchCopy {
 public:
  explicit BatchCopy(const ops::StepBatch& batch);
  BatchCopy(const BatchCopy&) = delete;
  BatchCopy& operator=(const BatchCopy&) = delete;

  ops::StepBatch batch() const;

 private:
  std::vector<int32_t> tokens_;
  std::vector<ops::StepSequence> sequences_;
  std::deque<std::vector<ops::LayerKv>> layers_;  // of a sequence
  std::deque<std::vector<base::PageId>> tables_;  // of a sequence's layer
  std::deque<std::vector<int32_t>> kept_;         // the same
  std::vector<int32_t> logit_rows_;
  std::vector<ops::TokenDraw> draws_;
  std::deque<ops::SamplingParams> params_;  // of a draw
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_BATCH_COPY_H_
