#include "cuda_kernels/runtime/device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "cuda_kernels/runtime/cuda_status.h"
#include "cuda_kernels/runtime/loaded_code.h"

// The parts that kernels are compiled for, as the build was told.
#ifndef TOKEND_CUDA_PARTS
#define TOKEND_CUDA_PARTS "unknown parts"
#endif

namespace tokend::cuda {
namespace {

constexpr char kInstallDriver[] =
    "install NVIDIA's driver 580 or later (Jetson Orin: JetPack 7.2 or later)";
constexpr int kOldestMajor = 8;

std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

absl::Status OldDriver() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda: no NVIDIA driver is installed: ", kInstallDriver));
  }
  return absl::FailedPreconditionError(absl::StrCat("cuda: the NVIDIA driver knows CUDA ",
                                                    Version(driver), " and this build needs ",
                                                    Version(CUDART_VERSION), ": ", kInstallDriver));
}

absl::Status NotNow(cudaError_t error, absl::string_view remedy) {
  cudaGetLastError();
  return absl::UnavailableError(absl::StrCat("cuda: ", cudaGetErrorString(error), ": ", remedy));
}

// What a call says that looks for devices or takes one.
absl::Status OpenStatus(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return absl::OkStatus();
    case cudaErrorInsufficientDriver:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorCompatNotSupportedOnDevice:
      cudaGetLastError();
      return OldDriver();
    case cudaErrorNoDevice:
      cudaGetLastError();
      return absl::NotFoundError(
          "cuda: no device: see nvidia-smi, CUDA_VISIBLE_DEVICES and who may open /dev/nvidia*");
    case cudaErrorSystemDriverMismatch:
      cudaGetLastError();
      return absl::FailedPreconditionError(
          "cuda: the driver's library and kernel module differ: restart the machine");
    case cudaErrorDevicesUnavailable:
      return NotNow(error, "another process has the device for itself (nvidia-smi -c 0)");
    case cudaErrorSystemNotReady:
      return NotNow(error, "is nvidia-fabricmanager running?");
    case cudaErrorMemoryAllocation:
      cudaGetLastError();
      return absl::ResourceExhaustedError(
          "cuda: the device has no memory left for this process: end others that use it");
    default:
      return NotNow(error, "see the kernel's log and who may open /dev/nvidia*");
  }
}

absl::Status BadOrdinal(int ordinal, int count) {
  std::string known;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties = {};
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    absl::StrAppend(&known, i == 0 ? " cuda:" : ", cuda:", i, " (", properties.name, ")");
  }
  return absl::NotFoundError(
      absl::StrCat("cuda: there is no device cuda:", ordinal, ", only", known));
}

absl::StatusOr<DeviceInfo> Describe(int ordinal) {
  cudaDeviceProp properties = {};
  TOKEND_RETURN_IF_ERROR(OpenStatus(cudaGetDeviceProperties(&properties, ordinal)));
  DeviceInfo out;
  out.ordinal = ordinal;
  out.name = properties.name;
  out.major = properties.major;
  out.minor = properties.minor;
  out.multiprocessors = properties.multiProcessorCount;
  out.shared_bytes_per_multiprocessor = static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  out.shared_bytes_per_block = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  out.l2_bytes = properties.l2CacheSize;
  out.integrated = properties.integrated != 0;
  out.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  return out;
}

// MemAvailable of /proc/meminfo; negative: unknown.
int64_t HostAvailableBytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  while (file >> name >> kib) {
    if (name == "MemAvailable:") return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return -1;
}

std::string MiB(int64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

}  // namespace

absl::StatusOr<DeviceInfo> OpenDevice(int ordinal) {
  int driver = 0;
  TOKEND_RETURN_IF_ERROR(OpenStatus(cudaDriverGetVersion(&driver)));
  // Within a major version an older driver runs newer programs.
  if (driver / 1000 < CUDART_VERSION / 1000) return OldDriver();
  int count = 0;
  TOKEND_RETURN_IF_ERROR(OpenStatus(cudaGetDeviceCount(&count)));
  if (count == 0) return OpenStatus(cudaErrorNoDevice);
  if (ordinal < 0 || ordinal >= count) return BadOrdinal(ordinal, count);
  TOKEND_ASSIGN_OR_RETURN(DeviceInfo out, Describe(ordinal));
  if (out.major < kOldestMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda: ", out.ToString(),
                     " is too old: 8.0 (Ampere) or later is needed; use --device cpu"));
  }
  TOKEND_RETURN_IF_ERROR(OpenStatus(cudaSetDevice(ordinal)));
  LoadedCode code;
  const cudaError_t error = ReadLoadedCode(&code);
  if (error == cudaErrorNoKernelImageForDevice) {
    cudaGetLastError();
    return absl::FailedPreconditionError(absl::StrCat(
        "cuda: ", out.ToString(), " is none of what this build is for (", TOKEND_CUDA_PARTS,
        "): build with -DTOKEND_CUDA_ARCHITECTURES=", out.major, out.minor));
  }
  TOKEND_RETURN_IF_ERROR(OpenStatus(error));
  out.dependent_launch = code.ptx >= 90;
  return out;
}

absl::Status UseDevice(int ordinal) { return CudaStatus(cudaSetDevice(ordinal), "use the device"); }

absl::StatusOr<DeviceMemory> ReadDeviceMemory(const DeviceInfo& device) {
  size_t free = 0;
  size_t total = 0;
  const cudaError_t error = cudaMemGetInfo(&free, &total);
  if (error != cudaSuccess) return CudaStatus(error, "read the free memory");
  DeviceMemory out = {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  if (device.integrated) {
    // The driver counts the page cache as used; the system gives it back.
    const int64_t available = HostAvailableBytes();
    if (available >= 0) out.free_bytes = std::min(available, out.total_bytes);
  }
  return out;
}

absl::Status CheckMemory(const DeviceInfo& device, int64_t bytes, absl::string_view what) {
  TOKEND_ASSIGN_OR_RETURN(const DeviceMemory memory, ReadDeviceMemory(device));
  if (bytes <= memory.free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "cuda: ", what, " needs ", MiB(bytes), " and ", device.ToString(), " has ",
      MiB(memory.free_bytes), " free: take a smaller model or end others that use the device"));
}

}  // namespace tokend::cuda
