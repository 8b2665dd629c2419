#ifndef TOKEND_TESTS_SUPPORT_SHADOW_TAGS_H_
#define TOKEND_TESTS_SUPPORT_SHADOW_TAGS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "core/kv/store_hooks.h"
#include "core/ops/backend.h"

namespace tokend::testing {

// Sits between a store and its backend and knows of each page whom it was taken
// for, of which node it is and which of its rows were written since. A step that
// reads another's page (another root stands for another principal), one of another
// place, of another chain of nodes, one that is free, or a row from before the page
// was taken last, fails and is remembered in problems(). So does a page that a step
// has in its tables and that is freed before the step is collected.
class ShadowTags : public ops::Backend, public kv::StoreHooks {
 public:
  // `backend` outlives this. `on_freed` overwrites a page that became free.
  ShadowTags(ops::Backend* backend, int page_tokens, std::function<void(base::PageId)> on_freed);

  ops::BackendInfo info() const override { return backend_->info(); }
  absl::Status AllocateArena(int64_t pages) override;
  absl::Status Submit(const ops::StepBatch& batch) override;
  absl::StatusOr<ops::StepOutput> Collect() override;
  absl::Status CopyPages(absl::Span<const ops::PageCopy> copies) override;

  void OnTaken(base::PageId page, const kv::PageTag& tag) override;
  void OnAttached(base::PageId page, const kv::Node& node) override;
  void OnDetached(base::PageId page, int rows) override;
  void OnFreed(base::PageId page) override;
  void OnCut(const kv::Node& node) override;
  absl::Status Fault(kv::FaultPoint point) override;

  // Told of each page, with the store's mutex held, and what it was taken for.
  std::function<void(base::PageId, const kv::PageTag&)> on_page_taken, on_page_freed;
  // Told of each cut.
  std::function<void(const kv::Node&)> on_cut;
  // What fails at these points; may be called on any thread.
  std::function<absl::Status(kv::FaultPoint)> on_fault;

  // Counts how often the page was taken; 0: never.
  uint32_t generation(base::PageId page) const { return At(page).generation; }
  const std::vector<std::string>& problems() const { return problems_; }
  int64_t checked_pages() const { return checked_pages_; }

 private:
  struct Page {
    bool live = false;
    kv::PageTag tag;
    const kv::Node* node = nullptr;  // nullptr: a branch still writes it
    uint32_t generation = 0;
    std::vector<uint32_t> written;  // [page_tokens] generation of the last write; 0: none
  };

  Page& At(base::PageId page) { return pages_[static_cast<int64_t>(page)]; }
  const Page& At(base::PageId page) const { return pages_[static_cast<int64_t>(page)]; }
  bool Exists(base::PageId page) const {
    return static_cast<int64_t>(page) >= 0 && static_cast<size_t>(page) < pages_.size();
  }
  void CheckSequence(const ops::StepSequence& sequence);
  void CheckLayer(const ops::StepSequence& sequence, int layer, uint64_t root);
  struct Reach {
    int64_t stored = 0;
    int64_t queries = 0;
    int64_t end = 0;
  };
  static Reach ReachOf(const ops::StepSequence& sequence, int layer);
  void CheckRows(const ops::LayerKv& kv, const Page& page, int64_t index, Reach reach);
  void CheckWritable(const ops::StepSequence& sequence, int layer);
  // What a step in flight has in its tables, and where it leaves KV.
  struct Flight {
    struct Row {
      base::PageId page;
      int row;
    };
    std::vector<std::pair<base::PageId, uint32_t>> pages;  // with their generations
    std::vector<Row> rows;
  };
  Flight FlightOf(const ops::StepBatch& batch) const;
  void SetWritten(const Flight& flight, bool written);
  void Problem(std::string what);
  absl::Status status() const;

  ops::Backend* const backend_;
  const int page_tokens_;
  const std::function<void(base::PageId)> on_freed_;
  std::vector<Page> pages_;
  std::vector<std::string> problems_;
  int64_t checked_pages_ = 0;
  std::deque<Flight> flights_;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_SHADOW_TAGS_H_
