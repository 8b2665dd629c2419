// Attributes, items and slices.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/interpreter.h"
#include "core/chat/unicode.h"

namespace tokend::chat {
namespace {

Value NoAttribute(const Value& value, absl::string_view name) {
  return Value::Undefined(
      absl::StrCat("'", TypeName(value), " object' has no attribute '", name, "'"));
}

Value Method(const Value& self, absl::string_view name) {
  auto method = std::make_shared<Callable>();
  method->type = Callable::Type::kMethod;
  method->name = std::string(name);
  method->self = self;
  return Value::Of(std::shared_ptr<const Callable>(std::move(method)));
}

Value LoopAttribute(const Value& value, absl::string_view name) {
  const LoopState& loop = *value.loop();
  const auto index = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(length - index);
  if (name == "revindex0") return Value::Int(length - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(loop.depth);
  if (name == "depth0") return Value::Int(loop.depth - 1);
  if (name == "previtem") {
    if (loop.index == 0) return Value::Undefined("there is no previous item");
    return loop.items[std::min(loop.index, loop.items.size()) - 1];
  }
  if (name == "nextitem") {
    if (loop.index + 1 >= loop.items.size()) return Value::Undefined("there is no next item");
    return loop.items[loop.index + 1];
  }
  return NoAttribute(value, name);
}

// The attribute of Python's object, if it has one.
std::optional<Value> OwnAttribute(const Value& value, absl::string_view name) {
  switch (FindMethod(value, name)) {
    case MethodKind::kAllowed:
      return Method(value, name);
    case MethodKind::kForbidden:
      return Value::Undefined(absl::StrCat("access to attribute '", name, "' of '", TypeName(value),
                                           "' object is unsafe."));
    case MethodKind::kNone:
      break;
  }
  if (value.Is(Kind::kNamespace)) {
    const Value* found = value.space()->Find(name);
    if (found != nullptr) return *found;
  }
  if (value.Is(Kind::kLoop)) return LoopAttribute(value, name);
  if (value.Is(Kind::kList) && value.list().shape == List::Shape::kGroup) {
    if (name == "grouper") return value.list().items[0];
    if (name == "list") return value.list().items[1];
  }
  return std::nullopt;
}

// Item `index` of `size`, from the end if negative.
std::optional<size_t> IndexOf(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<size_t>(index);
}

std::optional<Value> OwnItem(const Value& value, const Value& key) {
  if (value.Is(Kind::kDict)) {
    const Value* found = value.dict().Find(key);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (!key.IsInteger()) return std::nullopt;
  if (value.Is(Kind::kList) && value.list().CanIndex()) {
    const auto index = IndexOf(key.integer(), value.list().items.size());
    return index.has_value() ? std::optional<Value>(value.list().items[*index]) : std::nullopt;
  }
  if (value.Is(Kind::kString)) {
    const std::vector<size_t> offsets = CodePointOffsets(value.text().bytes());
    const auto index = IndexOf(key.integer(), offsets.size() - 1);
    if (!index.has_value()) return std::nullopt;
    return Value::String(value.text().Sub(offsets[*index], offsets[*index + 1]))
        .WithMarkup(value.markup());
  }
  return std::nullopt;
}

struct SliceRange {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
};

// Python's slice.indices.
absl::StatusOr<SliceRange> ResolveSlice(const Value& start, const Value& stop, const Value& step,
                                        int64_t size) {
  SliceRange range;
  TOKEND_ASSIGN_OR_RETURN(range.step, IntegerOr(&step, 1));
  if (range.step == 0) return Problem("slice step cannot be zero");
  const bool back = range.step < 0;
  const int64_t low = back ? -1 : 0;
  const int64_t high = back ? size - 1 : size;
  const auto resolve = [&](const Value& bound, int64_t fallback) -> absl::StatusOr<int64_t> {
    if (bound.Is(Kind::kNone)) return fallback;
    TOKEND_ASSIGN_OR_RETURN(int64_t at, IntegerOr(&bound, 0));
    if (at < 0) at = std::max(at, -size - 1) + size;
    return std::clamp(at, low, high);
  };
  TOKEND_ASSIGN_OR_RETURN(range.start, resolve(start, back ? high : low));
  TOKEND_ASSIGN_OR_RETURN(range.stop, resolve(stop, back ? low : high));
  // Longer steps than this skip everything in any case.
  range.step = std::clamp(range.step, -size - 1, size + 1);
  return range;
}

}  // namespace

absl::StatusOr<Value> GetAttribute(const Value& value, absl::string_view name) {
  if (value.Is(Kind::kUndefined)) return Problem(value.why());
  if (auto own = OwnAttribute(value, name); own.has_value()) return *std::move(own);
  if (value.Is(Kind::kDict)) {
    if (const Value* item = value.dict().Find(name); item != nullptr) return *item;
  }
  return NoAttribute(value, name);
}

absl::StatusOr<Value> GetItem(const Value& value, const Value& key) {
  if (value.Is(Kind::kUndefined)) return Problem(value.why());
  if (auto item = OwnItem(value, key); item.has_value()) return *std::move(item);
  if (key.Is(Kind::kString)) {
    const absl::string_view name = key.text().bytes();
    if (auto own = OwnAttribute(value, name); own.has_value()) return *std::move(own);
    return NoAttribute(value, name);
  }
  if (key.Is(Kind::kInt)) {
    return Value::Undefined(
        absl::StrCat("'", TypeName(value), " object' has no element ", key.integer()));
  }
  return NoAttribute(value, TypeName(key));
}

absl::StatusOr<Value> GetSlice(const Value& value, const Value& start, const Value& stop,
                               const Value& step) {
  if (value.Is(Kind::kUndefined)) return Problem(value.why());
  if (value.Is(Kind::kList) && value.list().CanIndex()) {
    const List& list = value.list();
    const auto size = static_cast<int64_t>(list.items.size());
    TOKEND_ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(start, stop, step, size));
    std::vector<Value> items;
    for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop;
         i += range.step) {
      items.push_back(list.items[static_cast<size_t>(i)]);
    }
    return MakeList(std::move(items),
                    list.shape == List::Shape::kGroup ? List::Shape::kTuple : list.shape);
  }
  if (!value.Is(Kind::kString)) {
    return Problem(absl::StrCat("'", TypeName(value), "' object is not subscriptable"));
  }
  const Text& text = value.text();
  const std::vector<size_t> offsets = CodePointOffsets(text.bytes());
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  TOKEND_ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(start, stop, step, size));
  const auto at = [&](int64_t i) { return offsets[static_cast<size_t>(i)]; };
  if (range.step == 1) {
    const int64_t end = std::max(range.start, range.stop);
    return Value::String(text.Sub(at(range.start), at(end))).WithMarkup(value.markup());
  }
  TextBuilder builder;
  for (int64_t i = range.start; range.step > 0 ? i < range.stop : i > range.stop; i += range.step) {
    builder.Append(text, at(i), at(i + 1));
  }
  TOKEND_ASSIGN_OR_RETURN(Text sliced, builder.Build());
  return Value::String(std::move(sliced)).WithMarkup(value.markup());
}

}  // namespace tokend::chat
