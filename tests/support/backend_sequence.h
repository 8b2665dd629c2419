#ifndef TOKEND_TESTS_SUPPORT_BACKEND_SEQUENCE_H_
#define TOKEND_TESTS_SUPPORT_BACKEND_SEQUENCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/base/page_id.h"
#include "core/ops/backend.h"
#include "core/ops/step.h"

namespace tokend::testing {

// One sequence with full attention on a backend of its own: pages 0, 1, 2, ...
// of the arena, layer by layer.
class BackendSequence {
 public:
  // `backend` outlives it and has an arena of PagesFor(layers, max_tokens, page_tokens).
  BackendSequence(ops::Backend* backend, int layers, int64_t max_tokens, int page_tokens);
  static int64_t PagesFor(int layers, int64_t max_tokens, int page_tokens);

  // Runs `tokens` after what was fed before, `chunk` at a time. The logits after
  // each of the last `wanted` of them: [wanted][vocabulary_size].
  absl::StatusOr<std::vector<std::vector<float>>> Feed(absl::Span<const int32_t> tokens,
                                                       int64_t chunk, int64_t wanted);

  int64_t position() const { return position_; }
  // Starts over.
  void Reset() { position_ = 0; }

 private:
  ops::Backend* const backend_;
  std::vector<std::vector<base::PageId>> pages_;  // [layer][logical page]
  std::vector<ops::LayerKv> layers_;
  int64_t position_ = 0;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_BACKEND_SEQUENCE_H_
