#include "tests/bench/paper/paper.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tests/support/shaped_model.h"

namespace tokend::bench {
namespace {

using testing::WeightMix;

constexpr Goal kGoals[] = {
    {"llama-3-8b", WeightMix::kF16, GoalKind::kFloorShare, 92},
    {"llama-3-8b", WeightMix::kQ4_0, GoalKind::kFloorShare, 80, 70.7},
    {"llama-3-8b", WeightMix::kQ4_K_M, GoalKind::kFloorShare, 80, 58.0},
    {"llama-2-7b", WeightMix::kQ4_0, GoalKind::kFloorShare, 80, 73.8},
    {"llama-2-7b", WeightMix::kQ4_K_M, GoalKind::kFloorShare, 80, 59.9},
    {"llama-3.2-1b", WeightMix::kF16, GoalKind::kFloorShare, 80},
    {"phi-3-mini", WeightMix::kQ4_0, GoalKind::kFloorShare, 80, 65.0},
    {"phi-3-mini", WeightMix::kQ4_K_M, GoalKind::kFloorShare, 80, 53.9},
    {"smollm2-135m", WeightMix::kF16, GoalKind::kRate, 2500},
    {"smollm2-135m", WeightMix::kQ4_0, GoalKind::kRate, 2500},
    {"gpt2-124m", WeightMix::kF16, GoalKind::kRate, 2500},
    {"llama-3-8b", WeightMix::kF16, GoalKind::kBatchGain, 6},
    {"llama-3-8b", WeightMix::kQ4_K_M, GoalKind::kBatchGain, 6, 4.5},
};

bool Alike(const PaperLaunch& a, const PaperLaunch& b) {
  return a.name == b.name && a.grid == b.grid && a.threads == b.threads &&
         a.shared_bytes == b.shared_bytes && a.bytes == b.bytes &&
         a.instructions == b.instructions && a.registers == b.registers;
}

void AddLaunch(const PaperLaunch& launch, const Target& target, PaperResult* result) {
  for (TimedLaunch& timed : result->launches) {
    if (!Alike(timed.launch, launch)) continue;
    ++timed.count;
    result->kernels += timed.time.seconds;
    result->boundaries += timed.time.boundary;
    return;
  }
  const PaperTime time = TimeOf(launch, target);
  result->launches.push_back({launch, time, 1});
  result->kernels += time.seconds;
  result->boundaries += time.boundary;
}

}  // namespace

absl::Span<const Goal> Goals() { return kGoals; }

struct Paper::Model {
  std::unique_ptr<const testing::ShapedModel> model;
};

absl::StatusOr<const Paper::Model*> Paper::Get(const testing::ModelShape& shape, WeightMix mix) {
  std::shared_ptr<const Model>& model =
      models_[absl::StrCat(shape.name, ":", testing::WeightMixName(mix))];
  if (model == nullptr) {
    TOKEND_ASSIGN_OR_RETURN(auto shaped, testing::ShapedModel::Create(shape, mix));
    model = std::make_shared<const Model>(Model{std::move(shaped)});
  }
  return model.get();
}

absl::StatusOr<PaperResult> Paper::Time(const testing::ModelShape& shape, WeightMix mix,
                                        const PaperStep& step, const Target& target) {
  TOKEND_ASSIGN_OR_RETURN(const Model* model, Get(shape, mix));
  const ops::ModelPlan& plan = model->model->plan();
  TOKEND_ASSIGN_OR_RETURN(const auto launches, DecodeLaunches(plan, step, target, facts_));
  PaperResult result;
  for (const PaperLaunch& launch : launches) AddLaunch(launch, target, &result);
  result.floor =
      (static_cast<double>(model->model->read_bytes()) + KvBytes(plan, step)) / target.bandwidth;
  return result;
}

absl::StatusOr<double> Paper::Reached(const Goal& goal, const Target& target) {
  const testing::ModelShape* shape = testing::FindShape(goal.shape);
  if (shape == nullptr) return absl::NotFoundError(goal.shape);
  TOKEND_ASSIGN_OR_RETURN(const PaperResult single, Time(*shape, goal.mix, {}, target));
  if (goal.kind == GoalKind::kFloorShare) return 100 * single.share();
  if (goal.kind == GoalKind::kRate) return 1 / single.seconds();
  PaperStep batch;
  batch.rows = 8;
  TOKEND_ASSIGN_OR_RETURN(const PaperResult eight, Time(*shape, goal.mix, batch, target));
  return 8 * single.seconds() / eight.seconds();
}

}  // namespace tokend::bench
