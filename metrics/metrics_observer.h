#ifndef TOKEND_METRICS_METRICS_OBSERVER_H_
#define TOKEND_METRICS_METRICS_OBSERVER_H_

#include <array>
#include <memory>
#include <string>

#include "core/base/observer.h"
#include "prometheus/counter.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace tokend::metrics {

// Counters and histograms behind the core's observer. Every series whose labels
// are known is there, at zero, from the start. Thread-safe.
class MetricsObserver : public base::Observer {
 public:
  MetricsObserver();

  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

  void OnStep(const base::StepReport& report) override;
  void OnPrompt(int64_t computed_tokens, int64_t cached_tokens) override;
  void OnGeneratedTokens(int64_t tokens) override;
  void OnFirstToken(absl::Duration since_admission) override;
  void OnInterToken(absl::Duration since_previous) override;
  void OnQueue(absl::Duration in_queue) override;
  void OnRequestEnd(absl::string_view reason, absl::Duration since_admission) override;
  void OnSessionOp(base::SessionOp op) override;
  void OnVersionConflict() override;
  void OnPageCopies(int64_t pages) override;
  void OnEvictedPages(base::EvictionCause cause, int64_t pages) override;
  void OnPrefixQuery(int64_t query_tokens, int64_t hit_tokens) override;
  void OnRecomputedTokens(int64_t tokens) override;

 private:
  static constexpr int kSessionOps = 9;
  static constexpr int kEvictionCauses = 4;

  const std::shared_ptr<prometheus::Registry> registry_;

  // Owned by the registry.
  prometheus::Counter& computed_prompt_tokens_;
  prometheus::Counter& cached_prompt_tokens_;
  prometheus::Counter& generated_tokens_;
  prometheus::Counter& prefill_seconds_;
  prometheus::Counter& decode_seconds_;
  prometheus::Counter& prefix_query_tokens_;
  prometheus::Counter& prefix_hit_tokens_;
  prometheus::Counter& recomputed_tokens_;
  prometheus::Counter& page_copies_;
  prometheus::Counter& version_conflicts_;
  prometheus::Family<prometheus::Counter>& requests_;
  std::array<prometheus::Counter*, kSessionOps> session_ops_;
  std::array<prometheus::Counter*, kEvictionCauses> evicted_pages_;
  prometheus::Histogram& first_token_seconds_;
  prometheus::Histogram& inter_token_seconds_;
  prometheus::Histogram& queue_seconds_;
  prometheus::Histogram& request_seconds_;
  prometheus::Histogram& step_seconds_;
  prometheus::Histogram& step_tokens_;
};

}  // namespace tokend::metrics

#endif  // TOKEND_METRICS_METRICS_OBSERVER_H_
