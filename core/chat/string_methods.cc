// Methods of Python's str.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/limits.h"
#include "core/chat/python_text.h"
#include "core/chat/split.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

using Method = absl::StatusOr<Value> (*)(const Text& self, absl::string_view name,
                                         const Arguments& arguments);

absl::StatusOr<Value> Strip(const Text& self, absl::string_view name, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"chars"}));
  const bool left = name != "rstrip";
  const bool right = name != "lstrip";
  Range range;
  if (bound[0] == nullptr || bound[0]->Is(Kind::kNone)) {
    range = Stripped(self.bytes(), left, right);
  } else {
    TOKEND_ASSIGN_OR_RETURN(const Text characters, StringOf(*bound[0]));
    range = StrippedOf(self.bytes(), characters.bytes(), left, right);
  }
  return Value::String(self.Sub(range.begin, range.end));
}

absl::StatusOr<Value> Affix(const Text& self, absl::string_view name, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"affix"}, 1));
  const bool at_start = name == "startswith";
  std::vector<Value> affixes = {*bound[0]};
  if (bound[0]->Is(Kind::kList) && bound[0]->list().shape == List::Shape::kTuple) {
    affixes = bound[0]->list().items;
  }
  for (const Value& affix : affixes) {
    TOKEND_ASSIGN_OR_RETURN(const Text text, StringOf(affix));
    if (at_start ? absl::StartsWith(self.bytes(), text.bytes())
                 : absl::EndsWith(self.bytes(), text.bytes())) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

absl::StatusOr<Value> RemoveAffix(const Text& self, absl::string_view name,
                                  const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"affix"}, 1));
  TOKEND_ASSIGN_OR_RETURN(const Text affix, StringOf(*bound[0]));
  const size_t size = affix.size();
  if (name == "removeprefix" && absl::StartsWith(self.bytes(), affix.bytes())) {
    return Value::String(self.Sub(size, self.size()));
  }
  if (name == "removesuffix" && absl::EndsWith(self.bytes(), affix.bytes())) {
    return Value::String(self.Sub(0, self.size() - size));
  }
  return Value::String(self);
}

absl::StatusOr<Value> Replace(const Text& self, absl::string_view name,
                              const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"old", "new", "count"}, 2));
  TOKEND_ASSIGN_OR_RETURN(const Text old, StringOf(*bound[0]));
  TOKEND_ASSIGN_OR_RETURN(const Text by, StringOf(*bound[1]));
  TOKEND_ASSIGN_OR_RETURN(const int64_t count, IntegerOr(bound[2], -1));
  TOKEND_ASSIGN_OR_RETURN(Text text, ReplaceAll(self, old, by, count));
  return Value::String(std::move(text));
}

// Each code point up or down, by what stands before it.
absl::StatusOr<Value> ChangeCase(const Text& self, absl::string_view name,
                                 const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  TextBuilder builder;
  bool after_letter = false;
  for (size_t at = 0; at < self.size() && !builder.overflowed();) {
    const CodePoint point = FirstCodePoint(self.bytes().substr(at));
    const bool letter = IsUpper(point.value) || IsLower(point.value) || IsAlpha(point.value);
    bool up = name == "upper";
    if (name == "capitalize") up = at == 0;
    if (name == "title") up = !after_letter;
    if (name == "swapcase") up = IsLower(point.value);
    const Text one = self.Sub(at, at + point.size);
    TOKEND_ASSIGN_OR_RETURN(const Text changed, up ? ToUpper(one) : ToLower(one));
    builder.Append(changed);
    after_letter = letter;
    at += point.size;
  }
  TOKEND_ASSIGN_OR_RETURN(Text text, builder.Build());
  return Value::String(std::move(text));
}

absl::StatusOr<Value> AllOfCase(const Text& self, absl::string_view name,
                                const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  TOKEND_ASSIGN_OR_RETURN(const Text wanted, name == "isupper" ? ToUpper(self) : ToLower(self));
  TOKEND_ASSIGN_OR_RETURN(const Text other, name == "isupper" ? ToLower(self) : ToUpper(self));
  return Value::Bool(wanted.bytes() == self.bytes() && other.bytes() != self.bytes());
}

bool IsOfClass(absl::string_view name, uint32_t c) {
  const bool digit = c >= '0' && c <= '9';
  if (name == "isspace") return IsSpace(c);
  if (name == "isalpha") return IsAlpha(c) && !digit;
  if (name == "isalnum") return IsAlpha(c) || digit;
  if (name == "isascii") return c < 0x80;
  if (name == "isprintable") return IsPrintable(c);
  return digit;  // isdigit, isdecimal, isnumeric
}

absl::StatusOr<Value> AllOfClass(const Text& self, absl::string_view name,
                                 const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  if (self.empty()) return Value::Bool(name == "isascii" || name == "isprintable");
  for (size_t at = 0; at < self.size();) {
    const CodePoint point = FirstCodePoint(self.bytes().substr(at));
    if (!IsOfClass(name, point.value)) return Value::Bool(false);
    at += point.size;
  }
  return Value::Bool(true);
}

