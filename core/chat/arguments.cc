#include "core/chat/arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/chat/errors.h"

namespace tokend::chat {

absl::StatusOr<std::vector<const Value*>> Bind(absl::string_view what, const Arguments& arguments,
                                               std::initializer_list<absl::string_view> parameters,
                                               size_t required) {
  std::vector<const Value*> bound(parameters.size(), nullptr);
  if (arguments.positional.size() > parameters.size()) {
    return Problem(absl::StrCat("too many arguments for '", what, "'"));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(parameters.begin(), parameters.end(), name);
    if (place == parameters.end()) {
      return Problem(absl::StrCat("'", what, "' has no argument '", name, "'"));
    }
    const Value*& slot = bound[static_cast<size_t>(place - parameters.begin())];
    if (slot != nullptr) {
      return Problem(absl::StrCat("'", what, "' is given its argument '", name, "' twice"));
    }
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound[i] == nullptr) {
      return Problem(
          absl::StrCat("'", what, "' lacks its argument '", *(parameters.begin() + i), "'"));
    }
  }
  return bound;
}

absl::StatusOr<int64_t> IntegerOr(const Value* value, int64_t fallback) {
  if (value == nullptr || value->Is(Kind::kNone)) return fallback;
  if (value->Is(Kind::kUndefined)) return Problem(value->why());
  if (!value->IsInteger()) {
    return Problem(absl::StrCat("wanted an integer, not '", TypeName(*value), "'"));
  }
  return value->integer();
}

absl::StatusOr<Text> StringOf(const Value& value) {
  if (value.Is(Kind::kUndefined)) return Problem(value.why());
  if (!value.Is(Kind::kString)) {
    return Problem(absl::StrCat("wanted a string, not '", TypeName(value), "'"));
  }
  return value.text();
}

bool TruthOr(const Value* value, bool fallback) {
  return value == nullptr ? fallback : IsTrue(*value);
}

}  // namespace tokend::chat
