#include "tests/support/backend_sequence.h"

#include <algorithm>

#include "core/base/status_macros.h"

namespace tokend::testing {

BackendSequence::BackendSequence(ops::Backend* backend, int layers, int64_t max_tokens,
                                 int page_tokens)
    : backend_(backend) {
  const int64_t per_layer = PagesFor(1, max_tokens, page_tokens);
  for (int layer = 0; layer < layers; ++layer) {
    std::vector<base::PageId>& table = pages_.emplace_back();
    for (int64_t i = 0; i < per_layer; ++i) {
      table.push_back(static_cast<base::PageId>(layer * per_layer + i));
    }
  }
  for (const auto& table : pages_) {
    layers_.push_back({.pages = table.data(), .page_count = static_cast<int32_t>(table.size())});
  }
}

int64_t BackendSequence::PagesFor(int layers, int64_t max_tokens, int page_tokens) {
  return layers * ((max_tokens + page_tokens - 1) / page_tokens);
}

absl::StatusOr<std::vector<std::vector<float>>> BackendSequence::Feed(
    absl::Span<const int32_t> tokens, int64_t chunk, int64_t wanted) {
  std::vector<std::vector<float>> logits;
  const auto total = static_cast<int64_t>(tokens.size());
  for (int64_t begin = 0; begin < total; begin += chunk) {
    const int64_t rows = std::min(chunk, total - begin);
    std::vector<int32_t> logit_rows;
    for (int64_t row = std::max<int64_t>(0, total - wanted - begin); row < rows; ++row) {
      logit_rows.push_back(static_cast<int32_t>(row));
    }
    const ops::StepSequence sequence{.first_row = 0,
                                     .rows = static_cast<int32_t>(rows),
                                     .position = position_,
                                     .layers = layers_};
    TOKEND_ASSIGN_OR_RETURN(const ops::StepOutput output,
                            backend_->Forward({.tokens = tokens.subspan(static_cast<size_t>(begin),
                                                                        static_cast<size_t>(rows)),
                                               .sequences = absl::MakeConstSpan(&sequence, 1),
                                               .logit_rows = logit_rows}));
    for (size_t i = 0; i < logit_rows.size(); ++i) {
      const size_t vocabulary = output.logits.size() / logit_rows.size();
      const auto row = output.logits.subspan(i * vocabulary, vocabulary);
      logits.emplace_back(row.begin(), row.end());
    }
    position_ += rows;
  }
  return logits;
}

}  // namespace tokend::testing
