// What a template can call by name: global functions, filters, tests, and the methods of values.
#ifndef TOKEND_CORE_CHAT_FUNCTIONS_H_
#define TOKEND_CORE_CHAT_FUNCTIONS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/chat/arguments.h"
#include "core/chat/value.h"

namespace tokend::chat {

class Interpreter;

using Filter = absl::StatusOr<Value> (*)(Interpreter& interpreter, const Value& input,
                                         const Arguments& arguments);
using Test = absl::StatusOr<bool> (*)(Interpreter& interpreter, const Value& input,
                                      const Arguments& arguments);

// nullptr: there is none of that name. Filters of text are in filters_text.cc, those of sequences
// in filters_list.cc and filters_select.cc.
Filter FindFilter(absl::string_view name);
Filter FindTextFilter(absl::string_view name);
Filter FindListFilter(absl::string_view name);
Filter FindSelectFilter(absl::string_view name);
Test FindTest(absl::string_view name);

bool IsGlobalFunction(absl::string_view name);
absl::StatusOr<Value> CallFunction(Interpreter& interpreter, absl::string_view name,
                                   const Arguments& arguments);

// Whether Python's type of `value` has the method; kForbidden: it has, but Jinja's immutable
// sandbox hides it.
enum class MethodKind { kNone, kAllowed, kForbidden };
MethodKind FindMethod(const Value& value, absl::string_view name);
absl::StatusOr<Value> CallMethod(Interpreter& interpreter, const Value& self,
                                 absl::string_view name, const Arguments& arguments);
absl::StatusOr<Value> CallStringMethod(const Text& self, absl::string_view name,
                                       const Arguments& arguments);

// value.name: attribute first, then item. An undefined result is no error; an undefined `value` is.
absl::StatusOr<Value> GetAttribute(const Value& value, absl::string_view name);
// value[key]: item first, then attribute.
absl::StatusOr<Value> GetItem(const Value& value, const Value& key);
// value[start:stop:step], each None if absent.
absl::StatusOr<Value> GetSlice(const Value& value, const Value& start, const Value& stop,
                               const Value& step);

// Python's binary operators. `op`: + - * / // % **.
absl::StatusOr<Value> Operate(absl::string_view op, const Value& a, const Value& b);
// `op`: == != < <= > >= in, "not in".
absl::StatusOr<bool> Holds(absl::string_view op, const Value& a, const Value& b);

// Python's "format % arguments" and str.format.
absl::StatusOr<Value> FormatPercent(const Text& format, const Value& arguments);
absl::StatusOr<Value> FormatBraces(const Text& format, const Arguments& arguments);

// & < > " ' as HTML entities.
absl::StatusOr<Text> EscapeHtml(const Text& text);
// All of it by AppendUpper and AppendLower.
absl::StatusOr<Text> ToUpper(const Text& text);
absl::StatusOr<Text> ToLower(const Text& text);
// Every `old` by `by`, the first `count` of them; negative: all.
absl::StatusOr<Text> ReplaceAll(const Text& text, const Text& old, const Text& by, int64_t count);

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_FUNCTIONS_H_
