#include "core/chat/lexer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/limits.h"
#include "core/chat/token_scanner.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

using Type = Token::Type;

class Lexer {
 public:
  explicit Lexer(absl::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      size_t open = source_.find('{', at_);
      while (open != absl::string_view::npos && !BeginsTag(open))
        open = source_.find('{', open + 1);
      if (open == absl::string_view::npos) {
        AddData(at_, source_.size());
        at_ = source_.size();
        break;
      }
      TOKEND_RETURN_IF_ERROR(ReadTag(open));
    }
    Add(Type::kEnd, source_.size());
    return std::move(tokens_);
  }

 private:
  bool BeginsTag(size_t at) const {
    return at + 1 < source_.size() && absl::StrContains("%{#", source_.substr(at + 1, 1));
  }
  char CharAt(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }
  absl::string_view Rest() const { return source_.substr(at_); }

  // The tag at `open`, and the data before it.
  absl::Status ReadTag(size_t open) {
    const char kind = source_[open + 1];
    AddDataBefore(open, kind != '{');
    const char sign = CharAt(open + 2);
    at_ = open + 2 + (sign == '-' || sign == '+' ? 1 : 0);
    if (kind == '#') return ReadComment(open);
    if (kind == '{') {
      Add(Type::kOutputBegin, open);
      return ReadInside(open, "}}", Type::kOutputEnd);
    }
    size_t raw_end = 0;
    if (MatchWordTag(at_, "raw", &raw_end)) return ReadRaw(open, raw_end);
    Add(Type::kBlockBegin, open);
    return ReadInside(open, "%}", Type::kBlockEnd);
  }

  // Data from at_ to the tag at `open`, with what the tag's sign, or lstrip_blocks, strips of it.
  void AddDataBefore(size_t open, bool lstrips) {
    const absl::string_view data = source_.substr(at_, open - at_);
    size_t end = data.size();
    const char sign = CharAt(open + 2);
    if (sign == '-') {
      end = Stripped(data, false, true).end;
    } else if (sign != '+' && lstrips) {
      const size_t newline = data.rfind('\n');
      const size_t line = newline == absl::string_view::npos ? 0 : newline + 1;
      const bool blank = Stripped(data.substr(line), true, false).begin + line == data.size();
      if (blank && (line > 0 || line_starting_)) end = line;
    }
    AddData(at_, at_ + end);
    line_starting_ = false;
  }

  absl::Status ReadComment(size_t open) {
    const size_t close = source_.find("#}", at_);
    if (close == absl::string_view::npos) return Fail(open, "a comment without its end");
    const char sign = close > at_ ? source_[close - 1] : '\0';
    at_ = close + 2;
    TrimAfterTag(sign, true);
    return absl::OkStatus();
  }

  // at_ stands behind a tag that ended with `sign` before its delimiter.
  void TrimAfterTag(char sign, bool trims_newline) {
    const size_t begin = at_;
    if (sign == '-') {
      at_ += Stripped(Rest(), true, false).begin;
    } else if (sign != '+' && trims_newline && CharAt(at_) == '\n') {
      ++at_;
    }
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }

  // Whether "WORD %}" stands at `at`; `end` is the offset of its "%}" or of the sign before it.
  bool MatchWordTag(size_t at, absl::string_view word, size_t* end) const {
    at += Stripped(source_.substr(at), true, false).begin;
    if (!absl::StartsWith(source_.substr(at), word)) return false;
    at += word.size();
    at += Stripped(source_.substr(at), true, false).begin;
    const size_t sign = CharAt(at) == '-' || CharAt(at) == '+' ? 1 : 0;
    if (source_.substr(std::min(at + sign, source_.size()), 2) != "%}") return false;
    *end = at;
    return true;
  }

  void LeaveWordTag(size_t end, bool trims_newline) {
    const char sign = source_[end];
    at_ = end + (sign == '%' ? 2 : 3);
    TrimAfterTag(sign, trims_newline);
  }

  absl::Status ReadRaw(size_t open, size_t raw_end) {
    LeaveWordTag(raw_end, false);
    for (size_t tag = source_.find("{%", at_); tag != absl::string_view::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = CharAt(tag + 2);
      size_t end = 0;
      if (!MatchWordTag(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0), "endraw", &end)) continue;
      AddDataBefore(tag, true);
      LeaveWordTag(end, true);
      return absl::OkStatus();
    }
    return Fail(open, "raw without endraw");
  }

  // The tokens of a tag up to `close`, that included.
  absl::Status ReadInside(size_t open, absl::string_view close, Type end_type) {
    std::string brackets;  // those still open
    while (true) {
      at_ += Stripped(Rest(), true, false).begin;
      if (Rest().empty()) return Fail(open, "a tag without its end");
      if (brackets.empty() && LeaveTag(close, end_type)) return absl::OkStatus();
      Token token;
      token.at = PositionOf(at_);
      size_t size = 0;
      const absl::Status scanned = ScanToken(Rest(), &token, &size);
      if (!scanned.ok()) return WithPosition(scanned, token.at);
      if (token.type == Type::kOperator) {
        const absl::Status balanced = Balance(token.text[0], &brackets);
        if (!balanced.ok()) return WithPosition(balanced, token.at);
      }
      tokens_.push_back(std::move(token));
      at_ += size;
    }
  }

  bool LeaveTag(absl::string_view close, Type end_type) {
    const char sign = CharAt(at_);
    const bool signs = sign == '-' || (sign == '+' && end_type == Type::kBlockEnd);
    const size_t delimiter = at_ + (signs ? 1 : 0);
    if (source_.substr(std::min(delimiter, source_.size()), 2) != close) return false;
    Add(end_type, at_);
    at_ = delimiter + 2;
    TrimAfterTag(signs ? sign : '\0', end_type == Type::kBlockEnd);
    return true;
  }

  static absl::Status Balance(char c, std::string* brackets) {
    static constexpr absl::string_view kOpening = "([{";
    static constexpr absl::string_view kClosing = ")]}";
    if (absl::StrContains(kOpening, std::string(1, c))) {
      brackets->push_back(c);
      return absl::OkStatus();
    }
    const size_t closing = kClosing.find(c);
    if (closing == absl::string_view::npos) return absl::OkStatus();
    if (brackets->empty() || brackets->back() != kOpening[closing]) {
      return Problem(absl::StrCat("unexpected '", std::string(1, c), "'"));
    }
    brackets->pop_back();
    return absl::OkStatus();
  }

  void AddData(size_t begin, size_t end) {
    if (begin == end) return;
    Add(Type::kData, begin);
    tokens_.back().text = std::string(source_.substr(begin, end - begin));
  }

  void Add(Type type, size_t at) {
    Token& token = tokens_.emplace_back();
    token.type = type;
    token.at = PositionOf(at);
  }

  // Offsets come in order, but for those of tags whose end is missing, so counting goes on from the
  // last.
  Position PositionOf(size_t at) {
    if (at < counted_) {
      counted_ = 0;
      position_ = {1, 1};
    }
    for (; counted_ < at; ++counted_) {
      const auto byte = static_cast<unsigned char>(source_[counted_]);
      if (byte == '\n') {
        position_ = {position_.line + 1, 1};
      } else if ((byte & 0xC0) != 0x80) {
        ++position_.column;
      }
    }
    return position_;
  }

  absl::Status Fail(size_t at, absl::string_view problem) {
    return TemplateFailed(PositionOf(at), problem);
  }

  const absl::string_view source_;
  size_t at_ = 0;
  bool line_starting_ = true;  // nothing but a newline stands before at_
  std::vector<Token> tokens_;
  size_t counted_ = 0;  // bytes before position_
  Position position_{1, 1};
};

}  // namespace

std::string NormalisedSource(absl::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else if (i + 1 >= source.size() || source[i + 1] != '\n') {
      out.push_back('\n');
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

absl::StatusOr<std::vector<Token>> Tokenise(absl::string_view source) {
  if (source.size() > kMaxSourceBytes) return TemplateFailed({1, 1}, "the template is too long");
  return Lexer(source).Run();
}

}  // namespace tokend::chat
