// Python's operators.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/chat/errors.h"
#include "core/chat/functions.h"
#include "core/chat/limits.h"

namespace tokend::chat {
namespace {

constexpr char kBeyond[] = "an integer beyond 64 bits";

absl::Status BadOperands(absl::string_view op, const Value& a, const Value& b) {
  if (a.Is(Kind::kUndefined)) return Problem(a.why());
  if (b.Is(Kind::kUndefined)) return Problem(b.why());
  return Problem(absl::StrCat("unsupported operand types for ", op, ": '", TypeName(a), "' and '",
                              TypeName(b), "'"));
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return Problem("division by zero");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t power = 1;
  // Beyond 63 doublings only 0, 1 and -1 fit.
  for (int64_t i = 0; i < exponent && base != 0 && base != 1; ++i) {
    if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
    if (__builtin_mul_overflow(power, base, &power)) return Problem(kBeyond);
  }
  return Value::Int(exponent > 0 && base == 0 ? 0 : power);
}

absl::StatusOr<Value> OperateIntegers(absl::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(a, b, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(a, b, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(a, b, &result);
  } else if (op == "**") {
    return IntegerPower(a, b);
  } else {
    if (b == 0) return Problem("division by zero");
    if (op == "/") return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) {
      overflow = op == "//" && __builtin_sub_overflow(int64_t{0}, a, &result);
    } else {
      result = op == "//" ? FloorDivide(a, b) : a - FloorDivide(a, b) * b;
    }
  }
  if (overflow) return Problem(kBeyond);
  return Value::Int(result);
}

absl::StatusOr<Value> OperateFloats(absl::string_view op, double a, double b) {
  if (op == "+") return Value::Float(a + b);
  if (op == "-") return Value::Float(a - b);
  if (op == "*") return Value::Float(a * b);
  if (op == "**") return Value::Float(std::pow(a, b));
  if (b == 0) return Problem("division by zero");
  if (op == "/") return Value::Float(a / b);
  if (op == "//") return Value::Float(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value::Float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

absl::StatusOr<Value> AddStrings(const Value& a, const Value& b) {
  TextBuilder builder;
  const bool markup = a.markup() || b.markup();
  for (const Value* part : {&a, &b}) {
    if (markup && !part->markup()) {
      TOKEND_ASSIGN_OR_RETURN(const Text escaped, EscapeHtml(part->text()));
      builder.Append(escaped);
    } else {
      builder.Append(part->text());
    }
  }
  TOKEND_ASSIGN_OR_RETURN(Text text, builder.Build());
  return Value::String(std::move(text)).WithMarkup(markup);
}

bool IsSequence(const Value& value) {
  return value.Is(Kind::kList) && value.list().CanIndex() &&
         value.list().shape != List::Shape::kRange;
}

absl::StatusOr<Value> Repeated(const Value& value, int64_t count) {
  const size_t times = count < 0 ? 0 : static_cast<size_t>(count);
  if (value.Is(Kind::kString)) {
    TextBuilder builder;
    builder.Repeat(value.text(), times);
    TOKEND_ASSIGN_OR_RETURN(Text text, builder.Build());
    return Value::String(std::move(text)).WithMarkup(value.markup());
  }
  const std::vector<Value>& items = value.list().items;
  if (!items.empty() && times > kMaxElements / items.size()) {
    return Problem("a list or dict of too many elements");
  }
  std::vector<Value> repeated;
  for (size_t i = 0; i < times && !items.empty(); ++i) {
    repeated.insert(repeated.end(), items.begin(), items.end());
  }
  return MakeList(std::move(repeated), value.list().shape);
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kString: {
      if (!item.Is(Kind::kString)) return BadOperands("in", item, container);
      return container.text().bytes().find(item.text().bytes()) != absl::string_view::npos;
    }
    case Kind::kDict:
      return container.dict().Find(item) != nullptr;
    case Kind::kList: {
      TOKEND_ASSIGN_OR_RETURN(const std::vector<Value> items, Elements(container));
      return std::any_of(items.begin(), items.end(),
                         [&](const Value& other) { return Equal(item, other); });
    }
    default:
      return Problem(absl::StrCat("'", TypeName(container), "' is not iterable"));
  }
}

}  // namespace

absl::StatusOr<Value> Operate(absl::string_view op, const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    auto result = a.IsInteger() && b.IsInteger() ? OperateIntegers(op, a.integer(), b.integer())
                                                 : OperateFloats(op, a.number(), b.number());
    if (!result.ok()) return result;
    return (*std::move(result)).WithTrust(a.trusted() && b.trusted());
  }
  if (op == "+" && a.Is(Kind::kString) && b.Is(Kind::kString)) return AddStrings(a, b);
  if (op == "+" && IsSequence(a) && IsSequence(b) && TypeName(a) == TypeName(b)) {
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return MakeList(std::move(items), a.list().shape);
  }
  if (op == "*" && b.IsInteger() && (a.Is(Kind::kString) || IsSequence(a))) {
    return Repeated(a, b.integer());
  }
  if (op == "*" && a.IsInteger() && (b.Is(Kind::kString) || IsSequence(b))) {
    return Repeated(b, a.integer());
  }
  if (op == "%" && a.Is(Kind::kString)) return FormatPercent(a.text(), b);
  return BadOperands(op, a, b);
}

absl::StatusOr<bool> Holds(absl::string_view op, const Value& a, const Value& b) {
  if (op == "==") return Equal(a, b);
  if (op == "!=") return !Equal(a, b);
  if (op == "in") return Contains(b, a);
  if (op == "not in") {
    TOKEND_ASSIGN_OR_RETURN(const bool contains, Contains(b, a));
    return !contains;
  }
  if (a.IsNumber() && b.IsNumber() && (std::isnan(a.number()) || std::isnan(b.number()))) {
    return false;
  }
  TOKEND_ASSIGN_OR_RETURN(const int order, Compare(a, b));
  if (op == "<") return order < 0;
  if (op == "<=") return order <= 0;
  if (op == ">") return order > 0;
  return order >= 0;
}

}  // namespace tokend::chat
