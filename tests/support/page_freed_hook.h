#ifndef TOKEND_TESTS_SUPPORT_PAGE_FREED_HOOK_H_
#define TOKEND_TESTS_SUPPORT_PAGE_FREED_HOOK_H_

#include <functional>
#include <utility>

#include "core/kv/store_hooks.h"

namespace tokend::testing {

// Calls a function for each page that becomes free, e.g. to overwrite it.
class PageFreedHook : public kv::StoreHooks {
 public:
  explicit PageFreedHook(std::function<void(base::PageId)> on_freed)
      : on_freed_(std::move(on_freed)) {}

  void OnFreed(base::PageId page) override {
    if (on_freed_) on_freed_(page);
  }

 private:
  const std::function<void(base::PageId)> on_freed_;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_PAGE_FREED_HOOK_H_
