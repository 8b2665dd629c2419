// A libtokend_cuda.so that says what $TOKEND_TEST_CUDA tells it to: OK, or the failure of
// that code. Built with TOKEND_TEST_ABI it is one of another build.
#include <cstdlib>
#include <string>

#include "cuda_kernels/backend/create.h"
#include "cuda_kernels/backend/cuda_abi.h"

#ifndef TOKEND_TEST_ABI
#define TOKEND_TEST_ABI tokend::cuda::kCudaAbi
#endif

namespace {

absl::StatusOr<tokend::cuda::DeviceInfo> OpenDevice(int ordinal) {
  const char* answer = std::getenv("TOKEND_TEST_CUDA");
  const std::string code = answer == nullptr ? "" : answer;
  if (code == "FAILED_PRECONDITION") return absl::FailedPreconditionError("old driver");
  if (code == "NOT_FOUND") return absl::NotFoundError("no device");
  if (code == "UNAVAILABLE") return absl::UnavailableError("taken");
  tokend::cuda::DeviceInfo out;
  out.ordinal = ordinal;
  out.name = "Fake";
  out.major = 9;
  return out;
}

absl::StatusOr<std::unique_ptr<tokend::ops::Backend>> CreateBackend(
    const tokend::ops::ModelPlan&, const tokend::cuda::CudaBackendOptions&) {
  return absl::ResourceExhaustedError("cuda: too little memory");
}

}  // namespace

extern "C" const tokend::cuda::CudaLibrary* tokend_cuda_library() {
  static const tokend::cuda::CudaLibrary library = {TOKEND_TEST_ABI, OpenDevice, CreateBackend};
  return &library;
}
