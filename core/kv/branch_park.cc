// BranchState: parking.
#include <algorithm>

#include "core/base/check.h"
#include "core/kv/branch_state.h"

namespace tokend::kv {

void BranchState::SetLive(bool live) {
  if (live_ == live) return;
  live_ = live;
  if (base_.session != nullptr) base_.session->live_branches += live ? 1 : -1;
}

void BranchState::Park() {
  base::MutexLock lock(&store_->mu);
  const int64_t free_before = store_->pool.free();
  ReturnPages(0);
  DropLeadIn();
  store_->tree.Drop(std::move(donor_));
  store_->tree.Drop(std::move(current_));
  heavy_.reset();
  epoch_.reset();
  store_->tree.Change(&base_.claim, Claim::Kind::kTokens);
  store_->tree.Drain(1024);
  tables_.clear();
  views_.clear();
  derived_ = false;
  donor_rows_ = 0;
  computed_ = 0;
  matched_ = false;
  SetLive(false);
  const int64_t freed = store_->pool.free() - free_before;
  if (freed > 0) store_->observer->OnEvictedPages(base::EvictionCause::kPressure, freed);
}

}  // namespace tokend::kv
