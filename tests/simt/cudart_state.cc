#include "tests/simt/cudart_state.h"

#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/simt/machine.h"

namespace tokend::simt {
namespace {

// After these a real device answers every call with the same error.
bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

}  // namespace

Cudart& Cudart::Get() {
  static Cudart* const cudart = new Cudart;
  return *cudart;
}

cudaError_t Cudart::Begin(const char* name) {
  ++calls;
  for (size_t i = 0; i < failures.size(); ++i) {
    PlannedFailure& failure = failures[i];
    if (!failure.name.empty() && failure.name != name) continue;
    if (failure.after_calls-- > 0) continue;
    const cudaError_t error = failure.error;
    failures.erase(failures.begin() + static_cast<std::ptrdiff_t>(i));
    return End(error);
  }
  return sticky;
}

cudaError_t Cudart::End(cudaError_t error) {
  if (error == cudaSuccess) return error;
  last = error;
  if (IsSticky(error)) sticky = error;
  return error;
}

CUstream_st& Cudart::Stream(cudaStream_t stream) {
  const bool is_default =
      stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  return is_default ? default_stream : *stream;
}

cudaError_t Cudart::RefuseInCapture() {
  for (CUstream_st* stream : capturing) {
    if (stream->mode == cudaStreamCaptureModeRelaxed) continue;
    stream->capture_broken = true;
    return End(cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
}

cudaError_t Cudart::Enqueue(cudaStream_t stream, SimtWork work) {
  CUstream_st& at = Stream(stream);
  if (at.capture != nullptr) {
    at.capture->nodes.push_back(std::move(work));
    return cudaSuccess;
  }
  if (&at == &default_stream) {
    if (!capturing.empty()) {
      for (CUstream_st* other : capturing) other->capture_broken = true;
      return End(cudaErrorStreamCaptureImplicit);
    }
    for (CUstream_st* other : streams) {
      if (!other->blocking) continue;
      if (const cudaError_t error = Drain(*other)) return error;
    }
    return End(work());
  }
  at.waiting.push_back(std::move(work));
  return CurrentSchedule().late_streams ? cudaSuccess : Drain(at);
}

bool Cudart::RunOne(CUstream_st& stream) {
  if (stream.waiting.empty()) return false;
  const SimtWork work = std::move(stream.waiting.front());
  stream.waiting.pop_front();
  if (sticky == cudaSuccess) End(work());
  return true;
}

cudaError_t Cudart::Drain(CUstream_st& stream) {
  last = sticky;
  while (RunOne(stream)) {
  }
  return last;
}

cudaError_t Cudart::DrainAll() {
  for (CUstream_st* stream : streams) {
    if (const cudaError_t error = Drain(*stream)) return error;
  }
  return cudaSuccess;
}

bool Cudart::IsPageable(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const auto* known : {&allocations, &pinned}) {
    const auto next = known->upper_bound(at);
    if (next == known->begin()) continue;
    const auto& [start, bytes] = *std::prev(next);
    if (at < start + bytes) return false;
  }
  return true;
}

// As on a device: pageable memory is read before the call returns, and written too.
cudaError_t Cudart::Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                         cudaStream_t stream) {
  CUstream_st& at = Stream(stream);
  const bool late = CurrentSchedule().late_streams && at.capture == nullptr;
  if (late && bytes != 0 && IsPageable(from)) {
    auto staged = std::make_shared<std::vector<unsigned char>>(bytes);
    std::memcpy(staged->data(), from, bytes);
    return Enqueue(stream, [=] {
      std::memcpy(to, staged->data(), staged->size());
      return cudaSuccess;
    });
  }
  const cudaError_t error = Enqueue(stream, [=] {
    if (bytes != 0) std::memmove(to, from, bytes);
    return cudaSuccess;
  });
  return error == cudaSuccess && late && IsPageable(to) ? Drain(at) : error;
}

cudaError_t LaunchKernel(const KernelCall& call, cudaStream_t stream) {
  Cudart& cudart = Cudart::Get();
  const std::lock_guard lock(cudart.mutex);
  if (const cudaError_t error = cudart.Begin(call.name)) return error;
  if (cudart.records != nullptr) {
    const auto* params = static_cast<const unsigned char*>(call.params);
    cudart.records->push_back({call.name,
                               call.kernel,
                               {call.grid.x, call.grid.y, call.grid.z},
                               call.threads,
                               call.shared_bytes,
                               call.dependent,
                               {params, params + call.params_bytes}});
    return cudaSuccess;
  }
  if (const cudaError_t error = Machine::Validate(call)) return cudart.End(error);
  const bool now = cudart.Stream(stream).capture == nullptr && !CurrentSchedule().late_streams;
  if (now) {
    return cudart.Enqueue(stream, [&call] { return Machine::Get().RunKernel(call); });
  }
  auto params = std::make_shared<std::vector<unsigned char>>(call.params_bytes);
  std::memcpy(params->data(), call.params, call.params_bytes);
  return cudart.Enqueue(stream, [call, params] {
    KernelCall replay = call;
    replay.params = params->data();
    return Machine::Get().RunKernel(replay);
  });
}

#ifdef TOKEND_SIMT_SHADOW
void* AllocateDevice(size_t bytes) { return Shadow::Get().Allocate(bytes); }
void FreeDevice(void* address) { Shadow::Get().Free(address); }
#else
void* AllocateDevice(size_t bytes) {
  constexpr size_t kAlign = 256;
  void* address = nullptr;
  return posix_memalign(&address, kAlign, bytes) == 0 ? address : nullptr;
}
void FreeDevice(void* address) { std::free(address); }
#endif

void FailCall(const std::string& name, int after_calls, cudaError_t error) {
  Cudart& cudart = Cudart::Get();
  const std::lock_guard lock(cudart.mutex);
  cudart.failures.push_back({name, after_calls, error});
}

int CallCount() {
  const std::lock_guard lock(Cudart::Get().mutex);
  return Cudart::Get().calls;
}

void RecordLaunches(std::vector<LaunchRecord>* records) {
  const std::lock_guard lock(Cudart::Get().mutex);
  Cudart::Get().records = records;
}

void SetDevice(const DeviceModel& device) {
  const std::lock_guard lock(Cudart::Get().mutex);
  Cudart::Get().device = device;
}

const DeviceModel& CurrentDevice() { return Cudart::Get().device; }

size_t DeviceBytesInUse() {
  const std::lock_guard lock(Cudart::Get().mutex);
  return Cudart::Get().bytes_in_use;
}

void ResetDevice() {
  Cudart& cudart = Cudart::Get();
  const std::lock_guard lock(cudart.mutex);
  cudart.device = DeviceModel();
  cudart.sticky = cudart.last = cudaSuccess;
  cudart.failures.clear();
  cudart.calls = 0;
  for (CUstream_st* stream : cudart.streams) stream->waiting.clear();
  Machine::Get().findings.clear();
  Machine::Get().mma_fault = MmaFault::kNone;
}

}  // namespace tokend::simt
