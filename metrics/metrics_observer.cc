#include "metrics/metrics_observer.h"

#include "prometheus/family.h"

namespace tokend::metrics {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using prometheus::Registry;
using Buckets = Histogram::BucketBoundaries;

// OpenTelemetry's semantic conventions for generative AI, metrics
// gen_ai.server.time_to_first_token and gen_ai.server.time_per_output_token.
Buckets FirstTokenBuckets() {
  return {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10};
}
Buckets InterTokenBuckets() {
  return {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5};
}
// gen_ai.server.request.duration.
Buckets RequestBuckets() {
  return {0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92};
}
Buckets QueueBuckets() { return {0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}; }
// Around step_time_target, 50 ms by default.
Buckets StepSecondsBuckets() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5};
}
// Up to max_batch_tokens.
Buckets StepTokensBuckets() { return {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}; }

Family<Counter>& CounterFamily(Registry& registry, const std::string& name,
                               const std::string& help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

Counter& AddCounter(Registry& registry, const std::string& name, const std::string& help) {
  return CounterFamily(registry, name, help).Add({});
}

Histogram& AddHistogram(Registry& registry, const std::string& name, const std::string& help,
                        const Buckets& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, buckets);
}

Counter& AddPromptTokens(Registry& registry, const std::string& source) {
  return CounterFamily(registry, "tokend_prompt_tokens_total",
                       "Tokens of turns' base and input, by whether their KV was there.")
      .Add({{"source", source}});
}

// In the order of base::SessionOp and base::EvictionCause.
constexpr std::array<const char*, 9> kOpNames = {"create",   "get",  "list",   "delete", "fork",
                                                 "rollback", "read", "commit", "drop"};
constexpr std::array<const char*, 4> kCauseNames = {"window", "pressure", "idle", "quota"};

// Ends that every server sees sooner or later: a rate() needs them at zero.
constexpr std::array<const char*, 8> kCommonReasons = {"stop",         "end_of_text", "length",
                                                       "context_full", "interrupted", "cancelled",
                                                       "queue_full",   "kv_pool_full"};

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

}  // namespace

MetricsObserver::MetricsObserver()
    : registry_(std::make_shared<Registry>()),
      computed_prompt_tokens_(AddPromptTokens(*registry_, "computed")),
      cached_prompt_tokens_(AddPromptTokens(*registry_, "cached")),
      generated_tokens_(AddCounter(*registry_, "tokend_generated_tokens_total",
                                   "Tokens drawn, end-of-text and stop tokens included.")),
      prefill_seconds_(AddCounter(*registry_, "tokend_prefill_seconds_total",
                                  "Share of step time that went to prompt tokens.")),
      decode_seconds_(AddCounter(*registry_, "tokend_decode_seconds_total",
                                 "Share of step time that went to generated tokens.")),
      prefix_query_tokens_(AddCounter(*registry_, "tokend_prefix_query_tokens_total",
                                      "Tokens looked up in the prefix index.")),
      prefix_hit_tokens_(AddCounter(*registry_, "tokend_prefix_hit_tokens_total",
                                    "Tokens found in the prefix index.")),
      recomputed_tokens_(AddCounter(*registry_, "tokend_recomputed_tokens_total",
                                    "Tokens whose dropped KV was computed again.")),
      page_copies_(AddCounter(*registry_, "tokend_kv_page_copies_total",
                              "Partly filled pages copied before a second owner wrote.")),
      version_conflicts_(AddCounter(*registry_, "tokend_version_conflicts_total",
                                    "Turns and calls that saw another version than expected.")),
      requests_(CounterFamily(*registry_, "tokend_requests_total",
                              "Turns by how they ended, each counted once.")),
      first_token_seconds_(AddHistogram(*registry_, "tokend_time_to_first_token_seconds",
                                        "From admission to the first output token.",
                                        FirstTokenBuckets())),
      inter_token_seconds_(AddHistogram(*registry_, "tokend_inter_token_seconds",
                                        "Between two output tokens of a turn.",
                                        InterTokenBuckets())),
      queue_seconds_(AddHistogram(*registry_, "tokend_queue_seconds",
                                  "From admission to the start of a turn.", QueueBuckets())),
      request_seconds_(AddHistogram(*registry_, "tokend_request_seconds",
                                    "From admission to the end of a turn.", RequestBuckets())),
      step_seconds_(AddHistogram(*registry_, "tokend_step_seconds", "Duration of a step.",
                                 StepSecondsBuckets())),
      step_tokens_(AddHistogram(*registry_, "tokend_step_tokens", "Tokens in a step.",
                                StepTokensBuckets())) {
  auto& ops = CounterFamily(*registry_, "tokend_session_operations_total",
                            "Operations on sessions, by kind.");
  for (size_t i = 0; i < kOpNames.size(); ++i) session_ops_[i] = &ops.Add({{"op", kOpNames[i]}});
  auto& evicted = CounterFamily(*registry_, "tokend_kv_evicted_pages_total",
                                "Pages of the KV cache given up, by cause.");
  for (size_t i = 0; i < kCauseNames.size(); ++i) {
    evicted_pages_[i] = &evicted.Add({{"cause", kCauseNames[i]}});
  }
  for (const char* reason : kCommonReasons) requests_.Add({{"reason", reason}});
}

void MetricsObserver::OnStep(const base::StepReport& report) {
  prefill_seconds_.Increment(Seconds(report.prefill));
  decode_seconds_.Increment(Seconds(report.decode));
  step_seconds_.Observe(Seconds(report.duration));
  step_tokens_.Observe(report.prefill_tokens + report.decode_tokens);
}

void MetricsObserver::OnPrompt(int64_t computed_tokens, int64_t cached_tokens) {
  computed_prompt_tokens_.Increment(static_cast<double>(computed_tokens));
  cached_prompt_tokens_.Increment(static_cast<double>(cached_tokens));
}

void MetricsObserver::OnGeneratedTokens(int64_t tokens) {
  generated_tokens_.Increment(static_cast<double>(tokens));
}

void MetricsObserver::OnFirstToken(absl::Duration since_admission) {
  first_token_seconds_.Observe(Seconds(since_admission));
}

void MetricsObserver::OnInterToken(absl::Duration since_previous) {
  inter_token_seconds_.Observe(Seconds(since_previous));
}

void MetricsObserver::OnQueue(absl::Duration in_queue) {
  queue_seconds_.Observe(Seconds(in_queue));
}

void MetricsObserver::OnRequestEnd(absl::string_view reason, absl::Duration since_admission) {
  requests_.Add({{"reason", std::string(reason)}}).Increment();
  request_seconds_.Observe(Seconds(since_admission));
}

void MetricsObserver::OnSessionOp(base::SessionOp op) {
  session_ops_.at(static_cast<size_t>(op))->Increment();
}

void MetricsObserver::OnVersionConflict() { version_conflicts_.Increment(); }

void MetricsObserver::OnPageCopies(int64_t pages) {
  page_copies_.Increment(static_cast<double>(pages));
}

void MetricsObserver::OnEvictedPages(base::EvictionCause cause, int64_t pages) {
  evicted_pages_.at(static_cast<size_t>(cause))->Increment(static_cast<double>(pages));
}

void MetricsObserver::OnPrefixQuery(int64_t query_tokens, int64_t hit_tokens) {
  prefix_query_tokens_.Increment(static_cast<double>(query_tokens));
  prefix_hit_tokens_.Increment(static_cast<double>(hit_tokens));
}

void MetricsObserver::OnRecomputedTokens(int64_t tokens) {
  recomputed_tokens_.Increment(static_cast<double>(tokens));
}

}  // namespace tokend::metrics
