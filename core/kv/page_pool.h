#ifndef TOKEND_CORE_KV_PAGE_POOL_H_
#define TOKEND_CORE_KV_PAGE_POOL_H_

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/base/page_id.h"
#include "core/kv/store_hooks.h"

namespace tokend::kv {

class PagePool;

// Owns one page, alone or with others: the node's, the branch's or the set's that holds
// it. Destroying the last frees the page.
class PageRef {
 public:
  PageRef() = default;
  PageRef(PageRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)),
        id_(std::exchange(other.id_, base::PageId::kNone)) {}
  PageRef& operator=(PageRef&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~PageRef() { Reset(); }

  base::PageId id() const { return id_; }
  explicit operator bool() const { return pool_ != nullptr; }
  // Another owner of the same page; there is one.
  PageRef Share() const;
  int owners() const;
  void Reset();

 private:
  friend class PagePool;
  PageRef(PagePool* pool, base::PageId id) : pool_(pool), id_(id) {}

  PagePool* pool_ = nullptr;
  base::PageId id_ = base::PageId::kNone;
};

// Pages are handed out layer by layer in extents of neighbours, since a sequence
// reads a layer's pages in a row. A page that is given up while steps are in flight
// may still be touched by them: it is quarantined until the newest of them is done.
// Not thread-safe: the store's mutex guards it, and the engine thread alone takes and
// frees pages.
class PagePool {
 public:
  static constexpr int kExtentPages = 16;

  // `hooks` may be nullptr.
  PagePool(int layers, int64_t pages, StoreHooks* hooks);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  // All pages are free by now.
  ~PagePool();

  int64_t total() const { return total_; }
  int64_t free() const { return free_; }
  int64_t quarantined() const { return static_cast<int64_t>(quarantine_.size()); }
  // Free or quarantined.
  int64_t unowned() const { return free_ + quarantined(); }

  // A step was started; the oldest is done.
  void BeginStep() { ++steps_begun_; }
  void EndStep();
  bool step_in_flight() const { return steps_begun_ > steps_done_; }

  // The page behind `previous` if it is free; else the first of an untouched
  // extent, else a page among others of the tag's layer, else any. Empty: none is free.
  PageRef Take(const PageTag& tag, base::PageId previous);
  StoreHooks* hooks() const { return hooks_; }

 private:
  friend class PageRef;

  struct Extent {
    uint32_t free = 0;  // bit i: page i of the extent is free
    uint32_t all = 0;   // bit i: there is a page i
    int32_t layer = 0;  // of its first page
    int32_t list = kUnlisted;
    int32_t previous = -1;
    int32_t next = -1;
  };
  // Lists of extents that have a free page: the untouched, then by layer.
  static constexpr int32_t kUnlisted = -1;
  static constexpr int32_t kUntouched = 0;

  void Release(base::PageId page);
  void GiveUp(base::PageId page);
  void Free(base::PageId page);
  PageRef TakeFrom(int32_t extent, int bit, const PageTag& tag);
  // Puts the extent into the list that it belongs to now.
  void Relist(int32_t extent);

  const int64_t total_;
  StoreHooks* const hooks_;
  int64_t free_ = 0;
  std::vector<int32_t> owners_;  // [pages]
  std::vector<Extent> extents_;
  std::vector<int32_t> lists_;  // [1 + layers] first extent, or -1
  int64_t steps_begun_ = 0;
  int64_t steps_done_ = 0;
  struct Quarantined {
    base::PageId page;
    int64_t until;  // so many steps are done
  };
  std::deque<Quarantined> quarantine_;
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_PAGE_POOL_H_
