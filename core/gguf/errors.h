// Failures of reading a model file. Every message is one line: the key or tensor, the byte
// offset, what is wrong; File::Open puts the path in front. Names from the file are escaped and
// cut.
//
//   DATA_LOSS          the file is damaged, malformed or lacks what it must hold
//   UNIMPLEMENTED      well-formed, but it needs what this build does not have
//   NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE
//                      the file cannot be opened or read
//
// The first two mean that no restart helps: the daemon exits with 65.
#ifndef TOKEND_CORE_GGUF_ERRORS_H_
#define TOKEND_CORE_GGUF_ERRORS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tokend::gguf {

// True for DATA_LOSS and UNIMPLEMENTED.
bool IsBadModelFile(const absl::Status& status);

// By errno: ENOENT and ENOTDIR are NOT_FOUND, EACCES and EPERM PERMISSION_DENIED.
absl::Status CannotOpen(absl::string_view path, absl::string_view action, int error_number);

// DATA_LOSS. `offset` counts bytes from the start of the file.
absl::Status Damaged(absl::string_view where, uint64_t offset, absl::string_view problem);

// DATA_LOSS: about a whole key, tensor or token, where an offset says nothing.
absl::Status Damaged(absl::string_view where, absl::string_view problem);

// UNIMPLEMENTED.
absl::Status Unsupported(absl::string_view where, absl::string_view problem);

// 'key', printable and at most 64 characters of it.
std::string Quoted(absl::string_view name);

}  // namespace tokend::gguf

#endif  // TOKEND_CORE_GGUF_ERRORS_H_
