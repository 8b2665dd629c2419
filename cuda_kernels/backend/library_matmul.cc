// cuBLASLt as a yardstick. Found at run time: neither the build nor the daemon needs it.
#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/ops/half.h"
#include "cuda_kernels/backend/device_limits.h"
#include "cuda_kernels/runtime/buffer.h"
#if __has_include(<cublasLt.h>) && !defined(TOKEND_SIMT)
#include <cublasLt.h>
#define TOKEND_HAS_CUBLASLT
#endif

namespace tokend::cuda {

#ifndef TOKEND_HAS_CUBLASLT

absl::StatusOr<double> LibraryMatmulFlops(const Stream&, int, int) { return 0.0; }

#else

namespace {

constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"};
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

absl::Status LibraryStatus(cublasStatus_t status, absl::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, " failed: ", static_cast<int>(status)));
}

// The functions used, by their own types; `ok` false where one is missing.
struct Library {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) describe = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) lay_out = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) prefer = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  bool ok = false;
};

template <typename Function>
bool Find(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(handle, name));
  return *function != nullptr;
}

Library Open() {
  Library library;
  void* handle = nullptr;
  for (const char* name : kNames) {
    if (handle == nullptr) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (handle == nullptr) return library;
  library.ok = Find(handle, "cublasLtCreate", &library.create) &&
               Find(handle, "cublasLtDestroy", &library.destroy) &&
               Find(handle, "cublasLtMatmulDescInit_internal", &library.describe) &&
               Find(handle, "cublasLtMatmulDescSetAttribute", &library.set) &&
               Find(handle, "cublasLtMatrixLayoutInit_internal", &library.lay_out) &&
               Find(handle, "cublasLtMatmulPreferenceInit_internal", &library.prefer) &&
               Find(handle, "cublasLtMatmulPreferenceSetAttribute", &library.set_preference) &&
               Find(handle, "cublasLtMatmulAlgoGetHeuristic", &library.choose) &&
               Find(handle, "cublasLtMatmul", &library.matmul);
  return library;
}

// Random values in [-1, 1): a part is slower on these than on zeros.
absl::Status Fill(const Stream& stream, const DeviceBuffer& buffer) {
  std::vector<uint16_t> block(size_t{1} << 20);
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (uint16_t& value : block) value = ops::F32ToF16(uniform(random));
  const auto bytes = static_cast<int64_t>(block.size() * sizeof(uint16_t));
  for (int64_t at = 0; at < buffer.bytes(); at += bytes) {
    TOKEND_RETURN_IF_ERROR(stream.CopyToDevice(buffer.data() + at, block.data(),
                                               std::min(bytes, buffer.bytes() - at),
                                               "a matrix of the matmul probe"));
  }
  return stream.Synchronize("a matrix of the matmul probe");
}

// C = A B^T, all `size` x `size`; set up once, then run.
struct Product {
  cublasLtMatmulDesc_t product;
  cublasLtMatmulDescOpaque_t product_data;
  cublasLtMatrixLayout_t layout;
  cublasLtMatrixLayoutOpaque_t layout_data;
  cublasLtMatmulHeuristicResult_t chosen;
};

absl::Status SetUp(const Library& library, cublasLtHandle_t handle, int size, Product* out) {
  out->product = &out->product_data;
  out->layout = &out->layout_data;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  TOKEND_RETURN_IF_ERROR(LibraryStatus(
      library.describe(out->product, sizeof(out->product_data), CUBLAS_COMPUTE_32F, CUDA_R_32F),
      "cublasLtMatmulDescInit"));
  TOKEND_RETURN_IF_ERROR(LibraryStatus(
      library.set(out->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
      "cublasLtMatmulDescSetAttribute"));
  const auto extent = static_cast<uint64_t>(size);
  TOKEND_RETURN_IF_ERROR(LibraryStatus(
      library.lay_out(out->layout, sizeof(out->layout_data), CUDA_R_16F, extent, extent, size),
      "cublasLtMatrixLayoutInit"));
  cublasLtMatmulPreferenceOpaque_t preference;
  TOKEND_RETURN_IF_ERROR(LibraryStatus(library.prefer(&preference, sizeof(preference)),
                                       "cublasLtMatmulPreferenceInit"));
  TOKEND_RETURN_IF_ERROR(
      LibraryStatus(library.set_preference(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
                    "cublasLtMatmulPreferenceSetAttribute"));
  int found = 0;
  TOKEND_RETURN_IF_ERROR(
      LibraryStatus(library.choose(handle, out->product, out->layout, out->layout, out->layout,
                                   out->layout, &preference, 1, &out->chosen, &found),
                    "cublasLtMatmulAlgoGetHeuristic"));
  return found > 0 ? absl::OkStatus() : absl::InternalError("cuBLASLt knows no such product");
}

absl::StatusOr<double> Measure(const Library& library, cublasLtHandle_t handle,
                               const Stream& stream, int size, int runs) {
  Product product;
  TOKEND_RETURN_IF_ERROR(SetUp(library, handle, size, &product));
  const int64_t bytes = int64_t{size} * size * 2;
  TOKEND_ASSIGN_OR_RETURN(const DeviceBuffer a, DeviceBuffer::Allocate(bytes, "matmul probe"));
  TOKEND_ASSIGN_OR_RETURN(const DeviceBuffer b, DeviceBuffer::Allocate(bytes, "matmul probe"));
  TOKEND_ASSIGN_OR_RETURN(const DeviceBuffer c, DeviceBuffer::Allocate(bytes, "matmul probe"));
  TOKEND_ASSIGN_OR_RETURN(
      const DeviceBuffer workspace,
      DeviceBuffer::Allocate(static_cast<int64_t>(kWorkspaceBytes), "matmul probe"));
  TOKEND_RETURN_IF_ERROR(Fill(stream, a));
  TOKEND_RETURN_IF_ERROR(Fill(stream, b));
  TOKEND_ASSIGN_OR_RETURN(const Event begin, Event::CreateTimed());
  TOKEND_ASSIGN_OR_RETURN(const Event end, Event::CreateTimed());
  const float one = 1, zero = 0;
  double best = 0;
  for (int run = 0; run <= runs; ++run) {
    TOKEND_RETURN_IF_ERROR(stream.Record(begin));
    TOKEND_RETURN_IF_ERROR(LibraryStatus(
        library.matmul(handle, product.product, &one, a.data(), product.layout, b.data(),
                       product.layout, &zero, c.data(), product.layout, c.data(), product.layout,
                       &product.chosen.algo, workspace.data(), kWorkspaceBytes, stream.get()),
        "cublasLtMatmul"));
    TOKEND_RETURN_IF_ERROR(stream.Record(end));
    TOKEND_RETURN_IF_ERROR(end.Synchronize("the matmul probe"));
    TOKEND_ASSIGN_OR_RETURN(const double milliseconds, end.MillisecondsSince(begin));
    const double flops = 2.0 * size * size * size / std::max(milliseconds / 1e3, 1e-9);
    if (run > 0) best = std::max(best, flops);
  }
  return best;
}

}  // namespace

absl::StatusOr<double> LibraryMatmulFlops(const Stream& stream, int size, int runs) {
  static const Library library = Open();
  if (!library.ok) return 0.0;
  cublasLtHandle_t handle = nullptr;
  TOKEND_RETURN_IF_ERROR(LibraryStatus(library.create(&handle), "cublasLtCreate"));
  absl::StatusOr<double> flops = Measure(library, handle, stream, size, runs);
  library.destroy(handle);
  return flops;
}

#endif

}  // namespace tokend::cuda
