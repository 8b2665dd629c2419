#ifndef TOKEND_TESTS_CORE_GGUF_PARSE_H_
#define TOKEND_TESTS_CORE_GGUF_PARSE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/gguf/file.h"

namespace tokend::gguf {

// `bytes` must outlive the file.
inline absl::StatusOr<std::unique_ptr<File>> ParseString(const std::string& bytes) {
  return File::Parse(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
}

}  // namespace tokend::gguf

#endif  // TOKEND_TESTS_CORE_GGUF_PARSE_H_
