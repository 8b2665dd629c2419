#include "tests/support/test_files.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace tokend::testing {
namespace {

std::optional<std::string> IfThere(const std::string& path) {
  if (!std::filesystem::exists(path)) return std::nullopt;
  return path;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<std::string> CachedModel(absl::string_view name) {
  std::string cache = Environment("TOKEND_CACHE");
  if (cache.empty()) {
    const std::string base = Environment("XDG_CACHE_HOME");
    cache = absl::StrCat(base.empty() ? Environment("HOME") + "/.cache" : base, "/tokend");
  }
  return IfThere(absl::StrCat(cache, "/models/", name));
}

}  // namespace

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  EXPECT_TRUE(in) << "cannot read " << path;
  return bytes.str();
}

std::optional<std::string> SharedFile(absl::string_view name) {
  return IfThere(absl::StrCat("../shared/", name));
}

std::optional<std::string> SmolLm2File() {
  const std::string chosen = Environment("TOKEND_TEST_MODEL");
  if (!chosen.empty()) return IfThere(chosen);
  return CachedModel("SmolLM2-135M-Instruct.Q4_1.gguf");
}

std::optional<std::string> Gemma3File() { return CachedModel("gemma-3-270m-q4_k_m.gguf"); }

}  // namespace tokend::testing
