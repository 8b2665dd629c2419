// Filters of sequences that call no other filter or test.
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/interpreter.h"
#include "core/chat/item_path.h"
#include "core/chat/limits.h"
#include "core/chat/python_text.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

absl::StatusOr<Value> Length(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("length", arguments, {}).status());
  switch (input.kind()) {
    case Kind::kUndefined:
      return Value::Int(0);
    case Kind::kString:
      return Value::Int(static_cast<int64_t>(CountCodePoints(input.text().bytes())));
    case Kind::kDict:
      return Value::Int(static_cast<int64_t>(input.dict().entries.size()));
    case Kind::kList:
      if (input.list().shape != List::Shape::kIterator) {
        return Value::Int(static_cast<int64_t>(input.list().items.size()));
      }
      break;
    default:
      break;
  }
  return Problem(absl::StrCat("object of type '", TypeName(input), "' has no len()"));
}

absl::StatusOr<Value> First(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("first", arguments, {}).status());
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(input));
  return items.empty() ? Value::Undefined("No first item, sequence was empty.") : items.front();
}

absl::StatusOr<Value> Last(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("last", arguments, {}).status());
  if (input.Is(Kind::kList) && input.list().shape == List::Shape::kIterator) {
    return Problem("an iterator has no last item");
  }
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(input));
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

absl::StatusOr<Value> ToList(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("list", arguments, {}).status());
  TOKEND_ASSIGN_OR_RETURN(std::vector<Value> items, Elements(input));
  return MakeList(std::move(items));
}

absl::StatusOr<Value> Join(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("join", arguments, {"d", "attribute"}));
  Text separator;
  if (bound[0] != nullptr) {
    TOKEND_ASSIGN_OR_RETURN(separator, Str(*bound[0]));
  }
  TOKEND_ASSIGN_OR_RETURN(const ItemPath path, ItemPath::Parse(bound[1]));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(input));
  TextBuilder builder;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) builder.Append(separator);
    TOKEND_ASSIGN_OR_RETURN(const Value item, path.Get(items[i]));
    TOKEND_RETURN_IF_ERROR(AppendStr(item, &builder));
  }
  TOKEND_ASSIGN_OR_RETURN(Text text, builder.Build());
  return Value::String(std::move(text));
}

absl::StatusOr<Value> Items(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("items", arguments, {}).status());
  std::vector<Value> pairs;
  if (!input.Is(Kind::kUndefined)) {
    if (!input.Is(Kind::kDict)) return Problem("Can only get item pairs from a mapping.");
    for (const auto& [key, value] : input.dict().entries) {
      TOKEND_ASSIGN_OR_RETURN(Value pair, MakeList({key, value}, List::Shape::kTuple));
      pairs.push_back(std::move(pair));
    }
  }
  return MakeList(std::move(pairs), List::Shape::kIterator);
}

absl::StatusOr<Value> Reverse(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("reverse", arguments, {}).status());
  TOKEND_ASSIGN_OR_RETURN(std::vector<Value> items, Elements(input));
  std::reverse(items.begin(), items.end());
  if (!input.Is(Kind::kString)) return MakeList(std::move(items), List::Shape::kIterator);
  TextBuilder builder;
  for (const Value& item : items) builder.Append(item.text());
  TOKEND_ASSIGN_OR_RETURN(Text text, builder.Build());
  return Value::String(std::move(text));
}

// What to sort by: strings in lower case unless case counts.
absl::StatusOr<Value> SortKey(const Value& value, bool case_sensitive) {
  if (case_sensitive || !value.Is(Kind::kString)) return value;
  TOKEND_ASSIGN_OR_RETURN(Text text, ToLower(value.text()));
  return Value::String(std::move(text));
}

