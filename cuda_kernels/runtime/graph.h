#ifndef TOKEND_CUDA_KERNELS_RUNTIME_GRAPH_H_
#define TOKEND_CUDA_KERNELS_RUNTIME_GRAPH_H_

#include <driver_types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cuda_kernels/runtime/stream.h"

namespace tokend::cuda {

struct DestroyGraph {
  void operator()(cudaGraphExec_t graph) const;
};

// Work recorded once and started again with one call, parameters and addresses as
// they were.
class Graph {
 public:
  Graph() = default;
  // Records what `work` starts on `stream`, without running it, and puts it in place
  // on the device. `work`'s own failure is returned as it is, nothing being kept.
  static absl::StatusOr<Graph> Capture(const Stream& stream, absl::string_view name,
                                       absl::FunctionRef<absl::Status()> work);

  bool empty() const { return graph_ == nullptr; }
  int64_t nodes() const { return nodes_; }  // kernels, copies and fills
  absl::Status Launch(const Stream& stream) const;

 private:
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyGraph> graph_;
  int64_t nodes_ = 0;
  std::string name_;
};

}  // namespace tokend::cuda

#endif  // TOKEND_CUDA_KERNELS_RUNTIME_GRAPH_H_
