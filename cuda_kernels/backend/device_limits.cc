#include "cuda_kernels/backend/device_limits.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "core/base/status_macros.h"
#include "cuda_kernels/kernels/probes.h"
#include "cuda_kernels/runtime/buffer.h"
#include "cuda_kernels/runtime/graph.h"

namespace tokend::cuda {
namespace {

// Best of `runs`, after one to warm up.
absl::StatusOr<double> Seconds(const Stream& stream, int runs,
                               absl::FunctionRef<absl::Status()> work) {
  TOKEND_ASSIGN_OR_RETURN(const Event begin, Event::CreateTimed());
  TOKEND_ASSIGN_OR_RETURN(const Event end, Event::CreateTimed());
  double best = 0;
  for (int run = 0; run <= runs; ++run) {
    TOKEND_RETURN_IF_ERROR(stream.Record(begin));
    TOKEND_RETURN_IF_ERROR(work());
    TOKEND_RETURN_IF_ERROR(stream.Record(end));
    TOKEND_RETURN_IF_ERROR(end.Synchronize("a probe"));
    TOKEND_ASSIGN_OR_RETURN(const double milliseconds, end.MillisecondsSince(begin));
    const double seconds = milliseconds / 1e3;
    if (run == 1 || (run > 1 && seconds < best)) best = seconds;
  }
  return std::max(best, 1e-9);
}

absl::StatusOr<double> ReadBandwidth(const DeviceInfo& device, const Stream& stream,
                                     const DeviceLimitsOptions& options) {
  TOKEND_ASSIGN_OR_RETURN(const DeviceMemory memory, ReadDeviceMemory(device));
  // A Jetson's free memory is the whole system's.
  const int64_t bytes = std::min(options.read_bytes, memory.free_bytes / 4) / 256 * 256;
  TOKEND_ASSIGN_OR_RETURN(const DeviceBuffer data,
                          DeviceBuffer::Allocate(bytes + 256, "the read probe"));
  TOKEND_RETURN_IF_ERROR(stream.Zero(data.data(), data.bytes(), "the read probe"));
  ReadProbeParams params;
  params.data = data.as<unsigned char>();
  params.bytes = bytes;
  params.sink = data.as<unsigned>(bytes);
  TOKEND_ASSIGN_OR_RETURN(const double seconds, Seconds(stream, options.runs, [&] {
                            return ReadProbe(params, device.multiprocessors, stream.get());
                          }));
  return static_cast<double>(bytes) / seconds;
}

absl::StatusOr<double> NodeSeconds(const DeviceInfo& device, const Stream& stream,
                                   const DeviceLimitsOptions& options, bool dependent) {
  TOKEND_ASSIGN_OR_RETURN(
      const Graph graph, Graph::Capture(stream, "the boundary probe", [&] {
        for (int node = 0; node < options.graph_nodes; ++node) {
          TOKEND_RETURN_IF_ERROR(BoundaryProbe(dependent, device.multiprocessors, stream.get()));
        }
        return absl::OkStatus();
      }));
  TOKEND_ASSIGN_OR_RETURN(const double seconds,
                          Seconds(stream, options.runs, [&] { return graph.Launch(stream); }));
  return seconds / options.graph_nodes;
}

}  // namespace

absl::StatusOr<DeviceLimits> MeasureDeviceLimits(const DeviceInfo& device,
                                                 const DeviceLimitsOptions& options) {
  TOKEND_RETURN_IF_ERROR(UseDevice(device.ordinal));
  TOKEND_ASSIGN_OR_RETURN(const Stream stream, Stream::Create());
  DeviceLimits limits;
  TOKEND_ASSIGN_OR_RETURN(limits.read_bandwidth, ReadBandwidth(device, stream, options));
  TOKEND_ASSIGN_OR_RETURN(limits.graph_node_seconds, NodeSeconds(device, stream, options, false));
  if (device.dependent_launch) {
    TOKEND_ASSIGN_OR_RETURN(limits.dependent_node_seconds,
                            NodeSeconds(device, stream, options, true));
  }
  TOKEND_ASSIGN_OR_RETURN(limits.matmul_flops,
                          LibraryMatmulFlops(stream, options.matmul_size, options.runs));
  return limits;
}

}  // namespace tokend::cuda
