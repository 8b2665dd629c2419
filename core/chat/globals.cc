// Functions that a template can call by name.
#include <algorithm>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/interpreter.h"
#include "core/chat/limits.h"
#include "core/chat/python_text.h"

namespace tokend::chat {
namespace {

using Function = absl::StatusOr<Value> (*)(Interpreter& interpreter, const Arguments& arguments);

absl::StatusOr<Value> RangeFunction(Interpreter& interpreter, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("range", arguments, {"start", "stop", "step"}, 1));
  int64_t start = 0;
  TOKEND_ASSIGN_OR_RETURN(int64_t stop, IntegerOr(bound[0], 0));
  if (bound[1] != nullptr) {
    start = stop;
    TOKEND_ASSIGN_OR_RETURN(stop, IntegerOr(bound[1], 0));
  }
  TOKEND_ASSIGN_OR_RETURN(const int64_t step, IntegerOr(bound[2], 1));
  if (step == 0) return Problem("range() arg 3 must not be zero");
  const bool trusted = std::all_of(bound.begin(), bound.end(), [](const Value* value) {
    return value == nullptr || value->trusted();
  });
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (items.size() >= static_cast<size_t>(kMaxRange)) return Problem("Range too big.");
    items.push_back(Value::Int(i).WithTrust(trusted));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  TOKEND_RETURN_IF_ERROR(interpreter.Spend(items.size()));
  return MakeList(std::move(items), List::Shape::kRange);
}

// Entries of mappings given by position, then those by name.
absl::StatusOr<std::vector<std::pair<Value, Value>>> Entries(const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> entries;
  for (const Value& more : arguments.positional) {
    if (more.Is(Kind::kDict)) {
      entries.insert(entries.end(), more.dict().entries.begin(), more.dict().entries.end());
      continue;
    }
    TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> pairs, Elements(more));
    for (const Value& pair : pairs) {
      TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> parts, Elements(pair));
      if (parts.size() != 2) return Problem("wanted pairs of a key and a value");
      entries.emplace_back(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    // It may come from a message, through **.
    entries.emplace_back(Value::String(name, false), value);
  }
  return entries;
}

absl::StatusOr<Value> DictFunction(Interpreter&, const Arguments& arguments) {
  if (arguments.positional.size() > 1) return Problem("dict expected at most 1 argument");
  TOKEND_ASSIGN_OR_RETURN(auto entries, Entries(arguments));
  return MakeDict(std::move(entries));
}

absl::StatusOr<Value> NamespaceFunction(Interpreter& interpreter, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(auto entries, Entries(arguments));
  Namespace* const space = interpreter.NewNamespace();
  for (auto& [key, value] : entries) {
    TOKEND_ASSIGN_OR_RETURN(const Text name, StringOf(key));
    space->Set(name.bytes(), std::move(value));
  }
  return Value::Of(space);
}

absl::StatusOr<Value> RaiseException(Interpreter&, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("raise_exception", arguments, {"message"}, 1));
  TOKEND_ASSIGN_OR_RETURN(const Text message, Str(*bound[0]));
  return Problem(message.bytes());
}

absl::StatusOr<Value> StrftimeNow(Interpreter& interpreter, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("strftime_now", arguments, {"format"}, 1));
  TOKEND_ASSIGN_OR_RETURN(const Text format, StringOf(*bound[0]));
  if (format.size() > 256) return Problem("a date format that is too long");
  const absl::CivilSecond now = interpreter.now();
  std::tm fields = {};
  fields.tm_year = static_cast<int>(now.year() - 1900);
  fields.tm_mon = now.month() - 1;
  fields.tm_mday = now.day();
  fields.tm_hour = now.hour();
  fields.tm_min = now.minute();
  fields.tm_sec = now.second();
  fields.tm_wday = (static_cast<int>(absl::GetWeekday(now)) + 1) % 7;  // from Monday to Sunday
  fields.tm_yday = absl::GetYearDay(now) - 1;
  fields.tm_isdst = -1;
  char buffer[2048];
  const std::string pattern(format.bytes());
  const size_t size = std::strftime(buffer, sizeof(buffer), pattern.c_str(), &fields);
  const bool trusted = format.empty() || format.IsTrusted(0);
  return Value::String(absl::string_view(buffer, size), trusted);
}

struct Named {
  absl::string_view name;
  Function function;
};

constexpr Named kFunctions[] = {
    {"range", RangeFunction},         {"dict", DictFunction},
    {"namespace", NamespaceFunction}, {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
};

Function FindFunction(absl::string_view name) {
  for (const Named& named : kFunctions) {
    if (named.name == name) return named.function;
  }
  return nullptr;
}

}  // namespace

bool IsGlobalFunction(absl::string_view name) { return FindFunction(name) != nullptr; }

absl::StatusOr<Value> CallFunction(Interpreter& interpreter, absl::string_view name,
                                   const Arguments& arguments) {
  return FindFunction(name)(interpreter, arguments);
}

}  // namespace tokend::chat
