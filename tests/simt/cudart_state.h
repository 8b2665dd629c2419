// What the fake of the CUDA runtime knows. Internal.
#ifndef TOKEND_TESTS_SIMT_CUDART_STATE_H_
#define TOKEND_TESTS_SIMT_CUDART_STATE_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/simt/control.h"

using SimtWork = std::function<cudaError_t()>;

struct CUgraph_st {
  std::vector<SimtWork> nodes;
};

struct CUgraphExec_st {
  std::shared_ptr<const std::vector<SimtWork>> nodes;  // a launch under way keeps them
};

struct CUstream_st {
  CUgraph_st* capture = nullptr;  // what is captured now, owned
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool capture_broken = false;
  bool blocking = false;         // work of the default stream waits for it
  std::deque<SimtWork> waiting;  // empty but with Schedule::late_streams
};

// One call of cudaEventRecord().
struct SimtRecord {
  CUstream_st* stream = nullptr;
  std::chrono::steady_clock::time_point time;
  bool done = false;
};

struct CUevent_st {
  std::shared_ptr<SimtRecord> record;  // the newest
  bool timed = true;
};

namespace tokend::simt {

struct PlannedFailure {
  std::string name;
  int after_calls;
  cudaError_t error;
};

struct Cudart {
  static Cudart& Get();

  // The error that the function of this name has to return at once, if any.
  cudaError_t Begin(const char* name);
  // Remembers it for cudaGetLastError(), and for good where no device recovers.
  cudaError_t End(cudaError_t error);
  // Runs it, keeps it for later, or adds it to what `stream` captures.
  cudaError_t Enqueue(cudaStream_t stream, SimtWork work);
  // cudaErrorStreamCaptureUnsupported where a capture forbids a call that waits or allocates.
  cudaError_t RefuseInCapture();
  CUstream_st& Stream(cudaStream_t stream);
  // What `stream` was given and has not run yet: all, or one piece (false: there is none).
  cudaError_t Drain(CUstream_st& stream);
  bool RunOne(CUstream_st& stream);
  cudaError_t DrainAll();
  cudaError_t Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                   cudaStream_t stream);
  // Whether the device may read and write it while the host goes on.
  bool IsPageable(const void* address) const;

  std::recursive_mutex mutex;
  DeviceModel device;
  cudaError_t sticky = cudaSuccess;
  cudaError_t last = cudaSuccess;
  std::vector<PlannedFailure> failures;
  int calls = 0;
  std::vector<LaunchRecord>* records = nullptr;  // where launches go that are not to run
  std::map<uintptr_t, size_t> allocations;       // of device memory, bytes by address
  size_t bytes_in_use = 0;
  std::map<uintptr_t, size_t> pinned;  // host memory
  std::vector<CUstream_st*> streams;   // created ones
  std::vector<CUstream_st*> capturing;
  CUstream_st default_stream;
};

// Device memory, exactly as long as asked for so that AddressSanitizer sees one byte
// too many; null where there is none.
void* AllocateDevice(size_t bytes);
void FreeDevice(void* address);

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_CUDART_STATE_H_
