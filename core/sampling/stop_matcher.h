#ifndef TOKEND_CORE_SAMPLING_STOP_MATCHER_H_
#define TOKEND_CORE_SAMPLING_STOP_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace tokend::sampling {

// Finds the first stop string in a stream of bytes, however the bytes are cut,
// and says how many must wait because they may be the start of one. One stream,
// one thread.
class StopMatcher {
 public:
  struct Match {
    size_t string = 0;  // its index
    size_t begin = 0;   // offset of its first byte in the stream
  };

  // Empty strings never match.
  explicit StopMatcher(std::vector<std::string> strings);

  // The match that ends first; of those that end together the longest. Bytes
  // after it are not looked at, and nothing may be fed after it.
  std::optional<Match> Feed(absl::string_view bytes);

  // Bytes fed without a match so far, and how many of the newest are the longest
  // start of a stop string. The others can be sent: no later match begins there.
  size_t fed() const { return fed_; }
  size_t held() const { return held_; }

  const std::string& string(size_t index) const { return patterns_[index].text; }

 private:
  // Knuth, Morris and Pratt 1977, "Fast pattern matching in strings".
  struct Pattern {
    std::string text;
    // fallback[i]: length of the longest proper start of text[0, i] that ends it.
    std::vector<uint32_t> fallback;
    size_t matched = 0;
  };

  std::vector<Pattern> patterns_;
  size_t fed_ = 0;
  size_t held_ = 0;
};

}  // namespace tokend::sampling

#endif  // TOKEND_CORE_SAMPLING_STOP_MATCHER_H_
