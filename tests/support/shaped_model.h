#ifndef TOKEND_TESTS_SUPPORT_SHAPED_MODEL_H_
#define TOKEND_TESTS_SUPPORT_SHAPED_MODEL_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/dtype.h"
#include "core/ops/plan.h"
#include "tests/support/model_shapes.h"

namespace tokend::testing {

// Bytes that repeat a block of a few MB, mapped again and again: of any length, in the
// memory of one block. Read-only.
class RepeatedBytes {
 public:
  // `block`'s size is a multiple of the page's.
  static absl::StatusOr<RepeatedBytes> Create(const std::string& block, int64_t bytes);
  RepeatedBytes(RepeatedBytes&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  RepeatedBytes& operator=(RepeatedBytes&& other) = delete;
  ~RepeatedBytes();

  const std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  RepeatedBytes() = default;

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// A model of a real shape with random weights, made in seconds and a few tens of MB
// whatever its size: matrices of one type and row length share their bytes, each
// starting at another block. Logits are finite and spread by about 1.
class ShapedModel {
 public:
  // RESOURCE_EXHAUSTED, UNAVAILABLE: the system has no room to map it.
  static absl::StatusOr<std::unique_ptr<ShapedModel>> Create(const ModelShape& shape, WeightMix mix,
                                                             uint64_t seed = 1);
  ShapedModel(const ShapedModel&) = delete;
  ShapedModel& operator=(const ShapedModel&) = delete;

  const ops::ModelPlan& plan() const { return plan_; }
  // What a decode step reads of the file's weights, in bytes: every matrix once, of an
  // embedding that is not the head nothing.
  int64_t read_bytes() const { return read_bytes_; }

 private:
  struct Wanted {
    ops::Matrix* matrix;
    MatrixRole role;
    int layer;
  };

  ShapedModel(const ModelShape& shape, WeightMix mix, uint64_t seed)
      : shape_(shape), mix_(mix), random_(seed) {}

  void FillShape();
  void AddLayer(int index);
  void Want(ops::Matrix* matrix, MatrixRole role, int layer, int64_t rows, int64_t cols);
  ops::Vector NewVector(int64_t size, float mean, float deviation);
  ops::Norm NewNorm();
  absl::Status MapMatrices();

  const ModelShape shape_;
  const WeightMix mix_;
  std::mt19937_64 random_;
  std::vector<Wanted> wanted_;
  std::map<std::pair<base::WeightType, int64_t>, RepeatedBytes> bytes_;  // by type and row length
  std::deque<std::vector<float>> vectors_;
  ops::ModelPlan plan_;
  int64_t read_bytes_ = 0;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_SHAPED_MODEL_H_
