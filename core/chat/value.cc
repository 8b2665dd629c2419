#include "core/chat/value.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/limits.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

int NestingOf(const Value& value) {
  if (value.Is(Kind::kList)) return value.list().nesting;
  if (value.Is(Kind::kDict)) return value.dict().nesting;
  return 0;
}

absl::Status CheckSize(size_t elements, int nesting) {
  if (elements > kMaxElements) return Problem("a list or dict of too many elements");
  if (nesting > kMaxNesting) return Problem("lists and dicts nested too deep");
  return absl::OkStatus();
}

bool EqualLists(const List& a, const List& b) {
  using Shape = List::Shape;
  const auto plain = [](Shape shape) { return shape == Shape::kGroup ? Shape::kTuple : shape; };
  if (plain(a.shape) != plain(b.shape)) return false;
  return a.items.size() == b.items.size() &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), Equal);
}

bool EqualDicts(const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::all_of(a.entries.begin(), a.entries.end(), [&](const auto& entry) {
    const Value* other = b.Find(entry.first);
    return other != nullptr && Equal(entry.second, *other);
  });
}

template <typename T>
int ThreeWay(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

}  // namespace

Value::Value() = default;
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;

Value Value::Undefined(std::string why) {
  return Value(Data(UndefinedType{std::make_shared<const std::string>(std::move(why))}));
}

const std::string& Value::why() const {
  static const std::string* const kNameless = new std::string("a value is undefined");
  const auto& why = std::get<UndefinedType>(data_).why;
  return why == nullptr ? *kNameless : *why;
}

const Value* Dict::Find(absl::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.Is(Kind::kString) && name.text().bytes() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(const Value& key) const {
  if (key.Is(Kind::kString)) return Find(key.text().bytes());
  for (const auto& [name, value] : entries) {
    if (Equal(name, key)) return &value;
  }
  return nullptr;
}

const Value* Namespace::Find(absl::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(absl::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

absl::StatusOr<Value> MakeList(std::vector<Value> items, List::Shape shape) {
  auto list = std::make_shared<List>();
  for (const Value& item : items) list->nesting = std::max(list->nesting, 1 + NestingOf(item));
  TOKEND_RETURN_IF_ERROR(CheckSize(items.size(), list->nesting));
  list->shape = shape;
  list->items = std::move(items);
  return Value::Of(std::shared_ptr<const List>(std::move(list)));
}

absl::StatusOr<Value> MakeDict(std::vector<std::pair<Value, Value>> entries) {
  auto dict = std::make_shared<Dict>();
  absl::flat_hash_map<std::string, size_t> names;
  for (std::pair<Value, Value>& entry : entries) {
    auto& [key, value] = entry;
    dict->nesting = std::max(dict->nesting, 1 + NestingOf(value));
    if (key.Is(Kind::kString)) {
      const std::string name(key.text().bytes());
      const auto [place, added] = names.try_emplace(name, dict->entries.size());
      if (!added) {
        dict->entries[place->second].second = std::move(value);
        continue;
      }
    } else if (const Value* old = dict->Find(key); old != nullptr) {
      *const_cast<Value*>(old) = std::move(value);
      continue;
    }
    dict->entries.push_back(std::move(entry));
  }
  TOKEND_RETURN_IF_ERROR(CheckSize(dict->entries.size(), dict->nesting));
  return Value::Of(std::shared_ptr<const Dict>(std::move(dict)));
}

bool Equal(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) return a.integer() == b.integer();
    return a.number() == b.number();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return a.text().bytes() == b.text().bytes();
    case Kind::kList:
      return EqualLists(a.list(), b.list());
    case Kind::kDict:
      return EqualDicts(a.dict(), b.dict());
    case Kind::kNamespace:
      return a.space() == b.space();
    case Kind::kLoop:
      return a.loop() == b.loop();
    case Kind::kCallable:
      return &a.callable() == &b.callable();
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      break;  // handled above
  }
  return false;
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.floating() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
      return value.list().shape == List::Shape::kIterator || !value.list().items.empty();
    case Kind::kDict:
      return !value.dict().entries.empty();
    case Kind::kNamespace:
    case Kind::kCallable:
    case Kind::kLoop:
      return true;
  }
  return false;
}

absl::string_view TypeName(const Value& value) {
  static constexpr absl::string_view kNames[] = {"undefined", "None",     "bool", "int",
                                                 "float",     "str",      "list", "dict",
                                                 "Namespace", "function", "loop"};
  static constexpr absl::string_view kShapes[] = {
      "list", "tuple", "range", "dict_keys", "dict_values", "dict_items", "generator", "tuple"};
  if (value.Is(Kind::kList)) return kShapes[static_cast<size_t>(value.list().shape)];
  return kNames[static_cast<size_t>(value.kind())];
}

absl::StatusOr<int> Compare(const Value& a, const Value& b) {
  if (a.IsInteger() && b.IsInteger()) return ThreeWay(a.integer(), b.integer());
  if (a.IsNumber() && b.IsNumber()) return ThreeWay(a.number(), b.number());
  if (a.Is(Kind::kString) && b.Is(Kind::kString)) {
    return ThreeWay(a.text().bytes(), b.text().bytes());  // UTF-8 sorts as code points do
  }
  if (a.Is(Kind::kUndefined)) return Problem(a.why());
  if (b.Is(Kind::kUndefined)) return Problem(b.why());
  if (a.Is(Kind::kList) && b.Is(Kind::kList) && TypeName(a) == TypeName(b) && a.list().CanIndex() &&
      a.list().shape != List::Shape::kRange) {
    const std::vector<Value>& left = a.list().items;
    const std::vector<Value>& right = b.list().items;
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      if (!Equal(left[i], right[i])) return Compare(left[i], right[i]);
    }
    return ThreeWay(left.size(), right.size());
  }
  return Problem(absl::StrCat("no order between '", TypeName(a), "' and '", TypeName(b), "'"));
}

absl::StatusOr<std::vector<Value>> Elements(const Value& value) {
  std::vector<Value> elements;
  switch (value.kind()) {
    case Kind::kUndefined:
      return elements;
    case Kind::kList:
      if (value.list().shape == List::Shape::kIterator) {
        if (value.list().consumed) return elements;
        value.list().consumed = true;
      }
      return value.list().items;
    case Kind::kDict:
      for (const auto& entry : value.dict().entries) elements.push_back(entry.first);
      return elements;
    case Kind::kString: {
      const std::vector<size_t> offsets = CodePointOffsets(value.text().bytes());
      if (offsets.size() > kMaxElements) return Problem("a list or dict of too many elements");
      for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        elements.push_back(Value::String(value.text().Sub(offsets[i], offsets[i + 1])));
      }
      return elements;
    }
    default:
      return Problem(absl::StrCat("'", TypeName(value), "' is not iterable"));
  }
}

}  // namespace tokend::chat
