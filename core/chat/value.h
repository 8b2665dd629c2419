// What a template computes with: Python's values, as far as templates see them.
#ifndef TOKEND_CORE_CHAT_VALUE_H_
#define TOKEND_CORE_CHAT_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/chat/text.h"

namespace tokend::chat {

struct List;
struct Dict;
struct Namespace;
struct Callable;
struct LoopState;

enum class Kind {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,  // tuples, ranges, views and iterators, too
  kDict,
  kNamespace,
  kCallable,
  kLoop,
};

// Copies are cheap and share what cannot change. Lists and dicts never change once made (as in
// Jinja's immutable sandbox), so no value can hold itself; namespaces and loops belong to the
// rendering and must not be used after it.
class Value {
 public:
  Value();  // undefined
  // Out of line: they are large, and gcc 12 sees uninitialised members in them where they are
  // inlined.
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();
  // `why`: the error of a template that uses it, e.g. "'tools' is undefined".
  static Value Undefined(std::string why);
  static Value None() { return Value(Data(NoneType())); }
  static Value Bool(bool value) { return Value(Data(value)); }
  static Value Int(int64_t value) { return Value(Data(value)); }
  static Value Float(double value) { return Value(Data(value)); }
  static Value String(Text text) { return Value(Data(std::move(text))); }
  static Value String(absl::string_view bytes, bool trusted) {
    return String(Text(std::string(bytes), trusted));
  }
  static Value Of(std::shared_ptr<const Callable> callable) {
    return Value(Data(std::move(callable)));
  }
  static Value Of(Namespace* space) { return Value(Data(space)); }
  static Value Of(LoopState* loop) { return Value(Data(loop)); }
  // Checked for size and nesting by MakeList and MakeDict.
  static Value Of(std::shared_ptr<const List> list) { return Value(Data(std::move(list))); }
  static Value Of(std::shared_ptr<const Dict> dict) { return Value(Data(std::move(dict))); }

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool Is(Kind kind) const { return this->kind() == kind; }
  bool IsNumber() const { return Is(Kind::kBool) || Is(Kind::kInt) || Is(Kind::kFloat); }
  // Counts as a Python int: bools do.
  bool IsInteger() const { return Is(Kind::kBool) || Is(Kind::kInt); }

  // Each only of its kind.
  const std::string& why() const;  // of an undefined one
  bool boolean() const { return std::get<bool>(data_); }
  int64_t integer() const { return Is(Kind::kBool) ? boolean() : std::get<int64_t>(data_); }
  double floating() const { return std::get<double>(data_); }
  double number() const { return Is(Kind::kFloat) ? floating() : static_cast<double>(integer()); }
  const Text& text() const { return std::get<Text>(data_); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Namespace* space() const { return std::get<Namespace*>(data_); }
  LoopState* loop() const { return std::get<LoopState*>(data_); }
  const Callable& callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }

  // Of a number or bool: its digits are the template's own, not a message's.
  bool trusted() const { return trusted_; }
  Value WithTrust(bool trusted) && {
    trusted_ = trusted;
    return std::move(*this);
  }
  // Of a string: safe HTML (Jinja's Markup). Adding it to another string escapes that one.
  bool markup() const { return markup_; }
  Value WithMarkup(bool markup) && {
    markup_ = markup;
    return std::move(*this);
  }

 private:
  struct UndefinedType {
    std::shared_ptr<const std::string> why;
  };
  struct NoneType {};
  // In the order of Kind.
  using Data = std::variant<UndefinedType, NoneType, bool, int64_t, double, Text,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>, Namespace*,
                            std::shared_ptr<const Callable>, LoopState*>;

  explicit Value(Data data) : data_(std::move(data)) {}

  Data data_;
  bool trusted_ = true;
  bool markup_ = false;
};

struct List {
  enum class Shape {
    kList,
    kTuple,
    kRange,
    kKeys,  // the views of a dict: no indexing
    kValues,
    kItems,
    kIterator,  // what Jinja's filters return: no length, always true, empty once read
    kGroup,     // a tuple whose parts are also .grouper and .list
  };

  Shape shape = Shape::kList;
  std::vector<Value> items;
  int nesting = 1;
  mutable bool consumed = false;  // of an iterator

  bool CanIndex() const {
    return shape == Shape::kList || shape == Shape::kTuple || shape == Shape::kRange ||
           shape == Shape::kGroup;
  }
};

// In order of insertion.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  int nesting = 1;

  // nullptr: no such key.
  const Value* Find(absl::string_view key) const;
  const Value* Find(const Value& key) const;
};

// What {% set ns.x = ... %} may change.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* Find(absl::string_view name) const;
  void Set(absl::string_view name, Value value);
};

// Error: Problem (too many elements, too deep).
absl::StatusOr<Value> MakeList(std::vector<Value> items, List::Shape shape = List::Shape::kList);
// A later entry of the same key replaces the value of the earlier one.
absl::StatusOr<Value> MakeDict(std::vector<std::pair<Value, Value>> entries);

// Python's "==", truth and type name.
bool Equal(const Value& a, const Value& b);
bool IsTrue(const Value& value);
absl::string_view TypeName(const Value& value);

// Negative, 0 or positive; error: Problem (they have no order).
absl::StatusOr<int> Compare(const Value& a, const Value& b);

// The elements that a loop sees: of a list, the keys of a dict, the characters of a string, nothing
// of an undefined value. Error: Problem (not iterable).
absl::StatusOr<std::vector<Value>> Elements(const Value& value);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_VALUE_H_
