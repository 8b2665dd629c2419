// HEAVY_HITTERS: which pages of a layer stay, by the attention that they got.
//
// To be a function of tokens and model alone, it works by epochs of E positions: with
// e = floor(p / E) E, query p sees the sinks, the positions from e - W on, and the
// pages that were kept at e. Each query adds its weights to the scores of pages (see
// ops::LayerKv::scores); at e, the best stay and all scores halve.
//
// After Zhang et al. 2023, "H2O: Heavy-hitter oracle for efficient generative
// inference of large language models", which evicts one token a step.
#ifndef TOKEND_CORE_KV_HEAVY_HITTERS_H_
#define TOKEND_CORE_KV_HEAVY_HITTERS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace tokend::kv {

struct HeavyHitters {
  int64_t sink_tokens = 0;
  int64_t window_tokens = 0;
  int32_t kept_pages = 0;    // of each layer, beside those of the sinks and the window
  int64_t epoch_tokens = 0;  // a multiple of page_tokens

  int64_t EpochOf(int64_t position) const { return position / epoch_tokens * epoch_tokens; }
  // First position of the window in the epoch that starts at `epoch`.
  int64_t WindowBegin(int64_t epoch) const {
    return epoch < window_tokens ? 0 : epoch - window_tokens;
  }
  int64_t SinkPages(int page_tokens) const { return (sink_tokens + page_tokens - 1) / page_tokens; }
  // Most pages of a layer, at the end of an epoch.
  int64_t MostPages(int page_tokens) const;
};

// A page that a layer has, by its logical index.
struct ScoredPage {
  int64_t index = 0;
  int64_t score = 0;

  bool operator==(const ScoredPage&) const = default;
};

// Kept from one call to the next, for its memory.
struct HeavyScratch {
  std::vector<bool> stays;                         // [pages]
  std::vector<std::pair<int64_t, size_t>> ranked;  // (-score, place)
  std::vector<int64_t> kept;
};

// At the start of an epoch: marks in scratch->stays which of the layer's pages, ascending,
// stay: those with sinks, those of the window, and of the others the kept_pages with
// the highest scores, the lower page on ties. Then halves all scores.
void KeepBest(const HeavyHitters& rule, int64_t epoch, int page_tokens,
              absl::Span<ScoredPage> pages, HeavyScratch* scratch);

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_HEAVY_HITTERS_H_
