#ifndef TOKEND_CORE_CHAT_TEXT_H_
#define TOKEND_CORE_CHAT_TEXT_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tokend::chat {

// An immutable string that knows of each byte whether it is trusted: written by the template (or
// given to it as one of the model's special tokens), not by whoever wrote the messages. Only
// trusted bytes may become special tokens. Copies share the bytes.
class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool trusted);

  absl::string_view bytes() const;
  size_t size() const { return rep_ == nullptr ? 0 : rep_->bytes.size(); }
  bool empty() const { return size() == 0; }
  bool IsTrusted(size_t index) const;
  // Bytes [begin, end).
  Text Sub(size_t begin, size_t end) const;

  // Calls f(bytes, trusted) for each longest run of equal trust within [begin, end), in order.
  template <typename F>
  void ForEachRun(size_t begin, size_t end, F f) const {
    if (rep_ == nullptr) return;
    const absl::string_view all = bytes();
    auto run = std::upper_bound(rep_->runs.begin(), rep_->runs.end(), begin,
                                [](size_t at, const Run& other) { return at < other.end; });
    for (; begin < end && run != rep_->runs.end(); ++run) {
      const size_t stop = std::min(end, run->end);
      f(all.substr(begin, stop - begin), run->trusted);
      begin = stop;
    }
  }

 private:
  friend class TextBuilder;
  struct Run {
    size_t end = 0;  // the run's bytes are those from the run before up to here
    bool trusted = false;
  };
  struct Rep {
    std::string bytes;
    std::vector<Run> runs;  // neighbours differ in trust; none is empty
  };

  std::shared_ptr<const Rep> rep_;  // nullptr: empty
};

// Appends until kMaxStringBytes; what is beyond is an error of Build.
class TextBuilder {
 public:
  void Append(absl::string_view bytes, bool trusted);
  void Append(const Text& text) { Append(text, 0, text.size()); }
  void Append(const Text& text, size_t begin, size_t end);
  // `count` times.
  void Repeat(const Text& text, size_t count);

  size_t size() const { return rep_.bytes.size(); }
  bool overflowed() const { return overflowed_; }

  // Empties the builder. Error: Problem (too long).
  absl::StatusOr<Text> Build();

 private:
  Text::Rep rep_;
  bool overflowed_ = false;
};

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_TEXT_H_
