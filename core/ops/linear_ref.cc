#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/ops/dequantize.h"
#include "core/ops/linear.h"

namespace tokend::ops {
namespace {

std::vector<float> Row(const Matrix& matrix, int64_t row) {
  std::vector<float> values(static_cast<size_t>(matrix.cols));
  DequantizeRowRef(matrix.type, matrix.data + row * RowBytes(matrix), absl::MakeSpan(values));
  return values;
}

}  // namespace

void LinearRef(const Linear& linear, absl::Span<const double> x, absl::Span<double> y) {
  const auto cols = static_cast<size_t>(linear.weight.cols);
  const auto rows = static_cast<size_t>(linear.weight.rows);
  const size_t count = x.size() / cols;
  TOKEND_CHECK(x.size() == count * cols && y.size() == count * rows);
  for (size_t row = 0; row < rows; ++row) {
    const std::vector<float> weights = Row(linear.weight, static_cast<int64_t>(row));
    for (size_t t = 0; t < count; ++t) {
      double sum = linear.bias == nullptr ? 0.0 : linear.bias[row];
      for (size_t i = 0; i < cols; ++i) sum += weights[i] * x[t * cols + i];
      y[t * rows + row] = sum;
    }
  }
}

void EmbeddingRef(const Matrix& table, int32_t token, absl::Span<double> out) {
  TOKEND_CHECK(token >= 0 && token < table.rows);
  const std::vector<float> row = Row(table, token);
  TOKEND_CHECK(out.size() == row.size());
  std::copy(row.begin(), row.end(), out.begin());
}

}  // namespace tokend::ops
