#ifndef TOKEND_CORE_GGUF_FINGERPRINT_H_
#define TOKEND_CORE_GGUF_FINGERPRINT_H_

#include <string>

#include "core/gguf/file.h"

namespace tokend::gguf {

// SHA-256, 64 hex digits, over what changes a model's results: each tensor's name, type, shape and
// data, and all metadata but the descriptive keys "general.*" (of which the architecture and the
// quantization version count). The order of keys and tensors in the file and its padding do not
// matter. Reads the whole file, tensors in parallel on `threads` threads (at least 1).
std::string Fingerprint(const File& file, int threads);

}  // namespace tokend::gguf

#endif  // TOKEND_CORE_GGUF_FINGERPRINT_H_
