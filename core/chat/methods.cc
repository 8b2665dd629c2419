// Methods of values other than strings, and which there are.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/interpreter.h"

namespace tokend::chat {
namespace {

constexpr absl::string_view kStringMethods[] = {
    "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
    "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
    "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
    "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
    "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
    "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
    "swapcase",     "title",       "translate", "upper",      "zfill"};
constexpr absl::string_view kDictMethods[] = {"copy", "get", "items", "keys", "values", "fromkeys"};
constexpr absl::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr absl::string_view kListMethods[] = {"copy", "count", "index"};
constexpr absl::string_view kListChanges[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr absl::string_view kTupleMethods[] = {"count", "index"};
constexpr absl::string_view kLoopMethods[] = {"cycle", "changed"};

bool IsOneOf(absl::Span<const absl::string_view> names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::StatusOr<Value> CallDictMethod(const Value& self, absl::string_view name,
                                     const Arguments& arguments) {
  const Dict& dict = self.dict();
  if (name == "get") {
    TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"key", "default"}, 1));
    const Value* found = dict.Find(*bound[0]);
    if (found != nullptr) return *found;
    return bound[1] != nullptr ? *bound[1] : Value::None();
  }
  if (name == "fromkeys") return Problem("dict.fromkeys is not supported");
  TOKEND_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
  if (name == "copy") return self;
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries) {
    if (name == "keys") {
      items.push_back(key);
    } else if (name == "values") {
      items.push_back(value);
    } else {
      TOKEND_ASSIGN_OR_RETURN(Value pair, MakeList({key, value}, List::Shape::kTuple));
      items.push_back(std::move(pair));
    }
  }
  const List::Shape shape = name == "keys"
                                ? List::Shape::kKeys
                                : (name == "values" ? List::Shape::kValues : List::Shape::kItems);
  return MakeList(std::move(items), shape);
}

absl::StatusOr<Value> CallListMethod(const Value& self, absl::string_view name,
                                     const Arguments& arguments) {
  if (name == "copy") {
    TOKEND_RETURN_IF_ERROR(Bind(name, arguments, {}).status());
    return self;
  }
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"value"}, 1));
  const std::vector<Value>& items = self.list().items;
  const auto equals = [&](const Value& item) { return Equal(item, *bound[0]); };
  if (name == "count") return Value::Int(std::count_if(items.begin(), items.end(), equals));
  const auto found = std::find_if(items.begin(), items.end(), equals);
  if (found == items.end()) return Problem("the value is not in the list");
  return Value::Int(found - items.begin());
}

absl::StatusOr<Value> CallLoopMethod(const Value& self, absl::string_view name,
                                     const Arguments& arguments) {
  LoopState& loop = *self.loop();
  if (name == "cycle") {
    if (arguments.positional.empty()) return Problem("no items for cycling given");
    return arguments.positional[loop.index % arguments.positional.size()];
  }
  TOKEND_ASSIGN_OR_RETURN(Value now, MakeList(arguments.positional, List::Shape::kTuple));
  const bool changed = !loop.has_changed || !Equal(loop.last_changed, now);
  loop.has_changed = true;
  loop.last_changed = std::move(now);
  return Value::Bool(changed);
}

}  // namespace

MethodKind FindMethod(const Value& value, absl::string_view name) {
  const auto pick = [&](absl::Span<const absl::string_view> allowed,
                        absl::Span<const absl::string_view> forbidden) {
    if (IsOneOf(allowed, name)) return MethodKind::kAllowed;
    return IsOneOf(forbidden, name) ? MethodKind::kForbidden : MethodKind::kNone;
  };
  switch (value.kind()) {
    case Kind::kString:
      return pick(kStringMethods, {});
    case Kind::kDict:
      return pick(kDictMethods, kDictChanges);
    case Kind::kLoop:
      return pick(kLoopMethods, {});
    case Kind::kList:
      switch (value.list().shape) {
        case List::Shape::kList:
          return pick(kListMethods, kListChanges);
        case List::Shape::kTuple:
        case List::Shape::kGroup:
        case List::Shape::kRange:
          return pick(kTupleMethods, {});
        default:
          return MethodKind::kNone;
      }
    default:
      return MethodKind::kNone;
  }
}

absl::StatusOr<Value> CallMethod(Interpreter& interpreter, const Value& self,
                                 absl::string_view name, const Arguments& arguments) {
  switch (self.kind()) {
    case Kind::kString: {
      TOKEND_RETURN_IF_ERROR(interpreter.Spend(self.text().size() / 64));
      TOKEND_ASSIGN_OR_RETURN(Value value, CallStringMethod(self.text(), name, arguments));
      const bool markup = self.markup() && value.Is(Kind::kString);
      return std::move(value).WithMarkup(markup);
    }
    case Kind::kDict:
      return CallDictMethod(self, name, arguments);
    case Kind::kList:
      return CallListMethod(self, name, arguments);
    case Kind::kLoop:
      return CallLoopMethod(self, name, arguments);
    default:
      return Problem(absl::StrCat("'", TypeName(self), "' has no methods"));
  }
}

}  // namespace tokend::chat
