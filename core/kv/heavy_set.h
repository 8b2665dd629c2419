#ifndef TOKEND_CORE_KV_HEAVY_SET_H_
#define TOKEND_CORE_KV_HEAVY_SET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv/heavy_hitters.h"
#include "core/kv/page_pool.h"

namespace tokend::kv {

// The KV of a HEAVY_HITTERS sequence, with the scores of its pages. Its layers keep
// different pages, so that no node could own them. A copy shares the pages; the last
// copy frees them, on the engine thread.
struct HeavySet {
  struct Layer {
    std::vector<ScoredPage> pages;               // ascending
    std::vector<std::shared_ptr<PageRef>> refs;  // likewise
  };

  explicit HeavySet(int layer_count) : layers(static_cast<size_t>(layer_count)) {}

  int64_t next_page() const {
    return layers[0].pages.empty() ? 0 : layers[0].pages.back().index + 1;
  }

  int64_t tokens = 0;  // positions below it have had KV; pages behind it are unwritten
  std::vector<Layer> layers;
  // As it was when the epoch at hand began; nullptr: unknown. Some of the pages.
  std::shared_ptr<const HeavySet> epoch;
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_HEAVY_SET_H_
