#include "core/chat/item_path.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "core/chat/arguments.h"
#include "core/chat/functions.h"

namespace tokend::chat {

absl::StatusOr<ItemPath> ItemPath::Parse(const Value* attribute, const Value* fallback) {
  ItemPath path;
  if (fallback != nullptr && !fallback->Is(Kind::kNone)) path.fallback_ = *fallback;
  if (attribute == nullptr || attribute->Is(Kind::kNone)) return path;
  if (attribute->IsInteger()) {
    path.keys_ = {*attribute};
    return path;
  }
  TOKEND_ASSIGN_OR_RETURN(const Text text, StringOf(*attribute));
  for (absl::string_view part : absl::StrSplit(text.bytes(), '.')) {
    int64_t index = 0;
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    path.keys_.push_back(digits && absl::SimpleAtoi(part, &index) ? Value::Int(index)
                                                                  : Value::String(part, true));
  }
  return path;
}

absl::StatusOr<Value> ItemPath::Get(const Value& value) const {
  Value item = value;
  for (const Value& key : keys_) {
    TOKEND_ASSIGN_OR_RETURN(item, GetItem(item, key));
    if (item.Is(Kind::kUndefined) && fallback_.has_value()) item = *fallback_;
  }
  return item;
}

}  // namespace tokend::chat
