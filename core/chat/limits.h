// What one rendering may take, whoever wrote the template.
#ifndef TOKEND_CORE_CHAT_LIMITS_H_
#define TOKEND_CORE_CHAT_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace tokend::chat {

// Bytes of a template's source. The largest in use have some 20 KiB.
inline constexpr size_t kMaxSourceBytes = 1 << 20;
// Bytes of any one string, the output included: eight times what a chat may hold.
inline constexpr size_t kMaxStringBytes = 8 << 20;
// Elements of any one list or dict.
inline constexpr size_t kMaxElements = 1 << 20;
// A range, as in Jinja's sandbox.
inline constexpr int64_t kMaxRange = 100000;
// Nodes evaluated, plus elements made, plus a step for each 64 bytes of strings made. 1,024
// messages take a template some 200,000; it also bounds memory, to about half a GiB.
inline constexpr int64_t kMaxSteps = 8 << 20;
// Nested evaluations, macros included: the stack's bound, a few hundred KiB.
inline constexpr int kMaxCallDepth = 500;
// Brackets and blocks within each other in a template's source.
inline constexpr int kMaxSourceDepth = 100;
// Lists and dicts within each other.
inline constexpr int kMaxNesting = 100;

}  // namespace tokend::chat

#endif  // TOKEND_CORE_CHAT_LIMITS_H_
