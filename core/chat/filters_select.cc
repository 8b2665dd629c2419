// Filters that call another filter or test on each item.
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/interpreter.h"
#include "core/chat/item_path.h"

namespace tokend::chat {
namespace {

// The rest of a filter's arguments: a test's or filter's name and what it gets.
struct Applied {
  std::string name;
  Arguments arguments;
};

absl::StatusOr<Applied> AppliedFrom(const Arguments& arguments, size_t first) {
  Applied applied;
  if (arguments.positional.size() <= first) return applied;
  TOKEND_ASSIGN_OR_RETURN(const Text name, StringOf(arguments.positional[first]));
  applied.name = std::string(name.bytes());
  applied.arguments.positional.assign(
      arguments.positional.begin() + static_cast<std::ptrdiff_t>(first) + 1,
      arguments.positional.end());
  applied.arguments.named = arguments.named;
  return applied;
}

// These filters take whatever is false, None included, as no items.
absl::StatusOr<std::vector<Value>> ItemsOf(const Value& input) {
  return IsTrue(input) ? Elements(input) : std::vector<Value>();
}

// Items whose value at `path` passes the test (or is true, without one) as `wanted` says.
absl::StatusOr<Value> Chosen(Interpreter& interpreter, const Value& input, const ItemPath& path,
                             const Applied& applied, bool wanted) {
  Test test = nullptr;
  if (!applied.name.empty()) {
    test = FindTest(applied.name);
    if (test == nullptr) return Problem(absl::StrCat("no test named '", applied.name, "'"));
  }
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(input));
  std::vector<Value> chosen;
  for (const Value& item : items) {
    TOKEND_RETURN_IF_ERROR(interpreter.Spend(1));
    TOKEND_ASSIGN_OR_RETURN(const Value value, path.Get(item));
    bool passes = IsTrue(value);
    if (test != nullptr) {
      TOKEND_ASSIGN_OR_RETURN(passes, test(interpreter, value, applied.arguments));
    }
    if (passes == wanted) chosen.push_back(item);
  }
  return MakeList(std::move(chosen), List::Shape::kIterator);
}

template <bool kWanted>
absl::StatusOr<Value> Select(Interpreter& interpreter, const Value& input,
                             const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const ItemPath path, ItemPath::Parse(nullptr));
  TOKEND_ASSIGN_OR_RETURN(const Applied applied, AppliedFrom(arguments, 0));
  return Chosen(interpreter, input, path, applied, kWanted);
}

template <bool kWanted>
absl::StatusOr<Value> SelectAttribute(Interpreter& interpreter, const Value& input,
                                      const Arguments& arguments) {
  if (arguments.positional.empty()) return Problem("Missing parameter for attribute name");
  TOKEND_ASSIGN_OR_RETURN(const ItemPath path, ItemPath::Parse(&arguments.positional[0]));
  TOKEND_ASSIGN_OR_RETURN(const Applied applied, AppliedFrom(arguments, 1));
  return Chosen(interpreter, input, path, applied, kWanted);
}

absl::StatusOr<Value> MapPath(const Value& input, const Arguments& arguments) {
  const Value* attribute = nullptr;
  const Value* fallback = nullptr;
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute") {
      attribute = &value;
    } else if (name == "default") {
      fallback = &value;
    } else {
      return Problem(absl::StrCat("Unexpected keyword argument '", name, "'"));
    }
  }
  if (attribute == nullptr) return Problem("map requires a filter argument");
  TOKEND_ASSIGN_OR_RETURN(const ItemPath path, ItemPath::Parse(attribute, fallback));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(input));
  std::vector<Value> mapped;
  for (const Value& item : items) {
    TOKEND_ASSIGN_OR_RETURN(Value value, path.Get(item));
    mapped.push_back(std::move(value));
  }
  return MakeList(std::move(mapped), List::Shape::kIterator);
}

absl::StatusOr<Value> Map(Interpreter& interpreter, const Value& input,
                          const Arguments& arguments) {
  if (arguments.positional.empty()) return MapPath(input, arguments);
  TOKEND_ASSIGN_OR_RETURN(const Applied applied, AppliedFrom(arguments, 0));
  const Filter filter = FindFilter(applied.name);
  if (filter == nullptr) return Problem(absl::StrCat("no filter named '", applied.name, "'"));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(input));
  std::vector<Value> mapped;
  for (const Value& item : items) {
    TOKEND_RETURN_IF_ERROR(interpreter.Spend(1));
    TOKEND_ASSIGN_OR_RETURN(Value value, filter(interpreter, item, applied.arguments));
    if (value.Is(Kind::kString)) {
      TOKEND_RETURN_IF_ERROR(interpreter.Spend(value.text().size() / 64));
    }
    mapped.push_back(std::move(value));
  }
  return MakeList(std::move(mapped), List::Shape::kIterator);
}

absl::StatusOr<Value> Attribute(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("attr", arguments, {"name"}, 1));
  TOKEND_ASSIGN_OR_RETURN(const Text name, StringOf(*bound[0]));
  if (input.Is(Kind::kDict) && FindMethod(input, name.bytes()) == MethodKind::kNone) {
    return Value::Undefined("attr looks at attributes alone");
  }
  return GetAttribute(input, name.bytes());
}

}  // namespace

Filter FindSelectFilter(absl::string_view name) {
  static const auto* const filters = new absl::flat_hash_map<absl::string_view, Filter>({
      {"select", Select<true>},
      {"reject", Select<false>},
      {"selectattr", SelectAttribute<true>},
      {"rejectattr", SelectAttribute<false>},
      {"map", Map},
      {"attr", Attribute},
  });
  const auto found = filters->find(name);
  return found == filters->end() ? nullptr : found->second;
}

Filter FindFilter(absl::string_view name) {
  if (const Filter filter = FindTextFilter(name); filter != nullptr) return filter;
  if (const Filter filter = FindListFilter(name); filter != nullptr) return filter;
  return FindSelectFilter(name);
}

}  // namespace tokend::chat
