// What may follow `is`.
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/python_text.h"

namespace tokend::chat {
namespace {

template <typename F>
absl::StatusOr<bool> Plain(const Value& input, const Arguments& arguments, F holds) {
  TOKEND_RETURN_IF_ERROR(Bind("test", arguments, {}).status());
  return holds(input);
}

// A test without arguments that asks for kinds.
template <Kind... kKinds>
absl::StatusOr<bool> IsKind(Interpreter&, const Value& input, const Arguments& arguments) {
  return Plain(input, arguments, [](const Value& value) { return (value.Is(kKinds) || ...); });
}

absl::StatusOr<bool> Defined(Interpreter&, const Value& input, const Arguments& arguments) {
  return Plain(input, arguments, [](const Value& value) { return !value.Is(Kind::kUndefined); });
}

template <bool kWanted>
absl::StatusOr<bool> IsBool(Interpreter&, const Value& input, const Arguments& arguments) {
  return Plain(input, arguments, [](const Value& value) {
    return value.Is(Kind::kBool) && value.boolean() == kWanted;
  });
}

absl::StatusOr<bool> Iterable(Interpreter&, const Value& input, const Arguments& arguments) {
  return Plain(input, arguments, [](const Value& value) {
    return value.Is(Kind::kUndefined) || value.Is(Kind::kString) || value.Is(Kind::kList) ||
           value.Is(Kind::kDict) || value.Is(Kind::kLoop);
  });
}

absl::StatusOr<bool> Sequence(Interpreter&, const Value& input, const Arguments& arguments) {
  return Plain(input, arguments, [](const Value& value) {
    return value.Is(Kind::kUndefined) || value.Is(Kind::kString) || value.Is(Kind::kDict) ||
           (value.Is(Kind::kList) && value.list().CanIndex());
  });
}

template <int kRest>
absl::StatusOr<bool> Parity(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("test", arguments, {}).status());
  TOKEND_ASSIGN_OR_RETURN(const Value rest, Operate("%", input, Value::Int(2)));
  return Equal(rest, Value::Int(kRest));
}

absl::StatusOr<bool> DivisibleBy(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("divisibleby", arguments, {"num"}, 1));
  TOKEND_ASSIGN_OR_RETURN(const Value rest, Operate("%", input, *bound[0]));
  return Equal(rest, Value::Int(0));
}

absl::StatusOr<bool> SameAs(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind("sameas", arguments, {"other"}, 1));
  return input.kind() == bound[0]->kind() && Equal(input, *bound[0]);
}

template <bool kUpper>
absl::StatusOr<bool> CaseIs(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const Text text, Str(input));
  TOKEND_ASSIGN_OR_RETURN(const Value holds,
                          CallStringMethod(text, kUpper ? "isupper" : "islower", arguments));
  return IsTrue(holds);
}

// A comparison as a test; kOperator names one of Holds.
template <const char* kOperator>
absl::StatusOr<bool> Compares(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_ASSIGN_OR_RETURN(const auto bound, Bind(kOperator, arguments, {"other"}, 1));
  return Holds(kOperator, input, *bound[0]);
}

constexpr char kEq[] = "==";
constexpr char kNe[] = "!=";
constexpr char kLt[] = "<";
constexpr char kLe[] = "<=";
constexpr char kGt[] = ">";
constexpr char kGe[] = ">=";
constexpr char kIn[] = "in";

absl::StatusOr<bool> Escaped(Interpreter&, const Value& input, const Arguments& arguments) {
  return Plain(input, arguments, [](const Value& value) { return value.markup(); });
}

template <bool kFilter>
absl::StatusOr<bool> IsNameOf(Interpreter&, const Value& input, const Arguments& arguments) {
  TOKEND_RETURN_IF_ERROR(Bind("test", arguments, {}).status());
  if (!input.Is(Kind::kString)) return false;
  const absl::string_view name = input.text().bytes();
  return kFilter ? FindFilter(name) != nullptr : FindTest(name) != nullptr;
}

}  // namespace

Test FindTest(absl::string_view name) {
  static const auto* const tests = new absl::flat_hash_map<absl::string_view, Test>({
      {"defined", Defined},
      {"undefined", IsKind<Kind::kUndefined>},
      {"none", IsKind<Kind::kNone>},
      {"boolean", IsKind<Kind::kBool>},
      {"true", IsBool<true>},
      {"false", IsBool<false>},
      {"integer", IsKind<Kind::kInt>},
      {"float", IsKind<Kind::kFloat>},
      {"number", IsKind<Kind::kInt, Kind::kFloat, Kind::kBool>},
      {"string", IsKind<Kind::kString>},
      {"mapping", IsKind<Kind::kDict>},
      {"callable", IsKind<Kind::kCallable, Kind::kLoop>},
      {"iterable", Iterable},
      {"sequence", Sequence},
      {"odd", Parity<1>},
      {"even", Parity<0>},
      {"divisibleby", DivisibleBy},
      {"sameas", SameAs},
      {"upper", CaseIs<true>},
      {"lower", CaseIs<false>},
      {"escaped", Escaped},
      {"filter", IsNameOf<true>},
      {"test", IsNameOf<false>},
      {"in", Compares<kIn>},
      {"eq", Compares<kEq>},
      {"equalto", Compares<kEq>},
      {"==", Compares<kEq>},
      {"ne", Compares<kNe>},
      {"!=", Compares<kNe>},
      {"lt", Compares<kLt>},
      {"lessthan", Compares<kLt>},
      {"<", Compares<kLt>},
      {"le", Compares<kLe>},
      {"<=", Compares<kLe>},
      {"gt", Compares<kGt>},
      {"greaterthan", Compares<kGt>},
      {">", Compares<kGt>},
      {"ge", Compares<kGe>},
      {">=", Compares<kGe>},
  });
  const auto found = tests->find(name);
  return found == tests->end() ? nullptr : found->second;
}

}  // namespace tokend::chat
