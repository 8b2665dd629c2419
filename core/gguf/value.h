// Facts about GGUF's value types, and reading one scalar.
#ifndef TOKEND_CORE_GGUF_VALUE_H_
#define TOKEND_CORE_GGUF_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/numeric/int128.h"
#include "core/gguf/file.h"

namespace tokend::gguf {

bool IsValueType(uint32_t number);

// Scalars; not strings and arrays.
bool IsFixedSize(ValueType type);

bool IsInteger(ValueType type);
bool IsFloat(ValueType type);

// Size of a scalar; of a string its length field, of an array its header.
uint64_t MinValueBytes(ValueType type);

// Absent: not an integer type.
std::optional<absl::int128> LoadInteger(ValueType type, const std::byte* value);

// Absent: not a float type.
std::optional<double> LoadFloat(ValueType type, const std::byte* value);

}  // namespace tokend::gguf

#endif  // TOKEND_CORE_GGUF_VALUE_H_
