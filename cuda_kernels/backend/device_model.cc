#include "cuda_kernels/backend/device_model.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "cuda_kernels/backend/errors.h"
#include "cuda_kernels/backend/packed_weights.h"

namespace tokend::cuda {
namespace {

// Of every part of the memory: what the matmul kernels' copies want.
constexpr int64_t kAlignment = 128;

NormKind ToKind(ops::NormKind kind) {
  return kind == ops::NormKind::kRms ? NormKind::kRms : NormKind::kLayer;
}

// What a plan says beside its weights.
ops::ModelPlan WithoutData(ops::ModelPlan plan) {
  plan.embedding = plan.position_embedding = {};
  plan.output_norm = {};
  plan.output = {};
  for (ops::LayerPlan& layer : plan.layers) {
    ops::LayerPlan kept;
    kept.local_tokens = layer.local_tokens;
    kept.rope = layer.rope;
    layer = kept;
  }
  return plan;
}

}  // namespace

// Walks over a model twice: first without memory, to count bytes, then to fill it.
class DeviceModel::Loader {
 public:
  using Progress = std::function<void(int64_t done, int64_t total)>;

  Loader(const ops::ModelPlan& plan, bool pair) : plan_(plan), pair_(pair) {}
  // Second pass.
  Loader(const ops::ModelPlan& plan, bool pair, const Stream* stream, const DeviceBuffer& memory,
         const Progress* progress)
      : plan_(plan), pair_(pair), stream_(stream), memory_(&memory), progress_(progress) {}

  int64_t bytes() const { return offset_; }

  absl::StatusOr<PackedMatrix> Matrix(const ops::Matrix& source, absl::string_view name) {
    if (!source.present()) return PackedMatrix{};
    TOKEND_ASSIGN_OR_RETURN(std::byte * at, Put(PackedBytes(source, pair_, false), [&](auto* out) {
                              return PackWeights(source, pair_, name, out);
                            }));
    return PackedView(source, pair_, false, reinterpret_cast<const unsigned char*>(at));
  }

  absl::StatusOr<DeviceLinear> Linear(const ops::Linear& source, absl::string_view name) {
    DeviceLinear out;
    TOKEND_ASSIGN_OR_RETURN(out.weight, Matrix(source.weight, name));
    TOKEND_ASSIGN_OR_RETURN(out.bias, Vector(source.bias, source.weight.rows));
    return out;
  }

  absl::StatusOr<DeviceLinear> GatedLinear(const ops::Linear& gate, const ops::Linear& up,
                                           absl::string_view name) {
    if (gate.weight.type != up.weight.type) {
      return UnsupportedPlan(absl::StrCat(name, " with gate and up of different types"));
    }
    DeviceLinear out;
    TOKEND_ASSIGN_OR_RETURN(std::byte * at,
                            Put(PackedBytes(gate.weight, pair_, true), [&](auto* to) {
                              return PackGatedWeights(gate.weight, up.weight, pair_, name, to);
                            }));
    out.weight = PackedView(gate.weight, pair_, true, reinterpret_cast<const unsigned char*>(at));
    TOKEND_ASSIGN_OR_RETURN(out.bias, Vector(gate.bias, gate.weight.rows));
    TOKEND_ASSIGN_OR_RETURN(out.up_bias, Vector(up.bias, up.weight.rows));
    return out;
  }

  absl::StatusOr<RowNorm> Norm(const ops::Norm& source, int64_t width) {
    RowNorm out;
    out.kind = ToKind(plan_.norm_kind);
    out.epsilon = plan_.norm_epsilon;
    TOKEND_ASSIGN_OR_RETURN(out.weight, Vector(source.weight, width));
    TOKEND_ASSIGN_OR_RETURN(out.bias, Vector(source.bias, width));
    return out;
  }

  // RMS, over heads or vectors of q and k.
  absl::StatusOr<RowNorm> QkNorm(ops::Vector weight, int64_t width) {
    RowNorm out;
    out.epsilon = plan_.norm_epsilon;
    TOKEND_ASSIGN_OR_RETURN(out.weight, Vector(weight, width));
    return out;
  }

  template <typename T>
  absl::StatusOr<const T*> Array(const T* source, int64_t size) {
    if (source == nullptr || size == 0) return nullptr;
    const auto bytes = static_cast<size_t>(size) * sizeof(T);
    TOKEND_ASSIGN_OR_RETURN(std::byte * at, Put(static_cast<int64_t>(bytes), [&](std::byte* out) {
                              std::memcpy(out, source, bytes);
                              return absl::OkStatus();
                            }));
    return reinterpret_cast<const T*>(at);
  }
  absl::StatusOr<const float*> Vector(ops::Vector source, int64_t size) {
    return Array<float>(source, size);
  }

 private:
  absl::StatusOr<std::byte*> Put(int64_t bytes,
                                 absl::FunctionRef<absl::Status(std::byte* out)> fill) {
    const int64_t at = offset_;
    offset_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    // Not nullptr, which is what is absent.
    if (memory_ == nullptr) return reinterpret_cast<std::byte*>(kAlignment + at);
    staging_.resize(std::max(staging_.size(), static_cast<size_t>(bytes)));
    TOKEND_RETURN_IF_ERROR(fill(staging_.data()));
    std::byte* const to = memory_->data() + at;
    TOKEND_RETURN_IF_ERROR(stream_->CopyToDevice(to, staging_.data(), bytes, "weights"));
    TOKEND_RETURN_IF_ERROR(stream_->Synchronize("weights"));
    if (*progress_) (*progress_)(offset_, memory_->bytes());
    return to;
  }