// find, rfind, index, rindex and count, in all of the string.
absl::StatusOr<Value> Find(const Text& self, absl::string_view name, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"sub", "start", "end"}, 1));
  TOKEND_ASSIGN_OR_RETURN(const Text wanted, StringOf(*bound[0]));
  const Value none = Value::None();
  TOKEND_ASSIGN_OR_RETURN(const Value part,
                          GetSlice(Value::String(self), bound[1] == nullptr ? none : *bound[1],
                                   bound[2] == nullptr ? none : *bound[2], none));
  const absl::string_view bytes = part.text().bytes();
  if (name == "count") {
    if (wanted.empty()) return Value::Int(static_cast<int64_t>(CountCodePoints(bytes)) + 1);
    int64_t count = 0;
    for (size_t at = bytes.find(wanted.bytes()); at != absl::string_view::npos;
         at = bytes.find(wanted.bytes(), at + wanted.size())) {
      ++count;
    }
    return Value::Int(count);
  }
  const size_t at = name[0] == 'r' ? bytes.rfind(wanted.bytes()) : bytes.find(wanted.bytes());
  if (at == absl::string_view::npos) {
    if (absl::StrContains(name, "index")) return Problem("substring not found");
    return Value::Int(-1);
  }
  int64_t offset = 0;
  if (bound[1] != nullptr && !bound[1]->Is(Kind::kNone)) {
    const auto size = static_cast<int64_t>(CountCodePoints(self.bytes()));
    TOKEND_ASSIGN_OR_RETURN(offset, IntegerOr(bound[1], 0));
    if (offset < 0) offset = std::max<int64_t>(0, offset + size);
  }
  return Value::Int(offset + static_cast<int64_t>(CountCodePoints(bytes.substr(0, at))));
}

absl::StatusOr<Value> Join(const Text& self, absl::string_view name, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"iterable"}, 1));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(*bound[0]));
  TextBuilder builder;
  for (size_t i = 0; i < items.size(); ++i) {
    TOKEND_ASSIGN_OR_RETURN(const Text text, StringOf(items[i]));
    if (i > 0) builder.Append(self);
    builder.Append(text);
  }
  TOKEND_ASSIGN_OR_RETURN(Text text, builder.Build());
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Justify(const Text& self, absl::string_view name,
                              const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"width", "fillchar"}, 1));
  TOKEND_ASSIGN_OR_RETURN(const int64_t width, IntegerOr(bound[0], 0));
  Text fill(name == "zfill" ? "0" : " ", true);
  if (bound[1] != nullptr) {
    TOKEND_ASSIGN_OR_RETURN(fill, StringOf(*bound[1]));
    if (CountCodePoints(fill.bytes()) != 1) return Problem("wanted one fill character");
  }
  const auto size = static_cast<int64_t>(CountCodePoints(self.bytes()));
  const int64_t padding = std::max<int64_t>(0, width - size);
  int64_t before = name == "ljust" ? 0 : padding;
  if (name == "center") before = padding / 2 + (padding & width & 1);
  const bool sign =
      name == "zfill" && !self.empty() && (self.bytes()[0] == '-' || self.bytes()[0] == '+');
  TextBuilder builder;
  if (sign) builder.Append(self, 0, 1);
  builder.Repeat(fill, static_cast<size_t>(before));
  builder.Append(self, sign ? 1 : 0, self.size());
  builder.Repeat(fill, static_cast<size_t>(padding - before));
  TOKEND_ASSIGN_OR_RETURN(Text text, builder.Build());
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Format(const Text& self, absl::string_view, const Arguments& arguments) {
  return FormatBraces(self, arguments);
}

const absl::flat_hash_map<absl::string_view, Method>& Methods() {
  static const auto* const methods = new absl::flat_hash_map<absl::string_view, Method>({
      {"strip", Strip},
      {"lstrip", Strip},
      {"rstrip", Strip},
      {"startswith", Affix},
      {"endswith", Affix},
      {"removeprefix", RemoveAffix},
      {"removesuffix", RemoveAffix},
      {"replace", Replace},
      {"upper", ChangeCase},
      {"lower", ChangeCase},
      {"casefold", ChangeCase},
      {"capitalize", ChangeCase},
      {"title", ChangeCase},
      {"swapcase", ChangeCase},
      {"isupper", AllOfCase},
      {"islower", AllOfCase},
      {"isspace", AllOfClass},
      {"isalpha", AllOfClass},
      {"isalnum", AllOfClass},
      {"isascii", AllOfClass},
      {"isprintable", AllOfClass},
      {"isdigit", AllOfClass},
      {"isdecimal", AllOfClass},
      {"isnumeric", AllOfClass},
      {"find", Find},
      {"rfind", Find},
      {"index", Find},
      {"rindex", Find},
      {"count", Find},
      {"join", Join},
      {"center", Justify},
      {"ljust", Justify},
      {"rjust", Justify},
      {"zfill", Justify},
      {"format", Format},
      {"split", SplitMethod},
      {"rsplit", SplitMethod},
      {"splitlines", SplitLinesMethod},
      {"partition", PartitionMethod},
      {"rpartition", PartitionMethod},
  });
  return *methods;
}

}  // namespace

absl::StatusOr<Value> CallStringMethod(const Text& self, absl::string_view name,
                                       const Arguments& arguments) {
  const auto method = Methods().find(name);
  if (method == Methods().end()) {
    return Problem(absl::StrCat("the string method '", name, "' is not supported"));
  }
  return method->second(self, name, arguments);
}

}  // namespace tokend::chat
