// The CUDA runtime's functions for streams, events and graphs, on the host. A stream
// runs what it is given at once, or notes it while it captures.
#include <cuda_runtime_api.h>

#include <memory>

#include "tests/simt/cudart_state.h"
#include "tests/simt/shadow.h"

using tokend::simt::Cudart;

#define TOKEND_SIMT_BEGIN(name)             \
  Cudart& cudart = Cudart::Get();           \
  const std::lock_guard lock(cudart.mutex); \
  if (const cudaError_t error = cudart.Begin(name)) return error

extern "C" {

// ---- Streams ----
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  TOKEND_SIMT_BEGIN("cudaStreamCreateWithPriority");
  *stream = new CUstream_st;
  (*stream)->blocking = (flags & cudaStreamNonBlocking) == 0;
  cudart.streams.push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  TOKEND_SIMT_BEGIN("cudaStreamDestroy");
  cudart.Drain(*stream);
  std::erase(cudart.capturing, stream);
  std::erase(cudart.streams, stream);
  delete stream->capture;
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  TOKEND_SIMT_BEGIN("cudaStreamSynchronize");
  tokend::simt::Shadow::Get().HostWaited();
  if (const cudaError_t error = cudart.RefuseInCapture()) return error;
  return cudart.Drain(cudart.Stream(stream));
}

// A caller that asks in a loop must come to an end: each call lets a piece run.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  TOKEND_SIMT_BEGIN("cudaStreamQuery");
  CUstream_st& at = cudart.Stream(stream);
  cudart.RunOne(at);
  return at.waiting.empty() ? cudart.sticky : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  TOKEND_SIMT_BEGIN("cudaStreamWaitEvent");
  const std::shared_ptr<SimtRecord> record = event->record;
  if (record == nullptr || cudart.Stream(stream).capture != nullptr) return cudaSuccess;
  return cudart.Enqueue(stream, [&cudart, record] {
    while (!record->done && cudart.RunOne(*record->stream)) {
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  TOKEND_SIMT_BEGIN("cudaDeviceGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  TOKEND_SIMT_BEGIN("cudaLaunchHostFunc");
  return cudart.Enqueue(stream, [=] {
    function(data);
    return cudaSuccess;
  });
}

// ---- Events ----
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  TOKEND_SIMT_BEGIN("cudaEventCreateWithFlags");
  *event = new CUevent_st;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  TOKEND_SIMT_BEGIN("cudaEventCreate");
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  TOKEND_SIMT_BEGIN("cudaEventDestroy");
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  TOKEND_SIMT_BEGIN("cudaEventRecord");
  auto record = std::make_shared<SimtRecord>();
  record->stream = &cudart.Stream(stream);
  event->record = record;
  return cudart.Enqueue(stream, [record] {
    record->time = std::chrono::steady_clock::now();
    record->done = true;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned /*flags*/) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  TOKEND_SIMT_BEGIN("cudaEventSynchronize");
  if (const cudaError_t error = cudart.RefuseInCapture()) return error;
  const std::shared_ptr<SimtRecord> record = event->record;
  while (record != nullptr && !record->done && cudart.RunOne(*record->stream)) {
  }
  return cudart.sticky;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  TOKEND_SIMT_BEGIN("cudaEventQuery");
  const std::shared_ptr<SimtRecord> record = event->record;
  if (record == nullptr || record->done) return cudaSuccess;
  cudart.RunOne(*record->stream);
  return record->done ? cudart.sticky : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  TOKEND_SIMT_BEGIN("cudaEventElapsedTime");
  if (start->record == nullptr || end->record == nullptr || !start->timed || !end->timed) {
    return cudart.End(cudaErrorInvalidResourceHandle);
  }
  if (!start->record->done || !end->record->done) return cudaErrorNotReady;
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->record->time - start->record->time).count();
  return cudaSuccess;
}

// ---- Graphs ----
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  TOKEND_SIMT_BEGIN("cudaStreamBeginCapture");
  CUstream_st& at = cudart.Stream(stream);
  if (&at == &cudart.default_stream) return cudart.End(cudaErrorStreamCaptureUnsupported);
  if (at.capture != nullptr) return cudart.End(cudaErrorIllegalState);
  at.capture = new CUgraph_st;
  at.mode = mode;
  at.capture_broken = false;
  cudart.capturing.push_back(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  TOKEND_SIMT_BEGIN("cudaStreamEndCapture");
  *graph = nullptr;
  CUstream_st& at = cudart.Stream(stream);
  if (at.capture == nullptr) return cudart.End(cudaErrorIllegalState);
  std::unique_ptr<CUgraph_st> captured(at.capture);
  at.capture = nullptr;
  std::erase(cudart.capturing, stream);
  if (at.capture_broken) return cudart.End(cudaErrorStreamCaptureInvalidated);
  *graph = captured.release();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  TOKEND_SIMT_BEGIN("cudaStreamIsCapturing");
  const CUstream_st& at = cudart.Stream(stream);
  *status = at.capture == nullptr ? cudaStreamCaptureStatusNone
            : at.capture_broken   ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  TOKEND_SIMT_BEGIN("cudaGraphInstantiate");
  *exec = new CUgraphExec_st{std::make_shared<std::vector<SimtWork>>(graph->nodes)};
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  TOKEND_SIMT_BEGIN("cudaGraphUpload");
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  TOKEND_SIMT_BEGIN("cudaGraphGetNodes");
  if (nodes != nullptr) return cudart.End(cudaErrorNotSupported);
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  TOKEND_SIMT_BEGIN("cudaGraphLaunch");
  return cudart.Enqueue(stream, [nodes = exec->nodes]() -> cudaError_t {
    for (const SimtWork& node : *nodes) {
      if (const cudaError_t error = node()) return error;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  TOKEND_SIMT_BEGIN("cudaGraphDestroy");
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  TOKEND_SIMT_BEGIN("cudaGraphExecDestroy");
  delete exec;
  return cudaSuccess;
}

}  // extern "C"
