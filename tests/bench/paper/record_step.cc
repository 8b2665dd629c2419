#include "tests/bench/paper/record_step.h"

#include <algorithm>
#include <memory>

#include "core/base/status_macros.h"
#include "cuda_kernels/backend/device_model.h"
#include "cuda_kernels/backend/forward_pass.h"
#include "cuda_kernels/backend/step_tables.h"
#include "cuda_kernels/backend/workspace.h"
#include "cuda_kernels/runtime/stream.h"

namespace tokend::bench {
namespace {

constexpr int kPageTokens = 16;
// Keeps the workspace small; what a decode step launches does not grow with it.
constexpr int64_t kMostContext = 4096;

cuda::DeviceInfo InfoOf(const Target& target) {
  cuda::DeviceInfo info;
  info.name = target.name;
  info.major = target.major;
  info.minor = target.minor;
  info.multiprocessors = target.multiprocessors;
  info.shared_bytes_per_multiprocessor = target.shared_bytes;
  info.shared_bytes_per_block = target.shared_bytes_block;
  info.dependent_launch = target.dependent_launch;
  return info;
}

cuda::StepLimits LimitsOf(const ops::ModelPlan& plan, const cuda::KvLayout& kv, int rows) {
  cuda::StepLimits limits;
  limits.rows = limits.sequences = rows;
  limits.layers = static_cast<int>(plan.layers.size());
  limits.context_tokens = std::min(plan.context_tokens, kMostContext);
  limits.page_tokens = kPageTokens;
  limits.tile_tokens = cuda::AttentionTileTokens(kv, plan.heads, /*pair=*/false);
  return limits;
}

// Until it goes out of scope.
class Recording {
 public:
  explicit Recording(std::vector<simt::LaunchRecord>* records) { simt::RecordLaunches(records); }
  ~Recording() { simt::RecordLaunches(nullptr); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
};

}  // namespace

cuda::KvLayout PaperKv(const ops::ModelPlan& plan) {
  cuda::KvLayout kv;
  kv.page_tokens = kPageTokens;
  kv.kv_heads = plan.kv_heads;
  kv.head_dim = plan.head_dim;
  return kv;
}

absl::StatusOr<std::vector<simt::LaunchRecord>> RecordDecodeStep(const ops::ModelPlan& plan,
                                                                 int rows, const Target& target) {
  TOKEND_ASSIGN_OR_RETURN(const auto model, cuda::DeviceModel::LayOut(plan, /*pair=*/false));
  TOKEND_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::Stream::Create());
  const cuda::KvLayout kv = PaperKv(plan);
  const cuda::StepTableWriter writer(LimitsOf(plan, kv, rows));
  cuda::WorkspaceShape shape;
  shape.rows = shape.sequences = shape.logit_rows = rows;
  shape.angle_rows = std::max(writer.max_angle_rows(), rows);
  shape.decode_items = writer.max_decode_items();
  shape.step_bytes = writer.block_bytes();
  shape.kv = kv;
  TOKEND_ASSIGN_OR_RETURN(const auto workspace, cuda::Workspace::Create(plan, shape));
  cuda::ForwardPass::Parts parts;
  parts.model = model.get();
  parts.workspace = workspace.get();
  parts.stream = &stream;
  parts.device = InfoOf(target);
  parts.kv = kv;
  parts.step = writer.View(workspace->step);
  parts.max_angle_rows = writer.max_angle_rows();
  parts.max_decode_items = writer.max_decode_items();
  const cuda::ForwardPass pass(parts);
  std::vector<simt::LaunchRecord> records;
  const Recording recording(&records);
  cuda::PassShape step;
  step.rows = rows;
  step.decode = true;
  TOKEND_RETURN_IF_ERROR(pass.RunBlocks(step));
  TOKEND_RETURN_IF_ERROR(pass.RunHead(0, rows, true));
  TOKEND_RETURN_IF_ERROR(pass.RunDraws(rows));
  return records;
}

}  // namespace tokend::bench
