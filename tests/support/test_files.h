// Files that tests use where they are there, and skip visibly without.
#ifndef TOKEND_TESTS_SUPPORT_TEST_FILES_H_
#define TOKEND_TESTS_SUPPORT_TEST_FILES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace tokend::testing {

// The whole file. Fails the test if it cannot be read.
std::string ReadFile(const std::string& path);

// ../shared/NAME beside the project, if it is there.
std::optional<std::string> SharedFile(absl::string_view name);

// SmolLM2-135M-Instruct.Q4_1.gguf: $TOKEND_TEST_MODEL, or where `./dev model smollm2` puts it.
std::optional<std::string> SmolLm2File();

// gemma-3-270m-q4_k_m.gguf, where `./dev model gemma3` puts it.
std::optional<std::string> Gemma3File();

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_TEST_FILES_H_
