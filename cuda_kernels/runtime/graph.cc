#include "cuda_kernels/runtime/graph.h"

#include <cuda_runtime_api.h>

#include "cuda_kernels/runtime/cuda_status.h"

namespace tokend::cuda {

void DestroyGraph::operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }

absl::StatusOr<Graph> Graph::Capture(const Stream& stream, absl::string_view name,
                                     absl::FunctionRef<absl::Status()> work) {
  cudaError_t error = cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return CudaStatus(error, name);
  const absl::Status recorded = work();
  cudaGraph_t graph = nullptr;
  // Also after a failure: it takes the stream out of capture.
  error = cudaStreamEndCapture(stream.get(), &graph);
  const auto destroy = [](cudaGraph_t recording) { cudaGraphDestroy(recording); };
  const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, decltype(destroy)> owner(graph,
                                                                                     destroy);
  if (!recorded.ok()) {
    cudaGetLastError();
    return recorded;
  }
  if (error != cudaSuccess) return CudaStatus(error, name);
  size_t nodes = 0;
  error = cudaGraphGetNodes(graph, nullptr, &nodes);
  if (error != cudaSuccess) return CudaStatus(error, name);
  cudaGraphExec_t executable = nullptr;
  error = cudaGraphInstantiate(&executable, graph, 0);
  if (error != cudaSuccess) return CudaStatus(error, name);
  Graph out;
  out.graph_.reset(executable);
  out.nodes_ = static_cast<int64_t>(nodes);
  out.name_ = std::string(name);
  error = cudaGraphUpload(executable, stream.get());
  if (error != cudaSuccess) return CudaStatus(error, name);
  return out;
}

absl::Status Graph::Launch(const Stream& stream) const {
  return CudaStatus(cudaGraphLaunch(graph_.get(), stream.get()), name_);
}

}  // namespace tokend::cuda
