#include "core/gguf/fingerprint.h"

#include <gtest/gtest.h>

#include "tests/core/gguf/parse.h"
#include "tests/support/gguf_writer.h"

namespace tokend::gguf {
namespace {

using ::tokend::testing::GgufWriter;

std::string Of(const GgufWriter& writer, int threads = 1) {
  const std::string bytes = writer.Build();
  const auto file = ParseString(bytes);
  EXPECT_TRUE(file.ok()) << file.status();
  return Fingerprint(**file, threads);
}

// A file with two tensors; each argument is one thing that may differ.
GgufWriter Make(absl::string_view name = "x", uint32_t heads = 4, char weight = 'w',
                absl::string_view tensor = "b") {
  GgufWriter writer;
  writer.String("general.name", name).U32("llama.attention.head_count", heads);
  writer.Tensor("a", {2}, base::WeightType::kF32, std::string(8, weight));
  writer.Tensor(tensor, {1, 2}, base::WeightType::kF32, std::string(8, 'v'));
  return writer;
}

TEST(FingerprintTest, IsStableAcrossThreadsAndLayout) {
  const std::string fingerprint = Of(Make());
  EXPECT_EQ(fingerprint.size(), 64u);
  EXPECT_EQ(Of(Make(), 3), fingerprint);
  GgufWriter other(2, 64);  // other order, version, alignment
  other.U32("general.alignment", 64).U32("llama.attention.head_count", 4);
  other.Tensor("b", {1, 2}, base::WeightType::kF32, std::string(8, 'v'));
  other.Tensor("a", {2}, base::WeightType::kF32, std::string(8, 'w'));
  EXPECT_EQ(Of(other), fingerprint);
  EXPECT_EQ(Of(Make("another name")), fingerprint);
}

TEST(FingerprintTest, DiffersInWhatChangesResults) {
  const std::string fingerprint = Of(Make());
  EXPECT_NE(Of(Make("x", 5)), fingerprint);
  EXPECT_NE(Of(Make("x", 4, 'W')), fingerprint);
  EXPECT_NE(Of(Make("x", 4, 'w', "c")), fingerprint);
  GgufWriter more = Make();
  more.String("general.architecture", "llama");
  EXPECT_NE(Of(more), fingerprint);
  GgufWriter shaped;  // {1, 2} has become {2}
  shaped.U32("llama.attention.head_count", 4);
  shaped.Tensor("a", {2}, base::WeightType::kF32, std::string(8, 'w'));
  shaped.Tensor("b", {2}, base::WeightType::kF32, std::string(8, 'v'));
  EXPECT_NE(Of(shaped), fingerprint);
}

// The definition itself: a change would make every stored snapshot foreign.
TEST(FingerprintTest, KnownValue) {
  EXPECT_EQ(Of(Make()), "5d3aa285db1fd569280e05b0d36a4166c0ecc0f7fca2ec974fd89dc4dc8f08da");
}

}  // namespace
}  // namespace tokend::gguf
