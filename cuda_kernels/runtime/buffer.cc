#include "cuda_kernels/runtime/buffer.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "cuda_kernels/runtime/cuda_status.h"

namespace tokend::cuda {
namespace {

absl::Status AllocationStatus(cudaError_t error, int64_t bytes, absl::string_view where,
                              absl::string_view what) {
  if (error != cudaErrorMemoryAllocation) return CudaStatus(error, what);
  cudaGetLastError();
  return absl::ResourceExhaustedError(
      absl::StrCat("cuda: no ", bytes / (1024 * 1024), " MiB of ", where, " for ", what));
}

}  // namespace

void FreeDeviceMemory::operator()(void* data) const { cudaFree(data); }
void FreePinnedMemory::operator()(void* data) const { cudaFreeHost(data); }

template <>
absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(int64_t bytes, absl::string_view what) {
  DeviceBuffer out;
  if (bytes == 0) return out;
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (error != cudaSuccess) return AllocationStatus(error, bytes, "device memory", what);
  out.data_.reset(data);
  out.bytes_ = bytes;
  return out;
}

template <>
absl::StatusOr<PinnedBuffer> PinnedBuffer::Allocate(int64_t bytes, absl::string_view what) {
  PinnedBuffer out;
  if (bytes == 0) return out;
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, static_cast<size_t>(bytes), cudaHostAllocDefault);
  if (error != cudaSuccess) return AllocationStatus(error, bytes, "pinned host memory", what);
  out.data_.reset(data);
  out.bytes_ = bytes;
  return out;
}

}  // namespace tokend::cuda
