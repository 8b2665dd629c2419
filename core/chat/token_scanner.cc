#include "core/chat/token_scanner.h"

#include <charconv>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

// Longest first.
constexpr absl::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }
bool IsNameByte(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Digits of `base`, with single underscores between them; 0: none.
size_t DigitsSize(absl::string_view source, int base) {
  size_t size = 0;
  while (size < source.size()) {
    const size_t digit = source[size] == '_' ? size + 1 : size;
    if (digit >= source.size() || (digit > size && size == 0)) break;
    const char c = absl::ascii_tolower(static_cast<unsigned char>(source[digit]));
    const int value = IsDigit(c) ? c - '0' : (c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99);
    if (value >= base) break;
    size = digit + 1;
  }
  return size;
}

std::string WithoutUnderscores(absl::string_view text) {
  std::string out;
  for (char c : text) {
    if (c != '_') out.push_back(c);
  }
  return out;
}

// Of a float's exponent, e.g. "e-3"; 0: none.
size_t ExponentSize(absl::string_view source) {
  if (source.empty() || (source[0] != 'e' && source[0] != 'E')) return 0;
  const size_t sign = source.size() > 1 && (source[1] == '+' || source[1] == '-') ? 1 : 0;
  const size_t digits = DigitsSize(source.substr(1 + sign), 10);
  return digits == 0 ? 0 : 1 + sign + digits;
}

absl::Status ScanInteger(absl::string_view digits, int base, Token* token) {
  token->type = Token::Type::kInt;
  const std::string plain = WithoutUnderscores(digits);
  const auto [end, error] =
      std::from_chars(plain.data(), plain.data() + plain.size(), token->integer, base);
  if (error != std::errc()) return Problem("an integer beyond 64 bits");
  return absl::OkStatus();
}

absl::Status ScanNumber(absl::string_view source, Token* token, size_t* size) {
  if (source.size() > 2 && source[0] == '0') {
    const char mark = absl::ascii_tolower(static_cast<unsigned char>(source[1]));
    const int base = mark == 'x' ? 16 : (mark == 'o' ? 8 : (mark == 'b' ? 2 : 0));
    const size_t digits = base == 0 ? 0 : DigitsSize(source.substr(2), base);
    if (digits > 0) {
      *size = 2 + digits;
      return ScanInteger(source.substr(2, digits), base, token);
    }
  }
  const size_t whole = DigitsSize(source, 10);
  size_t end = whole;
  if (end + 1 < source.size() && source[end] == '.' && IsDigit(source[end + 1])) {
    end += 1 + DigitsSize(source.substr(end + 1), 10);
  }
  end += ExponentSize(source.substr(end));
  *size = end;
  if (end == whole) return ScanInteger(source.substr(0, whole), 10, token);
  token->type = Token::Type::kFloat;
  if (!absl::SimpleAtod(WithoutUnderscores(source.substr(0, end)), &token->floating)) {
    return Problem("a number that cannot be read");
  }
  return absl::OkStatus();
}

// `escape` begins behind the backslash. Appends what it stands for and returns its size.
absl::StatusOr<size_t> Unescape(absl::string_view escape, std::string* out) {
  static constexpr absl::string_view kSimple = "\\'\"abfnrtv";
  static constexpr absl::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
  const char c = escape[0];
  if (c == '\n') return 1;  // the line goes on
  const size_t simple = kSimple.find(c);
  if (simple != absl::string_view::npos) {
    out->push_back(kValues[simple]);
    return 1;
  }
  const size_t digits = c == 'x' ? 2 : (c == 'u' ? 4 : (c == 'U' ? 8 : 0));
  uint32_t value = 0;
  if (digits > 0) {
    const absl::string_view hex = escape.substr(1, digits);
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (hex.size() < digits || end != hex.data() + digits) {
      return Problem("an escape in a string that lacks digits");
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      return Problem("an escape in a string that is no code point");
    }
    AppendUtf8(value, out);
    return 1 + digits;
  }
  size_t octal = 0;
  while (octal < 3 && octal < escape.size() && escape[octal] >= '0' && escape[octal] < '8') {
    value = value * 8 + static_cast<uint32_t>(escape[octal++] - '0');
  }
  if (octal > 0) {
    AppendUtf8(value, out);
    return octal;
  }
  if (c == 'N') return Problem("\\N escapes are not supported");
  out->push_back('\\');  // as Python keeps an escape that it does not know
  return 0;
}

absl::Status ScanString(absl::string_view source, Token* token, size_t* size) {
  token->type = Token::Type::kString;
  const char quote = source[0];
  for (size_t i = 1; i < source.size();) {
    if (source[i] == quote) {
      *size = i + 1;
      return absl::OkStatus();
    }
    if (source[i] == '\\' && i + 1 < source.size()) {
      TOKEND_ASSIGN_OR_RETURN(const size_t taken, Unescape(source.substr(i + 1), &token->text));
      i += 1 + taken;
    } else {
      token->text.push_back(source[i++]);
    }
  }
  return Problem("a string without its end");
}

}  // namespace

absl::Status ScanToken(absl::string_view source, Token* token, size_t* size) {
  const char c = source[0];
  if (IsDigit(c)) return ScanNumber(source, token, size);
  if (c == '\'' || c == '"') return ScanString(source, token, size);
  if (IsNameByte(c)) {
    token->type = Token::Type::kName;
    for (*size = 1; *size < source.size() && IsNameByte(source[*size]);) ++*size;
    token->text = std::string(source.substr(0, *size));
    return absl::OkStatus();
  }
  for (absl::string_view op : kOperators) {
    if (!absl::StartsWith(source, op)) continue;
    token->type = Token::Type::kOperator;
    token->text = std::string(op);
    *size = op.size();
    return absl::OkStatus();
  }
  return Problem(absl::StrCat("unexpected character '", std::string(1, c), "'"));
}

}  // namespace tokend::chat
