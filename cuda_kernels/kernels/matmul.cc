#include "cuda_kernels/kernels/matmul.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "cuda_kernels/kernels/matmul_launch.h"

namespace tokend::cuda {
namespace {

absl::Status Refuse(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("matmul: ", what));
}

absl::Status CheckSegment(const Matmul& matmul, const MatmulSegment& segment) {
  const PackedMatrix& matrix = segment.matrix;
  if (matrix.outputs < 1 || matrix.cols < 8) return Refuse("an empty matrix");
  if (matrix.cols % 8 != 0) return Refuse("inputs that are no multiple of 8");
  if (matrix.cols % kBlockCols != 0 && matrix.format != PackedFormat::kF16 &&
      matrix.format != PackedFormat::kF16Pair) {
    return Refuse("inputs that are no multiple of a block");
  }
  if (matrix.cols != matmul.segments[0].matrix.cols) return Refuse("matrices of unequal inputs");
  if (matrix.gated != (matmul.output.epilogue == MatmulEpilogue::kGate)) {
    return Refuse("a gated matrix without its epilogue, or the reverse");
  }
  if (matrix.format == PackedFormat::kF16Pair && !IsPair(matmul)) {
    return Refuse("weights in pairs with rows that are not");
  }
  return absl::OkStatus();
}

absl::Status Check(const Matmul& matmul) {
  if (matmul.rows < 1) return Refuse("no rows");
  if (matmul.segment_count < 1 || matmul.segment_count > kMaxMatmulSegments) {
    return Refuse("too many matrices");
  }
  if (matmul.input.residual != nullptr) {
    if (matmul.rows > kMaxNormedRows) return Refuse("too many rows to norm");
    if (matmul.input.residual_stride % 4 != 0)
      return Refuse("a residual stride that is no multiple of 4");
  } else if (matmul.input.half.stride % 8 != 0) {
    return Refuse("a row stride that is no multiple of 8");
  }
  for (int s = 0; s < matmul.segment_count; ++s) {
    TOKEND_RETURN_IF_ERROR(CheckSegment(matmul, matmul.segments[s]));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunMatmul(const Matmul& matmul, const DeviceInfo& device, cudaStream_t stream) {
  TOKEND_RETURN_IF_ERROR(Check(matmul));
  if (IsPair(matmul)) {
    return matmul.rows <= kMaxDecodeRowsPair ? RunMatmulDecodePair(matmul, device, stream)
                                             : RunMatmulWidePair(matmul, device, stream);
  }
  return matmul.rows <= kMaxDecodeRows ? RunMatmulDecode(matmul, device, stream)
                                       : RunMatmulWide(matmul, device, stream);
}

}  // namespace tokend::cuda
