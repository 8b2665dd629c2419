#include "cuda_kernels/backend/workspace.h"

#include "core/base/status_macros.h"

namespace tokend::cuda {
namespace {

constexpr int64_t kAlignment = 256;

}  // namespace

// Hands out parts of a piece of memory, or of none, to count what is needed.
class Workspace::Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* Take(int64_t count) {
    const int64_t at = offset_;
    offset_ += (count * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + at);
  }
  HalfRows TakeHalfRows(int64_t rows, int64_t width, bool pair) {
    HalfRows out;
    out.stride = (width + 7) / 8 * 8;
    out.hi = Take<__half>(rows * out.stride);
    if (pair) out.lo = Take<__half>(rows * out.stride);
    return out;
  }
  int64_t bytes() const { return offset_; }

 private:
  std::byte* const memory_;
  int64_t offset_ = 0;
};

void Workspace::Carve(const ops::ModelPlan& plan, const WorkspaceShape& shape, Carver* carver) {
  const int64_t rows = shape.rows;
  const int64_t heads_width = int64_t{plan.heads} * plan.head_dim;
  step = carver->Take<std::byte>(shape.step_bytes);
  x = carver->Take<float>(rows * plan.width);
  qkv = carver->Take<float>(rows * (heads_width + 2 * int64_t{plan.kv_heads} * plan.head_dim));
  y = carver->Take<float>(rows * plan.width);
  normed = carver->TakeHalfRows(rows, plan.width, shape.pair);
  attended = carver->TakeHalfRows(rows, heads_width, shape.pair);
  activated = carver->TakeHalfRows(rows, plan.ffn_width, shape.pair);
  logits = carver->Take<float>(shape.logit_rows * plan.vocabulary_size);
  draws = carver->Take<SamplingRow>(shape.logit_rows);
  tokens = carver->Take<int32_t>(shape.logit_rows);
  sampling = carver->Take<unsigned char>(static_cast<int64_t>(SamplingWorkspaceBytes(
      shape.logit_rows, static_cast<int>(plan.vocabulary_size), /*adjustment_capacity=*/0)));
  ropes.clear();
  for (const ops::Rope& rope : plan.ropes) {
    RopeTable table;
    table.dims = rope.dims;
    table.halves = rope.pairing == ops::RopePairing::kHalves;
    table.cos = carver->Take<float>(int64_t{shape.angle_rows} * rope.dims / 2);
    table.sin = carver->Take<float>(int64_t{shape.angle_rows} * rope.dims / 2);
    ropes.push_back(table);
  }
  attention_bytes = AttentionWorkspaceBytes(shape.kv, plan.heads, shape.decode_items);
  attention = carver->Take<unsigned char>(attention_bytes);
  saturations = carver->Take<unsigned>(1);
}

absl::StatusOr<std::unique_ptr<Workspace>> Workspace::Create(const ops::ModelPlan& plan,
                                                             const WorkspaceShape& shape) {
  auto workspace = std::unique_ptr<Workspace>(new Workspace());
  Carver counter(nullptr);
  workspace->Carve(plan, shape, &counter);
  TOKEND_ASSIGN_OR_RETURN(workspace->memory_, DeviceBuffer::Allocate(counter.bytes(), "workspace"));
  Carver carver(workspace->memory_.data());
  workspace->Carve(plan, shape, &carver);
  return workspace;
}

}  // namespace tokend::cuda
