#include "core/kv/heavy_hitters.h"

#include <algorithm>
#include <utility>

namespace tokend::kv {

int64_t HeavyHitters::MostPages(int page_tokens) const {
  const auto pages = [&](int64_t tokens) { return (tokens + page_tokens - 1) / page_tokens; };
  return SinkPages(page_tokens) + kept_pages + pages(window_tokens) + pages(epoch_tokens);
}

void KeepBest(const HeavyHitters& rule, int64_t epoch, int page_tokens,
              absl::Span<ScoredPage> pages, HeavyScratch* scratch) {
  const int64_t sink_pages = rule.SinkPages(page_tokens);
  const int64_t first_page = rule.WindowBegin(epoch) / page_tokens;
  scratch->stays.assign(pages.size(), true);
  std::vector<std::pair<int64_t, size_t>>& old = scratch->ranked;
  old.clear();
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].index >= sink_pages && pages[i].index < first_page) {
      old.push_back({-pages[i].score, i});
    }
    pages[i].score /= 2;
  }
  std::sort(old.begin(), old.end());
  for (size_t i = static_cast<size_t>(rule.kept_pages); i < old.size(); ++i) {
    scratch->stays[old[i].second] = false;
  }
}

}  // namespace tokend::kv
