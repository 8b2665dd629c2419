#ifndef TOKEND_CORE_CHAT_ITEM_PATH_H_
#define TOKEND_CORE_CHAT_ITEM_PATH_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/value.h"

namespace tokend::chat {

// The `attribute` argument of filters: "function.name", "0.id" or an index.
class ItemPath {
 public:
  // nullptr or None: the value itself. `fallback`, if not nullptr, stands for an undefined result.
  static absl::StatusOr<ItemPath> Parse(const Value* attribute, const Value* fallback = nullptr);

  absl::StatusOr<Value> Get(const Value& value) const;

 private:
  std::vector<Value> keys_;
  std::optional<Value> fallback_;
};

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_ITEM_PATH_H_