// `items` by `keys`, stable.
absl::Status SortBy(const std::vector<Value>& keys, bool reverse, std::vector<Value>* items) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  absl::Status failure;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto compared = reverse ? Compare(keys[b], keys[a]) : Compare(keys[a], keys[b]);
    if (!compared.ok()) failure = compared.status();
    return compared.ok() && *compared < 0;
  });
  TOKEND_RETURN_IF_ERROR(failure);
  std::vector<Value> sorted;
  for (size_t i : order) sorted.push_back((*items)[i]);
  *items = std::move(sorted);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Value>> KeysOf(const std::vector<Value>& items, const ItemPath& path,
                                          bool case_sensitive) {
  std::vector<Value> keys;
  for (const Value& item : items) {
    TOKEND_ASSIGN_OR_RETURN(const Value value, path.Get(item));
    TOKEND_ASSIGN_OR_RETURN(Value key, SortKey(value, case_sensitive));
    keys.push_back(std::move(key));
  }
  return keys;
}

absl::StatusOr<Value> Sort(Interpreter& interpreter, const Value& input,
                           const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound,
                          Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}));
  TOKEND_ASSIGN_OR_RETURN(std::vector<Value> items, Elements(input));
  TOKEND_RETURN_IF_ERROR(interpreter.Spend(items.size() * 20));
  TOKEND_ASSIGN_OR_RETURN(const ItemPath path, ItemPath::Parse(bound[2]));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                          KeysOf(items, path, TruthOr(bound[1], false)));
  TOKEND_RETURN_IF_ERROR(SortBy(keys, TruthOr(bound[0], false), &items));
  return MakeList(std::move(items));
}

absl::StatusOr<Value> DictSort(Interpreter& interpreter, const Value& input,
                               const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound,
                          Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}));
  if (input.Is(Kind::kUndefined)) return Problem(input.why());
  if (!input.Is(Kind::kDict)) return Problem("dictsort wants a dict");
  bool by_value = false;
  if (bound[1] != nullptr) {
    TOKEND_ASSIGN_OR_RETURN(const Text by, StringOf(*bound[1]));
    by_value = by.bytes() == "value";
    if (!by_value && by.bytes() != "key") {
      return Problem("You can only sort by either \"key\" or \"value\"");
    }
  }
  std::vector<Value> pairs;
  std::vector<Value> keys;
  TOKEND_RETURN_IF_ERROR(interpreter.Spend(input.dict().entries.size() * 20));
  for (const auto& [key, value] : input.dict().entries) {
    TOKEND_ASSIGN_OR_RETURN(Value pair, MakeList({key, value}, List::Shape::kTuple));
    pairs.push_back(std::move(pair));
    TOKEND_ASSIGN_OR_RETURN(Value by, SortKey(by_value ? value : key, TruthOr(bound[0], false)));
    keys.push_back(std::move(by));
  }
  TOKEND_RETURN_IF_ERROR(SortBy(keys, TruthOr(bound[2], false), &pairs));
  return MakeList(std::move(pairs));
}

absl::StatusOr<Value> Extreme(absl::string_view name, const Value& input,
                              const Arguments& arguments, int wanted) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(name, arguments, {"case_sensitive", "attribute"}));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(input));
  TOKEND_ASSIGN_OR_RETURN(const ItemPath path, ItemPath::Parse(bound[1]));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                          KeysOf(items, path, TruthOr(bound[0], false)));
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    TOKEND_ASSIGN_OR_RETURN(const int order, Compare(keys[i], keys[best]));
    if (order == wanted) best = i;
  }
  return items[best];
}

absl::StatusOr<Value> Min(Interpreter&, const Value& input, const Arguments& arguments) {
  return Extreme("min", input, arguments, -1);
}

absl::StatusOr<Value> Max(Interpreter&, const Value& input, const Arguments& arguments) {
  return Extreme("max", input, arguments, 1);
}

absl::StatusOr<Value> Sum(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("sum", arguments, {"attribute", "start"}));
  TOKEND_ASSIGN_OR_RETURN(const ItemPath path, ItemPath::Parse(bound[0]));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(input));
  Value sum = bound[1] == nullptr ? Value::Int(0) : *bound[1];
  for (const Value& item : items) {
    TOKEND_ASSIGN_OR_RETURN(const Value value, path.Get(item));
    TOKEND_ASSIGN_OR_RETURN(sum, Operate("+", sum, value));
  }
  return sum;
}

