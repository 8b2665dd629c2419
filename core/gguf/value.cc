#include "core/gguf/value.h"

#include <cstring>

namespace tokend::gguf {
namespace {

template <typename T>
T Load(const std::byte* value) {
  T result;
  std::memcpy(&result, value, sizeof(T));
  return result;
}

}  // namespace

bool IsValueType(uint32_t number) { return number <= static_cast<uint32_t>(ValueType::kF64); }

bool IsFixedSize(ValueType type) { return type != ValueType::kString && type != ValueType::kArray; }

bool IsFloat(ValueType type) { return type == ValueType::kF32 || type == ValueType::kF64; }

bool IsInteger(ValueType type) {
  return IsFixedSize(type) && !IsFloat(type) && type != ValueType::kBool;
}

uint64_t MinValueBytes(ValueType type) {
  switch (type) {
    case ValueType::kU8:
    case ValueType::kI8:
    case ValueType::kBool:
      return 1;
    case ValueType::kU16:
    case ValueType::kI16:
      return 2;
    case ValueType::kU32:
    case ValueType::kI32:
    case ValueType::kF32:
      return 4;
    case ValueType::kU64:
    case ValueType::kI64:
    case ValueType::kF64:
    case ValueType::kString:
      return 8;
    case ValueType::kArray:
      return 12;
  }
  return 1;
}

absl::string_view ValueTypeName(ValueType type) {
  constexpr absl::string_view kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                          "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

std::optional<absl::int128> LoadInteger(ValueType type, const std::byte* value) {
  switch (type) {
    case ValueType::kU8:
      return absl::int128(Load<uint8_t>(value));
    case ValueType::kI8:
      return absl::int128(Load<int8_t>(value));
    case ValueType::kU16:
      return absl::int128(Load<uint16_t>(value));
    case ValueType::kI16:
      return absl::int128(Load<int16_t>(value));
    case ValueType::kU32:
      return absl::int128(Load<uint32_t>(value));
    case ValueType::kI32:
      return absl::int128(Load<int32_t>(value));
    case ValueType::kU64:
      return absl::int128(Load<uint64_t>(value));
    case ValueType::kI64:
      return absl::int128(Load<int64_t>(value));
    default:
      return std::nullopt;
  }
}

std::optional<double> LoadFloat(ValueType type, const std::byte* value) {
  if (type == ValueType::kF32) return static_cast<double>(Load<float>(value));
  if (type == ValueType::kF64) return Load<double>(value);
  return std::nullopt;
}

}  // namespace tokend::gguf
