#include "core/kv/page_pool.h"

#include <algorithm>
#include <bit>

#include "core/base/check.h"

namespace tokend::kv {

void PageRef::Reset() {
  if (pool_ == nullptr) return;
  std::exchange(pool_, nullptr)->Release(std::exchange(id_, base::PageId::kNone));
}

PageRef PageRef::Share() const {
  ++pool_->owners_[static_cast<size_t>(id_)];
  return PageRef(pool_, id_);
}

int PageRef::owners() const { return pool_->owners_[static_cast<size_t>(id_)]; }

PagePool::PagePool(int layers, int64_t pages, StoreHooks* hooks)
    : total_(pages),
      hooks_(hooks),
      free_(pages),
      owners_(static_cast<size_t>(pages)),
      extents_((pages + kExtentPages - 1) / kExtentPages),
      lists_(1 + layers, -1) {
  // From the back, so that the list starts with the lowest.
  for (int64_t i = static_cast<int64_t>(extents_.size()) - 1; i >= 0; --i) {
    const int64_t size = std::min<int64_t>(kExtentPages, pages - i * kExtentPages);
    extents_[i].free = extents_[i].all = (1u << size) - 1;
    Relist(static_cast<int32_t>(i));
  }
}

PagePool::~PagePool() { TOKEND_CHECK(free_ == total_); }

PageRef PagePool::Take(const PageTag& tag, base::PageId previous) {
  const int64_t next = static_cast<int64_t>(previous) + 1;
  if (previous != base::PageId::kNone && next % kExtentPages != 0 && next < total_) {
    const int bit = static_cast<int>(next % kExtentPages);
    const auto extent = static_cast<int32_t>(next / kExtentPages);
    if ((extents_[extent].free >> bit & 1) != 0) return TakeFrom(extent, bit, tag);
  }
  int32_t extent = lists_[kUntouched];
  if (extent < 0) extent = lists_[1 + tag.layer];
  for (size_t i = 1; extent < 0 && i < lists_.size(); ++i) extent = lists_[i];
  if (extent < 0) return {};
  return TakeFrom(extent, std::countr_zero(extents_[extent].free), tag);
}

PageRef PagePool::TakeFrom(int32_t index, int bit, const PageTag& tag) {
  Extent& extent = extents_[index];
  if (extent.free == extent.all) extent.layer = tag.layer;
  extent.free &= ~(1u << bit);
  --free_;
  Relist(index);
  const base::PageId page{index * kExtentPages + bit};
  owners_[static_cast<size_t>(page)] = 1;
  if (hooks_ != nullptr) hooks_->OnTaken(page, tag);
  return PageRef(this, page);
}

void PagePool::Release(base::PageId page) {
  if (--owners_[static_cast<size_t>(page)] == 0) GiveUp(page);
}

void PagePool::GiveUp(base::PageId page) {
  if (!step_in_flight()) return Free(page);
  quarantine_.push_back({page, steps_begun_});
}

void PagePool::EndStep() {
  TOKEND_CHECK(step_in_flight());
  ++steps_done_;
  for (; !quarantine_.empty() && quarantine_.front().until <= steps_done_;
       quarantine_.pop_front()) {
    Free(quarantine_.front().page);
  }
}

void PagePool::Free(base::PageId page) {
  const auto id = static_cast<int32_t>(page);
  Extent& extent = extents_[id / kExtentPages];
  const uint32_t bit = 1u << (id % kExtentPages);
  TOKEND_CHECK((extent.all & bit) != 0 && (extent.free & bit) == 0);
  extent.free |= bit;
  ++free_;
  Relist(id / kExtentPages);
  if (hooks_ != nullptr) hooks_->OnFreed(page);
}

void PagePool::Relist(int32_t index) {
  Extent& extent = extents_[index];
  const int32_t list = extent.free == extent.all ? kUntouched
                       : extent.free != 0        ? 1 + extent.layer
                                                 : kUnlisted;
  if (list == extent.list) return;
  if (extent.list != kUnlisted) {
    (extent.previous < 0 ? lists_[extent.list] : extents_[extent.previous].next) = extent.next;
    if (extent.next >= 0) extents_[extent.next].previous = extent.previous;
  }
  extent.list = list;
  if (list == kUnlisted) return;
  extent.previous = -1;
  extent.next = lists_[list];
  if (extent.next >= 0) extents_[extent.next].previous = index;
  lists_[list] = index;
}

}  // namespace tokend::kv
