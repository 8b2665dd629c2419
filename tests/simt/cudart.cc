// The CUDA runtime's functions for devices, errors and memory, on the host. Device
// memory is the heap's, filled with NaN when it is allocated.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "tests/simt/cudart_state.h"
#include "tests/simt/machine.h"

using tokend::simt::Cudart;

// Every function: one caller at a time, planned failures first.
#define TOKEND_SIMT_BEGIN(name)             \
  Cudart& cudart = Cudart::Get();           \
  const std::lock_guard lock(cudart.mutex); \
  if (const cudaError_t error = cudart.Begin(name)) return error

namespace {

constexpr size_t kHostAlign = 256;

bool IsDevice(const Cudart& cudart, int device) {
  return device >= 0 && device < cudart.device.count;
}

cudaError_t AllocatePinned(Cudart& cudart, void** address, size_t bytes) {
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (posix_memalign(address, kHostAlign, bytes) != 0) return cudaErrorMemoryAllocation;
  cudart.pinned[reinterpret_cast<uintptr_t>(*address)] = bytes;
  return cudaSuccess;
}

}  // namespace

extern "C" {

// ---- Devices ----
cudaError_t cudaGetDeviceCount(int* count) {
  TOKEND_SIMT_BEGIN("cudaGetDeviceCount");
  *count = cudart.device.count;
  return cudart.device.count > 0 ? cudaSuccess : cudart.End(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  TOKEND_SIMT_BEGIN("cudaGetDevice");
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  TOKEND_SIMT_BEGIN("cudaSetDevice");
  return IsDevice(cudart, device) ? cudaSuccess : cudart.End(cudaErrorInvalidDevice);
}

cudaError_t cudaInitDevice(int device, unsigned, unsigned) { return cudaSetDevice(device); }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  TOKEND_SIMT_BEGIN("cudaGetDeviceProperties");
  if (!IsDevice(cudart, device)) return cudart.End(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "SIMT stand-in");
  properties->totalGlobalMem = cudart.device.memory_bytes;
  properties->major = cudart.device.major;
  properties->minor = cudart.device.minor;
  properties->multiProcessorCount = cudart.device.multiprocessors;
  properties->integrated = cudart.device.integrated;
  properties->warpSize = 32;
  properties->regsPerBlock = 65536;
  properties->sharedMemPerBlock = 48 * 1024;
  properties->sharedMemPerBlockOptin = tokend::simt::kMaxSharedBytes;
  properties->sharedMemPerMultiprocessor = tokend::simt::kMaxSharedBytes + 1024;
  properties->maxThreadsPerBlock = tokend::simt::kMaxThreads;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->l2CacheSize = 1 << 20;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device)) return error;
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      break;
    case cudaDevAttrIntegrated:
      *value = properties.integrated;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = properties.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = properties.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = properties.regsPerBlock;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(properties.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = static_cast<int>(properties.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrL2CacheSize:
      *value = properties.l2CacheSize;
      break;
    case cudaDevAttrClockRate:
      *value = 1000000;
      break;  // kHz
    case cudaDevAttrMemoryClockRate:
      *value = 1000000;
      break;  // kHz
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 64;
      break;  // bits
    case cudaDevAttrComputeMode:
      *value = cudaComputeModeDefault;
      break;
    default:
      *value = 0;
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  TOKEND_SIMT_BEGIN("cudaDeviceGetPCIBusId");
  if (!IsDevice(cudart, device)) return cudart.End(cudaErrorInvalidDevice);
  std::strncpy(id, "0000:00:00.0", static_cast<size_t>(bytes));
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  TOKEND_SIMT_BEGIN("cudaDriverGetVersion");
  *version = cudart.device.driver_version;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  TOKEND_SIMT_BEGIN("cudaDeviceSynchronize");
  tokend::simt::Shadow::Get().HostWaited();
  if (const cudaError_t error = cudart.RefuseInCapture()) return error;
  return cudart.DrainAll();
}

cudaError_t cudaDeviceReset() { return cudaSuccess; }

cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
  TOKEND_SIMT_BEGIN("cudaDeviceSetLimit");
  return cudaSuccess;
}

// ---- Errors ----
cudaError_t cudaGetLastError() {
  Cudart& cudart = Cudart::Get();
  const std::lock_guard lock(cudart.mutex);
  const cudaError_t error = cudart.last;
  cudart.last = cudart.sticky;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(Cudart::Get().mutex);
  return Cudart::Get().last;
}

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    default:
      return "cudaError";
  }
}