absl::StatusOr<Value> Unique(Interpreter& interpreter, const Value& input,
                             const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound,
                          Bind("unique", arguments, {"case_sensitive", "attribute"}));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(input));
  TOKEND_ASSIGN_OR_RETURN(const ItemPath path, ItemPath::Parse(bound[1]));
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> keys,
                          KeysOf(items, path, TruthOr(bound[0], false)));
  std::vector<Value> seen;
  std::vector<Value> kept;
  for (size_t i = 0; i < items.size(); ++i) {
    TOKEND_RETURN_IF_ERROR(interpreter.Spend(seen.size()));
    const bool is_new = std::none_of(seen.begin(), seen.end(),
                                     [&](const Value& other) { return Equal(other, keys[i]); });
    if (!is_new) continue;
    seen.push_back(keys[i]);
    kept.push_back(items[i]);
  }
  return MakeList(std::move(kept), List::Shape::kIterator);
}

absl::StatusOr<Value> Batch(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound,
                          Bind("batch", arguments, {"linecount", "fill_with"}, 1));
  TOKEND_ASSIGN_OR_RETURN(const int64_t size, IntegerOr(bound[0], 1));
  if (size < 1 || size > static_cast<int64_t>(kMaxElements)) return Problem("a bad batch size");
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(input));
  std::vector<Value> batches;
  for (size_t begin = 0; begin < items.size(); begin += static_cast<size_t>(size)) {
    const size_t end = std::min(items.size(), begin + static_cast<size_t>(size));
    std::vector<Value> batch(items.begin() + static_cast<std::ptrdiff_t>(begin),
                             items.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound[1] != nullptr && !bound[1]->Is(Kind::kNone)) {
      batch.resize(static_cast<size_t>(size), *bound[1]);
    }
    TOKEND_ASSIGN_OR_RETURN(Value list, MakeList(std::move(batch)));
    batches.push_back(std::move(list));
  }
  return MakeList(std::move(batches), List::Shape::kIterator);
}

absl::StatusOr<Value> GroupBy(Interpreter& interpreter, const Value& input,
                              const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(
      const auto bound, Bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1));
  TOKEND_ASSIGN_OR_RETURN(std::vector<Value> items, Elements(input));
  TOKEND_RETURN_IF_ERROR(interpreter.Spend(items.size() * 20));
  TOKEND_ASSIGN_OR_RETURN(const ItemPath path, ItemPath::Parse(bound[0], bound[1]));
  const bool case_sensitive = TruthOr(bound[2], false);
  TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> keys, KeysOf(items, path, case_sensitive));
  TOKEND_RETURN_IF_ERROR(SortBy(keys, false, &items));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    TOKEND_ASSIGN_OR_RETURN(const Value name, path.Get(items[begin]));
    TOKEND_ASSIGN_OR_RETURN(const Value key, SortKey(name, case_sensitive));
    std::vector<Value> members;
    for (; begin < items.size(); ++begin) {
      TOKEND_ASSIGN_OR_RETURN(const Value other_name, path.Get(items[begin]));
      TOKEND_ASSIGN_OR_RETURN(const Value other, SortKey(other_name, case_sensitive));
      if (!Equal(key, other)) break;
      members.push_back(items[begin]);
    }
    TOKEND_ASSIGN_OR_RETURN(Value list, MakeList(std::move(members)));
    TOKEND_ASSIGN_OR_RETURN(Value group, MakeList({name, std::move(list)}, List::Shape::kGroup));
    groups.push_back(std::move(group));
  }
  return MakeList(std::move(groups));
}

}  // namespace

Filter FindListFilter(absl::string_view name) {
  static const auto* const filters = new absl::flat_hash_map<absl::string_view, Filter>({
      {"length", Length},
      {"count", Length},
      {"first", First},
      {"last", Last},
      {"list", ToList},
      {"join", Join},
      {"items", Items},
      {"reverse", Reverse},
      {"sort", Sort},
      {"dictsort", DictSort},
      {"min", Min},
      {"max", Max},
      {"sum", Sum},
      {"unique", Unique},
      {"batch", Batch},
      {"groupby", GroupBy},
  });
  const auto found = filters->find(name);
  return found == filters->end() ? nullptr : found->second;
}

}  // namespace tokend::chat