  const ops::ModelPlan& plan_;
  const bool pair_;
  const Stream* const stream_ = nullptr;
  const DeviceBuffer* const memory_ = nullptr;
  const Progress* const progress_ = nullptr;
  int64_t offset_ = 0;
  std::vector<std::byte> staging_;
};

absl::Status DeviceModel::LoadLayer(Loader* loader, size_t index) {
  const ops::LayerPlan& from = plan_.layers[index];
  DeviceLayer& to = layers_[index];
  const auto name = [&](absl::string_view part) {
    return absl::StrCat("layer ", index, " ", part);
  };
  const int64_t width = plan_.width;
  const bool heads = plan_.qk_norm == ops::QkNorm::kHead;
  const int64_t query_norm = heads ? plan_.head_dim : from.query.weight.rows;
  const int64_t key_norm = heads ? plan_.head_dim : from.key.weight.rows;
  TOKEND_ASSIGN_OR_RETURN(to.attention_norm, loader->Norm(from.attention_norm, width));
  TOKEND_ASSIGN_OR_RETURN(to.query, loader->Linear(from.query, name("query")));
  TOKEND_ASSIGN_OR_RETURN(to.key, loader->Linear(from.key, name("key")));
  TOKEND_ASSIGN_OR_RETURN(to.value, loader->Linear(from.value, name("value")));
  TOKEND_ASSIGN_OR_RETURN(to.query_norm, loader->QkNorm(from.query_norm, query_norm));
  TOKEND_ASSIGN_OR_RETURN(to.key_norm, loader->QkNorm(from.key_norm, key_norm));
  TOKEND_ASSIGN_OR_RETURN(to.attention_output,
                          loader->Linear(from.attention_output, name("attention output")));
  TOKEND_ASSIGN_OR_RETURN(to.post_attention_norm, loader->Norm(from.post_attention_norm, width));
  TOKEND_ASSIGN_OR_RETURN(to.ffn_norm, loader->Norm(from.ffn_norm, width));
  if (from.gate.present()) {
    TOKEND_ASSIGN_OR_RETURN(to.up, loader->GatedLinear(from.gate, from.up, name("feed forward")));
  } else {
    TOKEND_ASSIGN_OR_RETURN(to.up, loader->Linear(from.up, name("feed forward")));
  }
  TOKEND_ASSIGN_OR_RETURN(to.down, loader->Linear(from.down, name("down")));
  TOKEND_ASSIGN_OR_RETURN(to.post_ffn_norm, loader->Norm(from.post_ffn_norm, width));
  return absl::OkStatus();
}

absl::Status DeviceModel::Load(Loader* loader) {
  layers_.resize(plan_.layers.size());
  inverse_frequencies_.clear();
  for (const ops::Rope& rope : plan_.ropes) {
    TOKEND_ASSIGN_OR_RETURN(const double* const at,
                            loader->Array<double>(rope.inverse_frequencies.data(), rope.dims / 2));
    inverse_frequencies_.push_back(at);
  }
  TOKEND_ASSIGN_OR_RETURN(embedding_, loader->Matrix(plan_.embedding, "embedding"));
  TOKEND_ASSIGN_OR_RETURN(position_embedding_,
                          loader->Matrix(plan_.position_embedding, "position embedding"));
  for (size_t i = 0; i < layers_.size(); ++i) TOKEND_RETURN_IF_ERROR(LoadLayer(loader, i));
  TOKEND_ASSIGN_OR_RETURN(output_norm_, loader->Norm(plan_.output_norm, plan_.width));
  if (plan_.output.weight.data != plan_.embedding.data) {
    TOKEND_ASSIGN_OR_RETURN(output_, loader->Linear(plan_.output, "output"));
    return absl::OkStatus();
  }
  output_.weight = embedding_;
  TOKEND_ASSIGN_OR_RETURN(output_.bias,
                          loader->Vector(plan_.output.bias, plan_.output.weight.rows));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceModel>> DeviceModel::LayOut(const ops::ModelPlan& plan,
                                                                 bool pair) {
  auto model = std::unique_ptr<DeviceModel>(new DeviceModel(plan));
  Loader counter(plan, pair);
  TOKEND_RETURN_IF_ERROR(model->Load(&counter));
  model->plan_ = WithoutData(std::move(model->plan_));
  return model;
}

absl::StatusOr<std::unique_ptr<DeviceModel>> DeviceModel::Create(
    const ops::ModelPlan& plan, bool pair, const Stream& stream,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  auto model = std::unique_ptr<DeviceModel>(new DeviceModel(plan));
  Loader counter(plan, pair);
  TOKEND_RETURN_IF_ERROR(model->Load(&counter));
  TOKEND_ASSIGN_OR_RETURN(model->memory_, DeviceBuffer::Allocate(counter.bytes(), "weights"));
  Loader loader(plan, pair, &stream, model->memory_, &progress);
  TOKEND_RETURN_IF_ERROR(model->Load(&loader));
  model->plan_ = WithoutData(plan);
  return model;
}

}  // namespace tokend::cuda
