#include "core/chat/text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/chat/errors.h"
#include "core/chat/limits.h"

namespace tokend::chat {

Text::Text(std::string bytes, bool trusted) {
  if (bytes.empty()) return;
  auto rep = std::make_shared<Rep>();
  rep->runs.push_back({bytes.size(), trusted});
  rep->bytes = std::move(bytes);
  rep_ = std::move(rep);
}

absl::string_view Text::bytes() const {
  return rep_ == nullptr ? absl::string_view() : absl::string_view(rep_->bytes);
}

bool Text::IsTrusted(size_t index) const {
  bool trusted = false;
  ForEachRun(index, index + 1, [&](absl::string_view, bool run) { trusted = run; });
  return trusted;
}

Text Text::Sub(size_t begin, size_t end) const {
  if (begin == 0 && end == size()) return *this;
  Text text;
  if (begin >= end) return text;
  auto rep = std::make_shared<Rep>();
  rep->bytes = std::string(bytes().substr(begin, end - begin));
  size_t at = 0;
  ForEachRun(begin, end, [&](absl::string_view run, bool trusted) {
    at += run.size();
    rep->runs.push_back({at, trusted});
  });
  text.rep_ = std::move(rep);
  return text;
}

void TextBuilder::Append(absl::string_view bytes, bool trusted) {
  if (bytes.empty()) return;
  if (overflowed_ || rep_.bytes.size() + bytes.size() > kMaxStringBytes) {
    overflowed_ = true;
    return;
  }
  rep_.bytes.append(bytes.data(), bytes.size());
  if (rep_.runs.empty() || rep_.runs.back().trusted != trusted) rep_.runs.push_back({0, trusted});
  rep_.runs.back().end = rep_.bytes.size();
}

void TextBuilder::Append(const Text& text, size_t begin, size_t end) {
  text.ForEachRun(begin, end,
                  [this](absl::string_view run, bool trusted) { Append(run, trusted); });
}

void TextBuilder::Repeat(const Text& text, size_t count) {
  if (text.empty()) return;
  for (size_t i = 0; i < count && !overflowed_; ++i) Append(text);
}

absl::StatusOr<Text> TextBuilder::Build() {
  if (overflowed_) {
    return Problem(absl::StrCat("a string of more than ", kMaxStringBytes, " bytes"));
  }
  Text text;
  if (!rep_.bytes.empty()) text.rep_ = std::make_shared<const Text::Rep>(std::move(rep_));
  rep_ = {};
  return text;
}

}  // namespace tokend::chat
