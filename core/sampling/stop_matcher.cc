#include "core/sampling/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace tokend::sampling {
namespace {

size_t Step(const std::string& text, const std::vector<uint32_t>& fallback, size_t matched,
            char next) {
  while (matched > 0 && text[matched] != next) matched = fallback[matched - 1];
  return text[matched] == next ? matched + 1 : 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> strings) {
  for (std::string& string : strings) {
    Pattern pattern;
    pattern.text = std::move(string);
    pattern.fallback.resize(pattern.text.size());
    for (size_t i = 1; i < pattern.text.size(); ++i) {
      pattern.fallback[i] = static_cast<uint32_t>(
          Step(pattern.text, pattern.fallback, pattern.fallback[i - 1], pattern.text[i]));
    }
    patterns_.push_back(std::move(pattern));
  }
}

std::optional<StopMatcher::Match> StopMatcher::Feed(absl::string_view bytes) {
  for (const char byte : bytes) {
    ++fed_;
    held_ = 0;
    std::optional<Match> match;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& pattern = patterns_[i];
      if (pattern.text.empty()) continue;
      pattern.matched = Step(pattern.text, pattern.fallback, pattern.matched, byte);
      held_ = std::max(held_, pattern.matched);
      if (pattern.matched < pattern.text.size()) continue;
      const size_t begin = fed_ - pattern.text.size();
      if (!match.has_value() || begin < match->begin) match = Match{i, begin};
    }
    if (match.has_value()) return match;
  }
  return std::nullopt;
}

}  // namespace tokend::sampling
