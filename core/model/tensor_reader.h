// Hands an architecture its tensors, each checked for its shape, and remembers
// which were taken: a tensor that nobody asked for would change the results, so
// a file that holds one is refused.
#ifndef TOKEND_CORE_MODEL_TENSOR_READER_H_
#define TOKEND_CORE_MODEL_TENSOR_READER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/gguf/file.h"
#include "core/ops/plan.h"

namespace tokend::model {

// Weight vectors widened to f32. Addresses are stable.
using VectorStore = std::deque<std::vector<float>>;

// Of a linear layer: in a file of an architecture without one a bias is a tensor too
// many.
enum class Bias { kNone, kOptional, kRequired };

class TensorReader {
 public:
  // `file` and `vectors` outlive the reader; widened vectors go to `vectors`.
  TensorReader(const gguf::File& file, VectorStore* vectors) : file_(file), vectors_(vectors) {}

  // A matrix of exactly [rows, cols] (the file's shape {cols, rows}).
  absl::StatusOr<ops::Matrix> GetMatrix(absl::string_view name, int64_t rows, int64_t cols);
  // "PREFIX.weight" [rows, cols] and "PREFIX.bias" [rows].
  absl::StatusOr<ops::Linear> GetLinear(absl::string_view prefix, int64_t rows, int64_t cols,
                                        Bias bias);
  // The same of a fused tensor, cut into parts of `rows` rows each, in order.
  absl::StatusOr<std::vector<ops::Linear>> GetParts(absl::string_view prefix,
                                                    absl::Span<const int64_t> rows, int64_t cols,
                                                    Bias bias);
  // A vector of `size` elements, F32, F16 or BF16.
  absl::StatusOr<ops::Vector> GetVector(absl::string_view name, int64_t size);
  // nullptr where the file has none.
  absl::StatusOr<ops::Vector> GetOptionalVector(absl::string_view name, int64_t size);

  // UNIMPLEMENTED, naming a tensor that was not taken.
  absl::Status CheckAllTaken() const;

 private:
  const gguf::File& file_;
  VectorStore* const vectors_;
  absl::flat_hash_set<std::string> taken_;
};

}  // namespace tokend::model

#endif  // TOKEND_CORE_MODEL_TENSOR_READER_H_
