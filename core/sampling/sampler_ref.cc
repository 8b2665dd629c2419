#include "core/sampling/sampler_ref.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/ops/philox.h"

namespace tokend::sampling {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

struct Entry {
  int32_t id;
  float logit;
  uint64_t weight;
};

std::vector<float> AdjustRef(absl::Span<const float> logits, const ops::SamplingParams& params,
                             absl::Span<const int32_t> context, absl::Span<const int32_t> output) {
  std::vector<int32_t> window(context.begin(), context.end());
  window.insert(window.end(), output.begin(), output.end());
  if (window.size() > ops::kPenaltyWindowTokens) {
    window.erase(window.begin(), window.end() - ops::kPenaltyWindowTokens);
  }
  constexpr float kMax = std::numeric_limits<float>::max();
  std::vector<float> adjusted(logits.begin(), logits.end());
  for (int32_t id = 0; id < static_cast<int32_t>(adjusted.size()); ++id) {
    float& logit = adjusted[id];
    for (const auto& [token, bias] : params.logit_bias) {
      if (token == id) logit = bias == -100 ? kForbidden : logit + bias;
    }
    if (logit == kForbidden) continue;
    if (std::count(window.begin(), window.end(), id) > 0) {
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
      logit = std::clamp(logit, -kMax, kMax);
    }
    const auto count = std::count(output.begin(), output.end(), id);
    if (count == 0) continue;
    logit -= params.frequency_penalty * static_cast<float>(count);
    logit -= params.presence_penalty;
  }
  return adjusted;
}

// In order, filtered.
std::vector<Entry> CandidatesRef(const std::vector<float>& logits,
                                 const ops::SamplingParams& params) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] != kForbidden) entries.push_back({static_cast<int32_t>(i), logits[i], 0});
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.logit > b.logit; });
  if (params.temperature == 0) {
    entries.resize(1);
    entries[0].weight = 1;
    return entries;
  }
  const double max = entries[0].logit;
  for (Entry& entry : entries) {
    const double p = std::exp((static_cast<double>(entry.logit) - max) / params.temperature);
    entry.weight = static_cast<uint64_t>(std::llrint(p * 0x1p40));
  }
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < entries.size()) {
    size_t count = params.top_k;
    const float last = entries[count - 1].logit;
    while (count < entries.size() && entries[count].logit == last) ++count;
    entries.resize(count);
  }
  if (params.top_p < 1) {
    __extension__ using Wide = unsigned __int128;
    Wide total = 0;
    for (const Entry& entry : entries) total += entry.weight;
    const Wide target = total * static_cast<uint64_t>(std::llround(params.top_p * 0x1p32)) >> 32;
    Wide sum = 0;
    size_t count = 0;
    while (count == 0 || sum < target) sum += entries[count++].weight;
    entries.resize(count);
  }
  const double least = static_cast<double>(params.min_p) * 0x1p40;
  while (static_cast<double>(entries.back().weight) < least) entries.pop_back();
  return entries;
}

}  // namespace

int32_t SampleRef(absl::Span<const float> logits, const ops::SamplingParams& params,
                  absl::Span<const int32_t> context, absl::Span<const int32_t> output,
                  int64_t position) {
  const auto entries = CandidatesRef(AdjustRef(logits, params, context, output), params);
  __extension__ using Wide = unsigned __int128;
  Wide total = 0;
  for (const Entry& entry : entries) total += entry.weight;
  const Wide target = total * ops::RandomBits(params.seed, position) >> 64;
  Wide sum = 0;
  for (const Entry& entry : entries) {
    sum += entry.weight;
    if (sum > target) return entry.id;
  }
  return -1;
}

std::vector<double> DistributionRef(absl::Span<const float> logits,
                                    const ops::SamplingParams& params,
                                    absl::Span<const int32_t> context,
                                    absl::Span<const int32_t> output) {
  const auto entries = CandidatesRef(AdjustRef(logits, params, context, output), params);
  double total = 0;
  for (const Entry& entry : entries) total += static_cast<double>(entry.weight);
  std::vector<double> distribution(logits.size());
  for (const Entry& entry : entries) {
    distribution[entry.id] = static_cast<double>(entry.weight) / total;
  }
  return distribution;
}

std::vector<double> LogProbabilitiesRef(absl::Span<const float> logits) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - max);
  std::vector<double> out;
  for (const float logit : logits) out.push_back(logit - max - std::log(sum));
  return out;
}

}  // namespace tokend::sampling
