// What the fake of the CUDA runtime knows. Internal.
#ifndef TOKEND_TESTS_SIMT_CUDART_STATE_H_
#define TOKEND_TESTS_SIMT_CUDART_STATE_H_

#include <cuda_runtime_api.h>

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/simt/control.h"

using SimtWork = std::function<cudaError_t()>;

struct CUgraph_st {
  std::vector<SimtWork> nodes;
};

struct CUgraphExec_st {
  std::vector<SimtWork> nodes;
};

struct CUstream_st {
  CUgraph_st* capture = nullptr;  // what is captured now, owned
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool capture_broken = false;
};

struct CUevent_st {
  std::chrono::steady_clock::time_point time;
  bool recorded = false;
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
  // Runs it, or adds it to what `stream` captures.
  cudaError_t Enqueue(cudaStream_t stream, SimtWork work);
  // cudaErrorStreamCaptureUnsupported where a capture forbids a call that waits or allocates.
  cudaError_t RefuseInCapture();
  CUstream_st& Stream(cudaStream_t stream);

  std::recursive_mutex mutex;
  DeviceModel device;
  cudaError_t sticky = cudaSuccess;
  cudaError_t last = cudaSuccess;
  std::vector<PlannedFailure> failures;
  int calls = 0;
  std::vector<LaunchRecord>* records = nullptr;  // where launches go that are not to run
  std::map<uintptr_t, size_t> allocations;       // of device memory, bytes by address
  size_t bytes_in_use = 0;
  std::vector<CUstream_st*> capturing;
  CUstream_st default_stream;
};

}  // namespace tokend::simt

#endif  // TOKEND_TESTS_SIMT_CUDART_STATE_H_
