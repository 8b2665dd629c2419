#include "tests/support/shaped_model.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "tests/support/random_weights.h"

namespace tokend::testing {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;  // about
// Matrices start at other blocks than those before them; no multiple of a row's blocks.
constexpr int64_t kStride = 3889;

absl::Status SystemError(absl::string_view call) {
  const std::string text = absl::StrCat(call, ": ", std::strerror(errno));
  return errno == ENOMEM ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

// The most blocks of `block_bytes` that fill whole pages and about kBlockBytes. An odd
// number of such units, so that rows do not repeat after few of them.
int64_t Blocks(int64_t block_bytes) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t unit = std::lcm(block_bytes, page);
  const int64_t units = std::max<int64_t>(1, kBlockBytes / unit) | 1;
  return units * unit / block_bytes;
}

absl::Status MapRepeatedly(int file, int64_t block, std::byte* to, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += block) {
    void* const mapped = mmap(to + at, static_cast<size_t>(std::min(block, bytes - at)), PROT_READ,
                              MAP_SHARED | MAP_FIXED, file, 0);
    if (mapped == MAP_FAILED) return SystemError("mmap");
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int file, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t written = write(file, bytes.data() + at, bytes.size() - at);
    if (written < 0) return SystemError("write");
    at += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<RepeatedBytes> RepeatedBytes::Create(const std::string& block, int64_t bytes) {
  RepeatedBytes repeated;
  void* const reserved = mmap(nullptr, static_cast<size_t>(bytes), PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return SystemError("mmap");
  repeated.data_ = static_cast<std::byte*>(reserved);
  repeated.bytes_ = bytes;
  const int file = memfd_create("tokend-weights", MFD_CLOEXEC);
  if (file < 0) return SystemError("memfd_create");
  absl::Status status = WriteAll(file, block);
  if (status.ok()) {
    status = MapRepeatedly(file, static_cast<int64_t>(block.size()), repeated.data_, bytes);
  }
  close(file);
  if (!status.ok()) return status;
  return repeated;
}

RepeatedBytes::~RepeatedBytes() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
}

absl::StatusOr<std::unique_ptr<ShapedModel>> ShapedModel::Create(const ModelShape& shape,
                                                                 WeightMix mix, uint64_t seed) {
  auto model = std::unique_ptr<ShapedModel>(new ShapedModel(shape, mix, seed));
  model->FillShape();
  TOKEND_RETURN_IF_ERROR(model->MapMatrices());
  return model;
}

ops::Vector ShapedModel::NewVector(int64_t size, float mean, float deviation) {
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float>& values = vectors_.emplace_back(static_cast<size_t>(size));
  for (float& value : values) value = normal(random_);
  return values.data();
}

ops::Norm ShapedModel::NewNorm() {
  ops::Norm norm;
  norm.weight = NewVector(shape_.width, 1, 0.1f);
  if (shape_.recipe == Recipe::kGpt2) norm.bias = NewVector(shape_.width, 0, 0.1f);
  return norm;
}

void ShapedModel::Want(ops::Matrix* matrix, MatrixRole role, int layer, int64_t rows,
                       int64_t cols) {
  *matrix = {MixedType(shape_, mix_, role, layer, cols), rows, cols, nullptr};
  wanted_.push_back({matrix, role, layer});
}

void ShapedModel::FillShape() {
  plan_.width = shape_.width;
  plan_.ffn_width = shape_.ffn_width;
  plan_.vocabulary_size = shape_.vocabulary_size;
  plan_.context_tokens = shape_.context_tokens;
  plan_.heads = shape_.heads;
  plan_.kv_heads = shape_.kv_heads;
  plan_.head_dim = shape_.head_dim;
  plan_.norm_epsilon = 1e-5f;
  plan_.attention_scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
  Want(&plan_.embedding, MatrixRole::kEmbedding, 0, shape_.vocabulary_size, shape_.width);
  if (shape_.recipe == Recipe::kGpt2) {
    plan_.norm_kind = ops::NormKind::kLayer;
    plan_.activation = ops::Activation::kGeluTanh;
    Want(&plan_.position_embedding, MatrixRole::kEmbedding, 0, shape_.context_tokens, shape_.width);
    plan_.position_embedding.type = base::WeightType::kF16;
  } else {
    ops::Rope& rope = plan_.ropes.emplace_back();
    rope.pairing =
        shape_.recipe == Recipe::kPhi3 ? ops::RopePairing::kHalves : ops::RopePairing::kInterleaved;
    rope.dims = shape_.head_dim;
    for (int i = 0; i < rope.dims / 2; ++i) {
      rope.inverse_frequencies.push_back(std::pow(shape_.rope_base, -2.0 * i / rope.dims));
    }
  }
  plan_.layers.resize(static_cast<size_t>(shape_.layers));
  for (int layer = 0; layer < shape_.layers; ++layer) AddLayer(layer);
  plan_.output_norm = NewNorm();
  if (!shape_.tied) {
    Want(&plan_.output.weight, MatrixRole::kHead, 0, shape_.vocabulary_size, shape_.width);
  }
}

void ShapedModel::AddLayer(int index) {
  ops::LayerPlan& layer = plan_.layers[static_cast<size_t>(index)];
  const int64_t query = int64_t{shape_.heads} * shape_.head_dim;
  const int64_t kv = int64_t{shape_.kv_heads} * shape_.head_dim;
  const bool gpt2 = shape_.recipe == Recipe::kGpt2;
  const auto want = [&](ops::Linear* linear, MatrixRole role, int64_t rows, int64_t cols) {
    Want(&linear->weight, role, index, rows, cols);
    if (gpt2) linear->bias = NewVector(rows, 0, 0.1f);
  };
  layer.local_tokens = shape_.local_tokens;
  layer.rope = gpt2 ? ops::kNoRope : 0;
  layer.attention_norm = NewNorm();
  want(&layer.query, MatrixRole::kQuery, query, shape_.width);
  want(&layer.key, MatrixRole::kKey, kv, shape_.width);
  want(&layer.value, MatrixRole::kValue, kv, shape_.width);
  want(&layer.attention_output, MatrixRole::kAttentionOutput, shape_.width, query);
  layer.ffn_norm = NewNorm();
  if (!gpt2) want(&layer.gate, MatrixRole::kGate, shape_.ffn_width, shape_.width);
  want(&layer.up, MatrixRole::kUp, shape_.ffn_width, shape_.width);
  want(&layer.down, MatrixRole::kDown, shape_.width, shape_.ffn_width);
}

absl::Status ShapedModel::MapMatrices() {
  const auto key = [](const ops::Matrix& matrix) { return std::pair(matrix.type, matrix.cols); };
  const auto blocks = [](const ops::Matrix& matrix) {
    return matrix.rows * matrix.cols / base::GetWeightType(matrix.type).block_elements;
  };
  std::map<std::pair<base::WeightType, int64_t>, int64_t> most;  // blocks, by key
  for (const Wanted& wanted : wanted_) {
    int64_t& sum = most[key(*wanted.matrix)];
    sum = std::max(sum, blocks(*wanted.matrix));
  }
  for (const auto& [type_and_cols, count] : most) {
    const auto& [type, cols] = type_and_cols;
    const base::WeightTypeInfo& info = base::GetWeightType(type);
    const int64_t unit = Blocks(info.block_bytes);
    const float scale = 1 / std::sqrt(static_cast<float>(cols));
    const std::string block =
        RandomWeights(type, static_cast<uint64_t>(unit * info.block_elements), scale, random_);
    TOKEND_ASSIGN_OR_RETURN(RepeatedBytes bytes,
                            RepeatedBytes::Create(block, (count + unit) * info.block_bytes));
    bytes_.emplace(type_and_cols, std::move(bytes));
  }
  int64_t at = 0;
  for (const Wanted& wanted : wanted_) {
    ops::Matrix* const matrix = wanted.matrix;
    const base::WeightTypeInfo& info = base::GetWeightType(matrix->type);
    const int64_t start = at % Blocks(info.block_bytes);
    matrix->data = bytes_.at(key(*matrix)).data() + start * info.block_bytes;
    at += kStride;
    const bool looked_up = wanted.role == MatrixRole::kEmbedding;
    if (!looked_up) read_bytes_ += blocks(*matrix) * info.block_bytes;
  }
  if (shape_.tied) {
    plan_.output.weight = plan_.embedding;
    read_bytes_ += blocks(plan_.embedding) * base::GetWeightType(plan_.embedding.type).block_bytes;
  }
  return absl::OkStatus();
}

}  // namespace tokend::testing
