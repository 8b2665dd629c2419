// File's typed access to metadata.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/byte_reader.h"
#include "core/gguf/errors.h"
#include "core/gguf/file.h"
#include "core/gguf/value.h"

namespace tokend::gguf {
namespace {

std::string TypeOf(const MetadataEntry& entry) {
  if (entry.type != ValueType::kArray) return std::string(ValueTypeName(entry.type));
  return absl::StrCat("array of ", ValueTypeName(entry.element_type));
}

absl::Status WrongType(const MetadataEntry& entry, absl::string_view wanted) {
  return Damaged(absl::StrCat("key ", Quoted(entry.key)),
                 absl::StrCat("its type is ", TypeOf(entry), ", wanted ", wanted));
}

absl::Status OutOfRange(const MetadataEntry& entry, absl::string_view value,
                        absl::string_view wanted) {
  return Damaged(absl::StrCat("key ", Quoted(entry.key)),
                 absl::StrCat("its value ", value, " does not fit ", wanted));
}

std::string Decimal(absl::int128 value) {
  return value < 0 ? absl::StrCat(static_cast<int64_t>(value))
                   : absl::StrCat(static_cast<uint64_t>(value));
}

template <typename T>
absl::StatusOr<T> IntegerFrom(const MetadataEntry& entry, ValueType type, const std::byte* value,
                              absl::string_view wanted) {
  const auto integer = LoadInteger(type, value);
  if (!integer.has_value()) return WrongType(entry, wanted);
  if (*integer < absl::int128(std::numeric_limits<T>::min()) ||
      *integer > absl::int128(std::numeric_limits<T>::max())) {
    return OutOfRange(entry, Decimal(*integer), wanted);
  }
  return static_cast<T>(*integer);
}

absl::StatusOr<float> FloatFrom(const MetadataEntry& entry, ValueType type,
                                const std::byte* value) {
  const auto number = LoadFloat(type, value);
  if (!number.has_value()) return WrongType(entry, "f32");
  const auto narrowed = static_cast<float>(*number);
  if (!std::isfinite(narrowed)) return OutOfRange(entry, absl::StrCat(*number), "f32");
  return narrowed;
}

// The elements of an array entry of scalars.
const std::byte* Elements(const MetadataEntry& entry) {
  return entry.raw.data() + MinValueBytes(ValueType::kArray);
}

}  // namespace

absl::StatusOr<const MetadataEntry*> File::Require(absl::string_view key) const {
  const MetadataEntry* entry = FindMetadata(key);
  if (entry == nullptr) {
    return Damaged(absl::StrCat("key ", Quoted(key)), "missing from the file");
  }
  return entry;
}

absl::StatusOr<uint32_t> File::GetU32(absl::string_view key) const {
  TOKEND_ASSIGN_OR_RETURN(const MetadataEntry* entry, Require(key));
  return IntegerFrom<uint32_t>(*entry, entry->type, entry->raw.data(), "u32");
}

absl::StatusOr<uint64_t> File::GetU64(absl::string_view key) const {
  TOKEND_ASSIGN_OR_RETURN(const MetadataEntry* entry, Require(key));
  return IntegerFrom<uint64_t>(*entry, entry->type, entry->raw.data(), "u64");
}

absl::StatusOr<int32_t> File::GetI32(absl::string_view key) const {
  TOKEND_ASSIGN_OR_RETURN(const MetadataEntry* entry, Require(key));
  return IntegerFrom<int32_t>(*entry, entry->type, entry->raw.data(), "i32");
}

absl::StatusOr<float> File::GetF32(absl::string_view key) const {
  TOKEND_ASSIGN_OR_RETURN(const MetadataEntry* entry, Require(key));
  return FloatFrom(*entry, entry->type, entry->raw.data());
}

absl::StatusOr<bool> File::GetBool(absl::string_view key) const {
  TOKEND_ASSIGN_OR_RETURN(const MetadataEntry* entry, Require(key));
  if (entry->type != ValueType::kBool) return WrongType(*entry, "bool");
  return entry->raw[0] != std::byte{0};
}

absl::StatusOr<absl::string_view> File::GetString(absl::string_view key) const {
  TOKEND_ASSIGN_OR_RETURN(const MetadataEntry* entry, Require(key));
  if (entry->type != ValueType::kString) return WrongType(*entry, "string");
  const auto text = entry->raw.subspan(MinValueBytes(ValueType::kString));
  return absl::string_view(reinterpret_cast<const char*>(text.data()), text.size());
}

absl::StatusOr<uint32_t> File::GetU32Or(absl::string_view key, uint32_t fallback) const {
  return Has(key) ? GetU32(key) : fallback;
}

absl::StatusOr<float> File::GetF32Or(absl::string_view key, float fallback) const {
  return Has(key) ? GetF32(key) : fallback;
}

absl::StatusOr<bool> File::GetBoolOr(absl::string_view key, bool fallback) const {
  return Has(key) ? GetBool(key) : fallback;
}

absl::StatusOr<absl::string_view> File::GetStringOr(absl::string_view key,
                                                    absl::string_view fallback) const {
  return Has(key) ? GetString(key) : fallback;
}

absl::StatusOr<std::vector<absl::string_view>> File::GetStrings(absl::string_view key) const {
  TOKEND_ASSIGN_OR_RETURN(const MetadataEntry* entry, Require(key));
  if (entry->type != ValueType::kArray || entry->element_type != ValueType::kString) {
    return WrongType(*entry, "array of string");
  }
  std::vector<absl::string_view> values(entry->count);
  ByteReader reader(entry->raw.subspan(MinValueBytes(ValueType::kArray)));
  for (absl::string_view& value : values) {
    uint64_t size = 0;
    reader.Read(&size);  // was walked when the file was opened
    reader.ReadBytes(size, &value);
  }
  return values;
}

absl::StatusOr<std::vector<int32_t>> File::GetI32s(absl::string_view key) const {
  TOKEND_ASSIGN_OR_RETURN(const MetadataEntry* entry, Require(key));
  const uint64_t size = MinValueBytes(entry->element_type);
  if (entry->type != ValueType::kArray || !IsInteger(entry->element_type)) {
    return WrongType(*entry, "array of i32");
  }
  std::vector<int32_t> values(entry->count);
  for (size_t i = 0; i < values.size(); ++i) {
    TOKEND_ASSIGN_OR_RETURN(values[i], IntegerFrom<int32_t>(*entry, entry->element_type,
                                                            Elements(*entry) + i * size, "i32"));
  }
  return values;
}

absl::StatusOr<std::vector<float>> File::GetF32s(absl::string_view key) const {
  TOKEND_ASSIGN_OR_RETURN(const MetadataEntry* entry, Require(key));
  const uint64_t size = MinValueBytes(entry->element_type);
  if (entry->type != ValueType::kArray || !IsFloat(entry->element_type)) {
    return WrongType(*entry, "array of f32");
  }
  std::vector<float> values(entry->count);
  for (size_t i = 0; i < values.size(); ++i) {
    TOKEND_ASSIGN_OR_RETURN(values[i],
                            FloatFrom(*entry, entry->element_type, Elements(*entry) + i * size));
  }
  return values;
}

absl::StatusOr<std::vector<bool>> File::GetBools(absl::string_view key) const {
  TOKEND_ASSIGN_OR_RETURN(const MetadataEntry* entry, Require(key));
  if (entry->type != ValueType::kArray || entry->element_type != ValueType::kBool) {
    return WrongType(*entry, "array of bool");
  }
  std::vector<bool> values(entry->count);
  for (size_t i = 0; i < values.size(); ++i) values[i] = Elements(*entry)[i] != std::byte{0};
  return values;
}

}  // namespace tokend::gguf
