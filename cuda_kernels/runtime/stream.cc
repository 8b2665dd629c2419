#include "cuda_kernels/runtime/stream.h"

#include <cuda_runtime_api.h>

#include "cuda_kernels/runtime/cuda_status.h"

namespace tokend::cuda {

void DestroyEvent::operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
void DestroyStream::operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }

namespace {

absl::StatusOr<cudaEvent_t> NewEvent(unsigned flags) {
  cudaEvent_t event = nullptr;
  const cudaError_t error = cudaEventCreateWithFlags(&event, flags);
  if (error != cudaSuccess) return CudaStatus(error, "create an event");
  return event;
}

}  // namespace

absl::StatusOr<Event> Event::Create() {
  const absl::StatusOr<cudaEvent_t> event = NewEvent(cudaEventDisableTiming);
  if (!event.ok()) return event.status();
  Event out;
  out.event_.reset(*event);
  return out;
}

absl::StatusOr<Event> Event::CreateTimed() {
  const absl::StatusOr<cudaEvent_t> event = NewEvent(cudaEventDefault);
  if (!event.ok()) return event.status();
  Event out;
  out.event_.reset(*event);
  return out;
}

absl::Status Event::Synchronize(absl::string_view what) const {
  return CudaStatus(cudaEventSynchronize(event_.get()), what);
}

absl::StatusOr<double> Event::MillisecondsSince(const Event& earlier) const {
  float out = 0;
  const cudaError_t error = cudaEventElapsedTime(&out, earlier.get(), get());
  if (error != cudaSuccess) return CudaStatus(error, "time between events");
  return out;
}

absl::StatusOr<Stream> Stream::Create(StreamPriority priority) {
  int lowest = 0;  // numerically the greatest
  int highest = 0;
  cudaError_t error = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
  if (error != cudaSuccess) return CudaStatus(error, "read the stream priorities");
  const int value = priority == StreamPriority::kHigh ? highest : lowest;
  cudaStream_t stream = nullptr;
  error = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, value);
  if (error != cudaSuccess) return CudaStatus(error, "create a stream");
  Stream out;
  out.stream_.reset(stream);
  return out;
}

absl::Status Stream::Synchronize(absl::string_view what) const {
  return CudaStatus(cudaStreamSynchronize(stream_.get()), what);
}

absl::Status Stream::Record(const Event& event) const {
  return CudaStatus(cudaEventRecord(event.get(), stream_.get()), "record an event");
}

absl::Status Stream::WaitFor(const Event& event) const {
  return CudaStatus(cudaStreamWaitEvent(stream_.get(), event.get(), 0), "wait for an event");
}

absl::Status Stream::CopyToDevice(void* to, const void* from, int64_t bytes,
                                  absl::string_view what) const {
  return CudaStatus(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_.get()),
      what);
}

absl::Status Stream::CopyToHost(void* to, const void* from, int64_t bytes,
                                absl::string_view what) const {
  return CudaStatus(
      cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_.get()),
      what);
}

absl::Status Stream::CopyOnDevice(void* to, const void* from, int64_t bytes,
                                  absl::string_view what) const {
  return CudaStatus(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                    stream_.get()),
                    what);
}

absl::Status Stream::Zero(void* to, int64_t bytes, absl::string_view what) const {
  return CudaStatus(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream_.get()), what);
}

}  // namespace tokend::cuda
