#include "service/device.h"

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "service/cuda_library.h"
#include "service/errors.h"
#include "service/log.h"

namespace tokend::service {
namespace {

using base::Activations;
using base::KvDtype;

void LogDevice(absl::string_view device, absl::string_view why) {
  Log(LogLevel::kInfo, "device", {{"device", device}, {"why", why}});
}

// What is set that only the CPU has; OK: nothing.
absl::Status CheckCudaHasIt(const Settings& settings) {
  const Activations activations = settings.activations.value_or(Activations::kF16);
  if (activations != Activations::kF16 && activations != Activations::kF32) {
    return BadSetting("activations", absl::StrCat(base::ActivationsName(activations),
                                                  " is for the CPU; CUDA has f16 and f32"));
  }
  if (settings.kv_dtype == KvDtype::kF32) {
    return BadSetting("kv_dtype", "f32 is for the CPU; CUDA has f16 and int8");
  }
  if (settings.default_retention.kind == kv::RetentionPolicy::Kind::kHeavyHitters) {
    return BadSetting("default_retention", "heavy_hitters is for the CPU");
  }
  return absl::OkStatus();
}

absl::Status CheckCpuHasIt(const Settings& settings) {
  if (settings.activations == Activations::kF16) {
    return BadSetting("activations", "f16 is for CUDA; the CPU has int16, int8 and f32");
  }
  if (settings.kv_memory_fraction.has_value()) {
    return BadSetting("kv_memory_fraction", "is for CUDA; on the CPU set kv_budget_bytes");
  }
  if (settings.high_stream_priority.has_value()) {
    return BadSetting("stream_priority", "is for CUDA");
  }
  return absl::OkStatus();
}

absl::StatusOr<Device> OpenCuda(int ordinal, absl::Span<const std::string> paths) {
  Device out;
  TOKEND_ASSIGN_OR_RETURN(out.cuda_library, LoadCudaLibrary(paths));
  TOKEND_ASSIGN_OR_RETURN(out.info, out.cuda_library->open_device(ordinal));
  return out;
}

// No restart brings what is not there: the setting is wrong.
absl::Status AskedFor(const absl::Status& status) {
  if (status.code() == absl::StatusCode::kNotFound ||
      status.code() == absl::StatusCode::kFailedPrecondition) {
    return BadSetting("device", status.message());
  }
  return status;
}

absl::StatusOr<Device> UseCpu(const Settings& settings, absl::string_view why) {
  TOKEND_RETURN_IF_ERROR(CheckCpuHasIt(settings));
  LogDevice("cpu", why);
  return Device();
}

}  // namespace

absl::StatusOr<Device> ChooseDevice(const Settings& settings, absl::Span<const std::string> paths) {
  switch (settings.device.kind) {
    case DeviceSetting::Kind::kCpu:
      return UseCpu(settings, "as set");
    case DeviceSetting::Kind::kCuda: {
      TOKEND_RETURN_IF_ERROR(CheckCudaHasIt(settings));
      auto device = OpenCuda(settings.device.ordinal, paths);
      if (!device.ok()) return AskedFor(device.status());
      LogDevice(device->info.ToString(), "as set");
      return device;
    }
    case DeviceSetting::Kind::kAuto:
      break;
  }
  const absl::Status cpu_only = CheckCudaHasIt(settings);
  if (!cpu_only.ok()) return UseCpu(settings, cpu_only.message());
  auto device = OpenCuda(0, paths);
  if (!device.ok()) return UseCpu(settings, device.status().message());
  device->may_fall_back = true;
  LogDevice(device->info.ToString(), "it is there");
  return device;
}

absl::StatusOr<Device> FallBack(const Device& from, const Settings& settings,
                                const absl::Status& why) {
  const bool unfit = why.code() == absl::StatusCode::kResourceExhausted ||
                     why.code() == absl::StatusCode::kUnimplemented;
  if (!from.may_fall_back || !unfit || !CheckCpuHasIt(settings).ok()) return why;
  return UseCpu(settings, why.message());
}

}  // namespace tokend::service
