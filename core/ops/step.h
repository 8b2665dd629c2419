// One step: the rows (tokens) of several sequences, run through the model at once.
#ifndef TOKEND_CORE_OPS_STEP_H_
#define TOKEND_CORE_OPS_STEP_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/base/page_id.h"
#include "core/ops/sampling_params.h"

namespace tokend::ops {

// Which keys a query sees. Position p sees q <= p when
//   window_tokens == 0, or q > p - window_tokens, or
//   q < sink_tokens and (sink_reach == 0 or q > p - sink_reach).
// A sink is seen at distance min(p, sink_tokens + window_tokens - 1) - q, any
// other key at p - q (see kv/: "a window is a mask").
struct AttentionMask {
  int64_t sink_tokens = 0;
  int64_t window_tokens = 0;  // 0: everything
  int64_t sink_reach = 0;     // more than window_tokens, or 0: sinks are always seen

  bool operator==(const AttentionMask&) const = default;

  // First position that the window of `p` holds.
  int64_t WindowBegin(int64_t p) const {
    return window_tokens == 0 || p < window_tokens ? 0 : p - window_tokens + 1;
  }
  // `p` sees the sinks of [SinkBegin(p), SinkEnd()), where that is a range.
  int64_t SinkBegin(int64_t p) const {
    return sink_reach == 0 || p < sink_reach ? 0 : p - sink_reach + 1;
  }
  int64_t SinkEnd() const { return window_tokens == 0 ? 0 : sink_tokens; }
  bool SeesSinks(int64_t p) const { return SinkBegin(p) < SinkEnd(); }
  bool Sees(int64_t p, int64_t q) const {
    return q <= p && (q >= WindowBegin(p) || (q >= SinkBegin(p) && q < SinkEnd()));
  }
  // Position from which query p looks at the sinks.
  int64_t SinkPosition(int64_t p) const {
    const int64_t last = sink_tokens + window_tokens - 1;
    return window_tokens == 0 || p < last ? p : last;
  }
};

// The pages of one layer of one sequence. Logical page i holds positions
// [i * page_tokens, (i + 1) * page_tokens):
//   i < sink_pages:   pages[i]
//   i == kept[k]:     pages[sink_pages + k]
//   i >= first_page:  pages[sink_pages + kept_pages + i - first_page]
// No other logical page is read or written; 0 sink_pages and first_page 0 is
// the plain, whole table. sink_pages <= first_page unless sink_pages is 0.
//
// Where dropped KV is computed again, a step's first rows serve lower layers
// alone. A row at a position before `attend_begin` ends in this layer: all that it
// may leave is its KV here, and no layer above, no logits row, has it. Of the
// rows that come as far, those at `store_begin` or later leave KV. attend_begin
// never falls from one layer to the next, and no row that goes on sees a position
// whose KV is not there.
struct LayerKv {
  const base::PageId* pages = nullptr;
  int32_t sink_pages = 0;
  int32_t page_count = 0;  // entries in `pages`
  int64_t first_page = 0;
  AttentionMask mask;
  int64_t store_begin = 0;
  int64_t attend_begin = 0;

  // Of a policy that keeps pages by their weight (see kv/heavy_hitters.h): beside
  // what the mask hides, positions of [hidden_begin, hidden_end) are hidden, but for
  // whole pages: the logical pages of `kept`, ascending, whose entries stand in
  // `pages` between those of the sinks and those from first_page on.
  int64_t hidden_begin = 0;
  int64_t hidden_end = 0;
  const int32_t* kept = nullptr;
  int32_t kept_pages = 0;
  // [page_count], by entry of `pages`, or nullptr. Each row adds, for each position q
  // that it sees and each head, round(2^20 x its final probability of q).
  int64_t* scores = nullptr;
};

// Consecutive rows of the step that belong to one sequence. KV of positions
// before `position` is in the pages already; the step writes that of its rows.
struct StepSequence {
  int32_t first_row = 0;
  int32_t rows = 0;
  int64_t position = 0;              // of the first row
  absl::Span<const LayerKv> layers;  // [number of layers]
};

// What is drawn from a row of logits: the token of sampling/sampler.h.
struct TokenDraw {
  const SamplingParams* params = nullptr;  // DrawsAlone
  int64_t position = 0;                    // of the token that is drawn
};

struct StepBatch {
  // [rows], each in [0, vocabulary_size); or -1 - j: what draws[j] of the step submitted
  // before this one drew, collected or not, if it had at most max_sequences draws. Nobody
  // looks at what a row computes whose draw found a logit that is not finite.
  absl::Span<const int32_t> tokens;
  absl::Span<const StepSequence> sequences;  // cover all rows, in order
  absl::Span<const int32_t> logit_rows;      // ascending rows whose logits are wanted
  // [logit_rows]: tokens are wanted in place of logits. Or empty; always for a backend
  // that draws none (BackendInfo::draws_tokens).
  absl::Span<const TokenDraw> draws;
};

// Belongs to the backend and stays until its next Submit or Collect.
struct StepOutput {
  // [logit_rows.size(), vocabulary_size]; empty where tokens were drawn.
  absl::Span<const float> logits;
  // [logit_rows.size()] where the batch has draws; -1 - t: the logit of token t is not
  // finite.
  absl::Span<const int32_t> tokens;
  // Activations that did not fit f16, since the backend was created.
  int64_t saturated_activations = 0;
};

// Copies the first `rows` positions of a page.
struct PageCopy {
  base::PageId from = base::PageId::kNone;
  base::PageId to = base::PageId::kNone;
  int32_t rows = 0;
};

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_STEP_H_