// What the stand-in found, where it found something.
const char* cudaGetErrorString(cudaError_t error) {
  const auto& findings = tokend::simt::Machine::Get().findings;
  if (error == cudaErrorLaunchFailure && !findings.empty()) return findings.front().c_str();
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    default:
      return cudaGetErrorName(error);
  }
}

// ---- Memory ----
cudaError_t cudaMalloc(void** address, size_t bytes) {
  TOKEND_SIMT_BEGIN("cudaMalloc");
  if (const cudaError_t error = cudart.RefuseInCapture()) return error;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > cudart.device.memory_bytes - cudart.bytes_in_use) {
    return cudart.End(cudaErrorMemoryAllocation);
  }
  *address = tokend::simt::AllocateDevice(bytes);
  if (*address == nullptr) return cudart.End(cudaErrorMemoryAllocation);
  std::memset(*address, tokend::simt::kPoison, bytes);
  cudart.allocations[reinterpret_cast<uintptr_t>(*address)] = bytes;
  cudart.bytes_in_use += bytes;
  return cudaSuccess;
}

cudaError_t cudaFree(void* address) {
  TOKEND_SIMT_BEGIN("cudaFree");
  if (address == nullptr) return cudaSuccess;
  if (const cudaError_t error = cudart.DrainAll()) return error;
  const auto found = cudart.allocations.find(reinterpret_cast<uintptr_t>(address));
  if (found == cudart.allocations.end()) return cudart.End(cudaErrorInvalidValue);
  cudart.bytes_in_use -= found->second;
  cudart.allocations.erase(found);
  tokend::simt::FreeDevice(address);
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  TOKEND_SIMT_BEGIN("cudaHostAlloc");
  return cudart.End(AllocatePinned(cudart, address, bytes));
}

cudaError_t cudaMallocHost(void** address, size_t bytes) {
  TOKEND_SIMT_BEGIN("cudaMallocHost");
  return cudart.End(AllocatePinned(cudart, address, bytes));
}

cudaError_t cudaFreeHost(void* address) {
  TOKEND_SIMT_BEGIN("cudaFreeHost");
  if (address == nullptr) return cudaSuccess;
  if (const cudaError_t error = cudart.DrainAll()) return error;
  if (cudart.pinned.erase(reinterpret_cast<uintptr_t>(address)) == 0) {
    return cudart.End(cudaErrorInvalidValue);
  }
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  TOKEND_SIMT_BEGIN("cudaHostRegister");
  cudart.pinned[reinterpret_cast<uintptr_t>(address)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  TOKEND_SIMT_BEGIN("cudaHostUnregister");
  if (const cudaError_t error = cudart.DrainAll()) return error;
  cudart.pinned.erase(reinterpret_cast<uintptr_t>(address));
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  TOKEND_SIMT_BEGIN("cudaHostGetDevicePointer");
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  TOKEND_SIMT_BEGIN("cudaMemGetInfo");
  *total_bytes = cudart.device.memory_bytes;
  *free_bytes = cudart.device.memory_bytes - cudart.bytes_in_use;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  TOKEND_SIMT_BEGIN("cudaMemcpyAsync");
  return cudart.Copy(to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  TOKEND_SIMT_BEGIN("cudaMemcpy");
  tokend::simt::Shadow::Get().HostWaited();
  return cudart.Copy(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  TOKEND_SIMT_BEGIN("cudaMemsetAsync");
  return cudart.Enqueue(stream, [=] {
    if (bytes != 0) std::memset(to, value, bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  TOKEND_SIMT_BEGIN("cudaMemset");
  return cudart.Enqueue(nullptr, [=] {
    if (bytes != 0) std::memset(to, value, bytes);
    return cudaSuccess;
  });
}

// ---- Kernels ----
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  TOKEND_SIMT_BEGIN("cudaFuncGetAttributes");
  *attributes = {};
  attributes->maxThreadsPerBlock = tokend::simt::kMaxThreads;
  attributes->numRegs = 64;
  attributes->ptxVersion = attributes->binaryVersion =
      cudart.device.major * 10 + cudart.device.minor;
  attributes->maxDynamicSharedSizeBytes = 48 * 1024;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  TOKEND_SIMT_BEGIN("cudaFuncSetAttribute");
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads,
                                                          size_t shared_bytes) {
  TOKEND_SIMT_BEGIN("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  *blocks = 2048 / threads;
  while (*blocks > 0 &&
         static_cast<size_t>(*blocks) * shared_bytes > tokend::simt::kMaxSharedBytes) {
    --*blocks;
  }
  return cudaSuccess;
}

}  // extern "C"
