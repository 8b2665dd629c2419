#include "core/chat/split.h"

#include <algorithm>
#include <utility>

#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/limits.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

// Words between white space, from the left; the last is all that is left after `most` cuts.
std::vector<Range> Words(absl::string_view bytes, int64_t most) {
  std::vector<Range> words;
  for (size_t at = 0; words.size() <= kMaxElements;) {
    at += Stripped(bytes.substr(at), true, false).begin;
    if (at == bytes.size()) break;
    if (most == 0) {
      words.push_back({at, bytes.size()});
      break;
    }
    const size_t begin = at;
    while (at < bytes.size()) {
      const CodePoint point = FirstCodePoint(bytes.substr(at));
      if (IsSpace(point.value)) break;
      at += point.size;
    }
    words.push_back({begin, at});
    if (most > 0) --most;
  }
  return words;
}

std::vector<Range> Pieces(absl::string_view bytes, absl::string_view separator, int64_t most) {
  std::vector<Range> pieces;
  size_t begin = 0;
  while (most != 0 && pieces.size() <= kMaxElements) {
    const size_t at = bytes.find(separator, begin);
    if (at == absl::string_view::npos) break;
    pieces.push_back({begin, at});
    begin = at + separator.size();
    if (most > 0) --most;
  }
  pieces.push_back({begin, bytes.size()});
  return pieces;
}

std::vector<Range> PiecesFromRight(absl::string_view bytes, absl::string_view separator,
                                   int64_t most) {
  std::vector<Range> pieces;
  size_t end = bytes.size();
  while (most != 0 && pieces.size() <= kMaxElements) {
    if (end < separator.size()) break;
    const size_t at = bytes.rfind(separator, end - separator.size());
    if (at == absl::string_view::npos) break;
    pieces.push_back({at + separator.size(), end});
    end = at;
    if (most > 0) --most;
  }
  pieces.push_back({0, end});
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

// All words, the first of them joined again, with what stands before them, so that only `most` cuts
// are left.
std::vector<Range> WordsFromRight(absl::string_view bytes, int64_t most) {
  std::vector<Range> words = Words(bytes, -1);
  if (most < 0 || words.size() <= static_cast<size_t>(most)) return words;
  const size_t joined = words.size() - static_cast<size_t>(most);
  words[joined - 1].begin = 0;
  words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(joined) - 1);
  return words;
}

}  // namespace

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const absl::string_view bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size() && lines.size() <= kMaxElements;) {
    const CodePoint point = FirstCodePoint(bytes.substr(at));
    const size_t end = at;
    at += point.size;
    if (!IsLineEnd(point.value)) continue;
    if (point.value == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.Sub(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.Sub(begin, bytes.size()));
  return lines;
}

absl::StatusOr<Value> SplitMethod(const Text& self, absl::string_view name,
                                  const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"sep", "maxsplit"}));
  TOKEND_ASSIGN_OR_RETURN(const int64_t most, IntegerOr(bound[1], -1));
  const bool left = name == "split";
  std::vector<Range> ranges;
  if (bound[0] == nullptr || bound[0]->Is(Kind::kNone)) {
    ranges = left ? Words(self.bytes(), most) : WordsFromRight(self.bytes(), most);
  } else {
    TOKEND_ASSIGN_OR_RETURN(const Text separator, StringOf(*bound[0]));
    if (separator.empty()) return Problem("empty separator");
    ranges = left ? Pieces(self.bytes(), separator.bytes(), most)
                  : PiecesFromRight(self.bytes(), separator.bytes(), most);
  }
  std::vector<Value> parts;
  for (const Range& range : ranges)
    parts.push_back(Value::String(self.Sub(range.begin, range.end)));
  return MakeList(std::move(parts));
}

absl::StatusOr<Value> SplitLinesMethod(const Text& self, absl::string_view name,
                                       const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"keepends"}));
  std::vector<Value> lines;
  for (Text& line : SplitLines(self, TruthOr(bound[0], false))) {
    lines.push_back(Value::String(std::move(line)));
  }
  return MakeList(std::move(lines));
}

absl::StatusOr<Value> PartitionMethod(const Text& self, absl::string_view name,
                                      const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"sep"}, 1));
  TOKEND_ASSIGN_OR_RETURN(const Text separator, StringOf(*bound[0]));
  if (separator.empty()) return Problem("empty separator");
  const bool left = name == "partition";
  const size_t at =
      left ? self.bytes().find(separator.bytes()) : self.bytes().rfind(separator.bytes());
  const auto string = [](Text text) { return Value::String(std::move(text)); };
  std::vector<Value> parts;
  if (at != absl::string_view::npos) {
    const size_t end = at + separator.size();
    parts = {string(self.Sub(0, at)), string(self.Sub(at, end)),
             string(self.Sub(end, self.size()))};
  } else if (left) {
    parts = {string(self), string(Text()), string(Text())};
  } else {
    parts = {string(Text()), string(Text()), string(self)};
  }
  return MakeList(std::move(parts), List::Shape::kTuple);
}

}  // namespace tokend::chat
