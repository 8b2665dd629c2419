#ifndef TOKEND_CORE_KV_HEAVY_SET_H_
#define TOKEND_CORE_KV_HEAVY_SET_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv/heavy_hitters.h"
#include "core/kv/page_pool.h"

namespace tokend::kv {

// The KV of a HEAVY_HITTERS sequence, with the scores of its pages. Its layers keep
// different pages, so that no node could own them. Sets share pages; they change and
// die on the engine thread.
struct HeavySet {
  struct Layer {
    std::vector<ScoredPage> pages;  // ascending
    std::vector<PageRef> refs;      // likewise
  };

  // Room for `most_pages` of each layer.
  HeavySet(int layer_count, int64_t most_pages) : layers(static_cast<size_t>(layer_count)) {
    for (Layer& layer : layers) {
      layer.pages.reserve(static_cast<size_t>(most_pages));
      layer.refs.reserve(static_cast<size_t>(most_pages));
    }
  }

  // Becomes what `other` is, sharing its pages.
  void Assign(const HeavySet& other) {
    tokens = other.tokens;
    hidden = other.hidden;
    epoch = other.epoch;
    for (size_t i = 0; i < layers.size(); ++i) {
      layers[i].pages = other.layers[i].pages;
      layers[i].refs.clear();
      for (const PageRef& ref : other.layers[i].refs) layers[i].refs.push_back(ref.Share());
    }
  }

  int64_t next_page() const {
    return layers[0].pages.empty() ? 0 : layers[0].pages.back().index + 1;
  }

  int64_t tokens = 0;  // positions below it have had KV; pages behind it are unwritten
  int64_t hidden = 0;  // of them, those that a query at `tokens` sees in no layer
  std::vector<Layer> layers;
  // As it was when the epoch at hand began; nullptr: unknown. Some of the pages.
  std::shared_ptr<const HeavySet> epoch;
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_HEAVY_SET_H_
