#include "core/sampling/candidates.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "core/base/check.h"

namespace tokend::sampling {
namespace {

using ops::kForbiddenKey;
using ops::OrderKey;
using ops::OrderOf;

// Four floats that gcc and clang keep in one register.
using Lanes [[gnu::vector_size(16)]] = float;
constexpr size_t kLanes = 4;
constexpr size_t kChains = 4;  // independent chains of operations
constexpr size_t kBlock = 8 * kChains * kLanes;
using Poison = std::array<Lanes, kChains>;

bool Before(const Candidate& a, const Candidate& b) { return a.order > b.order; }

// The largest of kBlock floats. `poison` becomes NaN if one is not finite.
float ScanBlock(const float* block, Poison& poison) {
  std::array<Lanes, kChains> max;
  std::memcpy(max.data(), block, sizeof(max));
  for (size_t row = 0; row < kBlock; row += kChains * kLanes) {
    for (size_t chain = 0; chain < kChains; ++chain) {
      Lanes x;
      std::memcpy(&x, block + row + chain * kLanes, sizeof(x));
      max[chain] = x > max[chain] ? x : max[chain];
      poison[chain] += x * 0.0f;
    }
  }
  for (size_t chain = 1; chain < kChains; ++chain) {
    max[0] = max[chain] > max[0] ? max[chain] : max[0];
  }
  return std::max(std::max(max[0][0], max[0][1]), std::max(max[0][2], max[0][3]));
}

bool IsClean(const Poison& poison) {
  for (const Lanes& lanes : poison) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      if (lanes[lane] != 0) return false;
    }
  }
  return true;
}

}  // namespace

bool LogitScan::Start(absl::Span<const float> logits) {
  logits_ = logits;
  block_max_.resize((logits.size() + kBlock - 1) / kBlock);
  Poison poison = {};
  const size_t whole = logits.size() / kBlock;
  for (size_t block = 0; block < whole; ++block) {
    block_max_[block] = OrderKey(ScanBlock(logits.data() + block * kBlock, poison));
  }
  if (const auto rest = logits.subspan(whole * kBlock); !rest.empty()) {
    std::array<float, kBlock> padded;
    padded.fill(rest[0]);
    std::copy(rest.begin(), rest.end(), padded.begin());
    block_max_[whole] = OrderKey(ScanBlock(padded.data(), poison));
  }
  return IsClean(poison);
}

int32_t LogitScan::Argmax() const {
  const auto best = std::max_element(block_max_.begin(), block_max_.end());
  if (best == block_max_.end() || *best == kForbiddenKey) return -1;
  size_t i = static_cast<size_t>(best - block_max_.begin()) * kBlock;
  while (OrderKey(logits_[i]) != *best) ++i;
  return static_cast<int32_t>(i);
}

void LogitScan::Largest(size_t count, std::vector<Candidate>* out) {
  // As many blocks as wanted tokens have a maximum of at least the count-th
  // largest one, so that many tokens do.
  int32_t least = kForbiddenKey;
  if (count <= block_max_.size()) {
    scratch_ = block_max_;
    const auto nth = scratch_.begin() + static_cast<std::ptrdiff_t>(count) - 1;
    std::nth_element(scratch_.begin(), nth, scratch_.end(), std::greater<>());
    least = *nth;
  }
  Collect(least, out);
  if (out->size() <= count) return;
  const auto last = out->begin() + static_cast<std::ptrdiff_t>(count) - 1;
  std::nth_element(out->begin(), last, out->end(), Before);
  // A tie has the same key as the last, whatever its id.
  const uint64_t tie = last->order & ~uint64_t{0xffffffff};
  const auto end =
      std::partition(last + 1, out->end(), [tie](const Candidate& c) { return c.order >= tie; });
  out->erase(end, out->end());
}

void LogitScan::AtLeast(float least, std::vector<Candidate>* out) const {
  Collect(OrderKey(least), out);
}

void LogitScan::Collect(int32_t least_key, std::vector<Candidate>* out) const {
  out->clear();
  const int32_t least = std::max(least_key, kForbiddenKey + 1);
  for (size_t block = 0; block < block_max_.size(); ++block) {
    if (block_max_[block] < least) continue;
    const size_t end = std::min((block + 1) * kBlock, logits_.size());
    for (size_t i = block * kBlock; i < end; ++i) {
      const int32_t key = OrderKey(logits_[i]);
      if (key >= least) out->push_back({OrderOf(key, static_cast<int32_t>(i)), 0});
    }
  }
}

size_t SelectByWeight(absl::Span<Candidate> candidates, uint64_t target) {
  constexpr size_t kSmall = 32;
  size_t begin = 0;
  size_t end = candidates.size();
  // Invariant: the wanted one is in [begin, end), and `target` counts from begin.
  while (end - begin > kSmall) {
    // The mass is mostly at the front: split off an eighth.
    const size_t middle = begin + (end - begin) / 8;
    std::nth_element(candidates.begin() + begin, candidates.begin() + middle,
                     candidates.begin() + end, Before);
    uint64_t front = 0;
    for (size_t i = begin; i < middle; ++i) front += candidates[i].weight;
    if (target < front) {
      end = middle;
    } else {
      target -= front;
      begin = middle;
    }
  }
  std::sort(candidates.begin() + begin, candidates.begin() + end, Before);
  for (size_t i = begin; i < end; ++i) {
    if (target < candidates[i].weight) return i;
    target -= candidates[i].weight;
  }
  TOKEND_CHECK(false && "target is not below the sum of the weights");
  return 0;
}

}  // namespace tokend::sampling
