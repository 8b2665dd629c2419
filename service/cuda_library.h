// libtokend_cuda.so, opened by name: the daemon itself knows nothing of CUDA.
#ifndef TOKEND_SERVICE_CUDA_LIBRARY_H_
#define TOKEND_SERVICE_CUDA_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cuda_kernels/backend/create.h"

namespace tokend::service {

// Where it may lie, best first: beside this program's own folder, as it is built and
// installed, then wherever the loader looks.
std::vector<std::string> CudaLibraryPaths();

// The first of `paths` that is there; it stays for the life of the process.
// NOT_FOUND: none is. FAILED_PRECONDITION: it cannot be loaded, or is of another build.
absl::StatusOr<const cuda::CudaLibrary*> LoadCudaLibrary(absl::Span<const std::string> paths);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_CUDA_LIBRARY_H_
