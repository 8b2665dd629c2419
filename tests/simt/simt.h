// Stands in for what nvcc knows by itself. The build includes it before everything
// else when it compiles kernels, and defines TOKEND_SIMT. Each CUDA thread is a
// fiber, one block runs at a time, in an order that control.h sets.
#ifndef TOKEND_TESTS_SIMT_SIMT_H_
#define TOKEND_TESTS_SIMT_SIMT_H_

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <vector_types.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

namespace tokend::simt {

// Where a kernel called; the same file and line is the same site.
struct Site {
  const char* file;
  int line;
  bool operator==(const Site&) const = default;

  // As a default argument: where the function was called.
  static constexpr Site Caller(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

#define TOKEND_SIMT_SITE ::tokend::simt::Site site = ::tokend::simt::Site::Caller()

// ---- Launches ----
struct KernelCall {
  const char* name;
  const void* kernel;
  void (*run)(const void* kernel, const void* params);
  const void* params;
  size_t params_bytes;
  dim3 grid;
  unsigned threads;
  size_t shared_bytes;
  bool dependent;
};
cudaError_t LaunchKernel(const KernelCall& call, cudaStream_t stream);

template <typename Dims, typename Params>
cudaError_t Launch(const char* name, void (*kernel)(Params), const Dims& dims, const Params& params,
                   cudaStream_t stream) {
  static_assert(std::is_trivially_copyable_v<Params>);
  KernelCall call;
  call.name = name;
  call.kernel = reinterpret_cast<const void*>(kernel);
  call.run = [](const void* function, const void* arguments) {
    reinterpret_cast<void (*)(Params)>(const_cast<void*>(function))(
        *static_cast<const Params*>(arguments));
  };
  call.params = &params;
  call.params_bytes = sizeof(Params);
  call.grid = dim3(dims.grid_x, dims.grid_y, dims.grid_z);
  call.threads = dims.threads;
  call.shared_bytes = dims.shared_bytes;
  call.dependent = dims.dependent;
  return LaunchKernel(call, stream);
}

// ---- Block and warp ----
// NaN before each block. Reported when it ends beyond what the launch asked for.
void* SharedMemoryAt(size_t byte_offset, size_t bytes, TOKEND_SIMT_SITE);

enum class BlockVote { kNone, kOr, kAnd, kCount };
int SyncBlock(BlockVote vote, int predicate, Site site);

// What a warp's lanes exchange. The mask names every lane that takes part.
enum class WarpOp {
  kSync,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kBallot,
  kMatch,
  kReduceAdd,
  kReduceMin,
  kReduceMax,
  kReduceAnd,
  kReduceOr,
  kReduceXor,
  kMma
};
uint64_t WarpCollective(WarpOp op, unsigned mask, uint64_t value, int argument, int width,
                        Site site);

void MmaF16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], TOKEND_SIMT_SITE);

void CopyAsync16(void* shared, const void* global, bool valid, TOKEND_SIMT_SITE);
void CommitCopies();
void WaitForCopies(int pending, TOKEND_SIMT_SITE);
void WaitForPreviousKernel();
unsigned ActiveMask();
[[noreturn]] void Trap(Site site);

void ThreadFence();

// Before an atomic access, which the compiler does not tell: it is no race with
// another one.
void AtomicAccess(const volatile void* address, size_t bytes);

}  // namespace tokend::simt

#include "tests/simt/intrinsics.h"

#endif  // TOKEND_TESTS_SIMT_SIMT_H_
