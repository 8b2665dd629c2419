#include "core/model/tensor_reader.h"

#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/ops/dequantize.h"

namespace tokend::model {
namespace {

// Written by some converters, read by no engine.
constexpr absl::string_view kIgnoredSuffixes[] = {".attn_rot_embd", ".rotary_emb.inv_freq"};

std::string ShapeText(const gguf::TensorInfo& tensor) {
  std::string text = "[";
  for (int i = tensor.rank - 1; i >= 0; --i) {
    absl::StrAppend(&text, tensor.shape[static_cast<size_t>(i)], i > 0 ? ", " : "]");
  }
  return text;
}

absl::Status WrongShape(const gguf::TensorInfo& tensor, absl::string_view expected) {
  return gguf::Damaged(absl::StrCat("tensor ", gguf::Quoted(tensor.name)),
                       absl::StrCat("has shape ", ShapeText(tensor), ", expected ", expected));
}

bool EndsWith(absl::string_view text, absl::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

}  // namespace

absl::StatusOr<ops::Matrix> TensorReader::GetMatrix(absl::string_view name, int64_t rows,
                                                    int64_t cols) {
  TOKEND_ASSIGN_OR_RETURN(const gguf::TensorInfo* tensor, file_.GetTensor(name));
  taken_.insert(std::string(name));
  if (tensor->rank > 2 || tensor->row_elements() != static_cast<uint64_t>(cols) ||
      tensor->rows() != static_cast<uint64_t>(rows)) {
    return WrongShape(*tensor, absl::StrCat("[", rows, ", ", cols, "]"));
  }
  return ops::Matrix{tensor->type, rows, cols, tensor->data.data()};
}

absl::StatusOr<ops::Linear> TensorReader::GetLinear(absl::string_view prefix, int64_t rows,
                                                    int64_t cols, Bias bias) {
  ops::Linear linear;
  TOKEND_ASSIGN_OR_RETURN(linear.weight, GetMatrix(absl::StrCat(prefix, ".weight"), rows, cols));
  const std::string name = absl::StrCat(prefix, ".bias");
  if (bias == Bias::kOptional) {
    TOKEND_ASSIGN_OR_RETURN(linear.bias, GetOptionalVector(name, rows));
  } else if (bias == Bias::kRequired) {
    TOKEND_ASSIGN_OR_RETURN(linear.bias, GetVector(name, rows));
  }
  return linear;
}

absl::StatusOr<std::vector<ops::Linear>> TensorReader::GetParts(absl::string_view prefix,
                                                                absl::Span<const int64_t> rows,
                                                                int64_t cols, Bias bias) {
  const int64_t all = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  TOKEND_ASSIGN_OR_RETURN(const ops::Linear fused, GetLinear(prefix, all, cols, bias));
  std::vector<ops::Linear> parts;
  int64_t first = 0;
  for (const int64_t count : rows) {
    parts.push_back({ops::RowRange(fused.weight, first, count),
                     fused.bias == nullptr ? nullptr : fused.bias + first});
    first += count;
  }
  return parts;
}

absl::StatusOr<ops::Vector> TensorReader::GetVector(absl::string_view name, int64_t size) {
  TOKEND_ASSIGN_OR_RETURN(const gguf::TensorInfo* tensor, file_.GetTensor(name));
  taken_.insert(std::string(name));
  if (tensor->elements() != static_cast<uint64_t>(size) ||
      tensor->row_elements() != static_cast<uint64_t>(size)) {
    return WrongShape(*tensor, absl::StrCat("[", size, "]"));
  }
  if (base::GetWeightType(tensor->type).block_elements != 1) {
    return gguf::Unsupported(
        absl::StrCat("tensor ", gguf::Quoted(name)),
        absl::StrCat("a vector of type ", base::GetWeightType(tensor->type).name,
                     "; F32, F16 and BF16 are read"));
  }
  std::vector<float> values(static_cast<size_t>(size));
  ops::DequantizeRowRef(tensor->type, tensor->data.data(), absl::MakeSpan(values));
  vectors_->push_back(std::move(values));
  return vectors_->back().data();
}

absl::StatusOr<ops::Vector> TensorReader::GetOptionalVector(absl::string_view name, int64_t size) {
  if (file_.FindTensor(name) == nullptr) return nullptr;
  return GetVector(name, size);
}

absl::Status TensorReader::CheckAllTaken() const {
  for (const gguf::TensorInfo& tensor : file_.tensors()) {
    if (taken_.contains(std::string(tensor.name))) continue;
    bool ignored = false;
    for (absl::string_view suffix : kIgnoredSuffixes) {
      ignored = ignored || EndsWith(tensor.name, suffix) ||
                EndsWith(tensor.name, absl::StrCat(suffix, ".weight"));
    }
    if (ignored) continue;
    return gguf::Unsupported(absl::StrCat("tensor ", gguf::Quoted(tensor.name)),
                             "this architecture has no place for it");
  }
  return absl::OkStatus();
}

}  // namespace tokend::model
