// What the daemon sees of the CUDA backend: it opens libtokend_cuda.so by name, if it
// is to run on a device, and so starts without any of CUDA elsewhere.
#ifndef TOKEND_CUDA_KERNELS_BACKEND_CREATE_H_
#define TOKEND_CUDA_KERNELS_BACKEND_CREATE_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "core/base/dtype.h"
#include "core/ops/backend.h"
#include "core/ops/plan.h"
#include "cuda_kernels/runtime/device.h"

namespace tokend::cuda {

struct CudaBackendOptions {
  DeviceInfo device;                                        // as opened
  base::Activations activations = base::Activations::kF16;  // or kF32
  base::KvDtype kv_dtype = base::KvDtype::kF16;             // or kInt8
  int page_tokens = 16;                                     // or 32
  int64_t max_batch_tokens = 2048;
  int64_t max_sequences = 8;  // [1, kMaxCudaSequences]
  StreamPriority priority = StreamPriority::kNormal;
  bool profile = false;  // times the parts of steps that draw one token, which slows them
  // While the weights go to the device, in bytes; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

// Sequences of a step, at most: the largest batch that has a graph.
inline constexpr int64_t kMaxCudaSequences = 32;

// See ops/backend.h. The weights are on the device when it returns, and `plan`'s data
// is not read again. INVALID_ARGUMENT: an option that it does not have;
// UNIMPLEMENTED: a plan that it cannot run, by name; RESOURCE_EXHAUSTED: the memory is
// not there. Later calls may come from another thread than this one.
absl::StatusOr<std::unique_ptr<ops::Backend>> CreateCudaBackend(const ops::ModelPlan& plan,
                                                                const CudaBackendOptions& options);

// What libtokend_cuda.so hands out. Whatever the build, `abi` comes first.
struct CudaLibrary {
  const char* abi = nullptr;  // the rest is as declared here only if it is kCudaAbi
  absl::StatusOr<DeviceInfo> (*open_device)(int ordinal) = nullptr;
  absl::StatusOr<std::unique_ptr<ops::Backend>> (*create_backend)(
      const ops::ModelPlan& plan, const CudaBackendOptions& options) = nullptr;
};

// The one symbol of libtokend_cuda.so.
inline constexpr char kCudaLibraryFunction[] = "tokend_cuda_library";
using CudaLibraryFunction = const CudaLibrary* (*)();

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_BACKEND_CREATE_H_
