#include "core/base/observer.h"

namespace tokend::base {
namespace {

class IgnoringObserver : public Observer {
 public:
  void OnStep(const StepReport&) override {}
  void OnPrompt(int64_t, int64_t) override {}
  void OnGeneratedTokens(int64_t) override {}
  void OnFirstToken(absl::Duration) override {}
  void OnInterToken(absl::Duration) override {}
  void OnQueue(absl::Duration) override {}
  void OnRequestEnd(absl::string_view, absl::Duration) override {}
  void OnSessionOp(SessionOp) override {}
  void OnVersionConflict() override {}
  void OnPageCopies(int64_t) override {}
  void OnEvictedPages(EvictionCause, int64_t) override {}
  void OnPrefixQuery(int64_t, int64_t) override {}
  void OnRecomputedTokens(int64_t) override {}
};

}  // namespace

Observer* NullObserver() {
  static IgnoringObserver observer;
  return &observer;
}

}  // namespace tokend::base
