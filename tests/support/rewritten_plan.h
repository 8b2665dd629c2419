#ifndef TOKEND_TESTS_SUPPORT_REWRITTEN_PLAN_H_
#define TOKEND_TESTS_SUPPORT_REWRITTEN_PLAN_H_

#include <deque>
#include <string>

#include "absl/types/span.h"
#include "core/base/dtype.h"
#include "core/ops/plan.h"

namespace tokend::testing {

// `values` as blocks of a type of 32 values a block, each value rounded to nearest.
std::string Quantise(base::WeightType type, absl::Span<const float> values);

// A plan whose matrices are F32, with their rows rewritten in another type; vectors stay
// where they are. Rows that are no multiple of the block stay F32.
class RewrittenPlan {
 public:
  RewrittenPlan(const ops::ModelPlan& plan, base::WeightType type);
  RewrittenPlan(const RewrittenPlan&) = delete;
  RewrittenPlan& operator=(const RewrittenPlan&) = delete;

  const ops::ModelPlan& plan() const { return plan_; }

 private:
  void Rewrite(base::WeightType type, ops::Matrix* matrix);

  ops::ModelPlan plan_;
  std::deque<std::string> data_;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_REWRITTEN_PLAN_H_
