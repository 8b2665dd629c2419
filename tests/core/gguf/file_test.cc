#include "core/gguf/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <random>

#include "core/gguf/errors.h"
#include "tests/core/gguf/parse.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/random_weights.h"

namespace tokend::gguf {
namespace {

using ::tokend::testing::GgufWriter;

class FileTest : public ::testing::Test {
 protected:
  // A path of this test's own.
  static std::string Path() {
    return ::testing::TempDir() + "tokend_gguf_" + std::to_string(::getpid()) + ".gguf";
  }
  void TearDown() override { ::unlink(Path().c_str()); }
};

std::string F32Bytes(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

TEST_F(FileTest, ReadsTensorsOfBothVersions) {
  for (uint32_t version : {2u, 3u}) {
    GgufWriter writer(version);
    writer.Tensor("a", {3, 2}, base::WeightType::kF32, F32Bytes({1, 2, 3, 4, 5, 6}));
    writer.Tensor("b", {1}, base::WeightType::kF32, F32Bytes({7}));
    ASSERT_TRUE(writer.WriteTo(Path()).ok());
    const auto file = File::Open(Path());
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->version(), version);
    EXPECT_EQ((*file)->path(), Path());
    ASSERT_EQ((*file)->tensors().size(), 2u);
    const TensorInfo* a = (*file)->FindTensor("a");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->rank, 2);
    EXPECT_EQ(a->row_elements(), 3u);
    EXPECT_EQ(a->rows(), 2u);
    EXPECT_EQ(a->elements(), 6u);
    ASSERT_EQ(a->data.size(), 24u);
    EXPECT_EQ(std::memcmp(a->data.data(), F32Bytes({1, 2, 3, 4, 5, 6}).data(), 24), 0);
    const auto b = (*file)->GetTensor("b");
    ASSERT_TRUE(b.ok());
    EXPECT_EQ(std::memcmp((*b)->data.data(), F32Bytes({7}).data(), 4), 0);
    EXPECT_EQ((*file)->FindTensor("c"), nullptr);
    EXPECT_EQ((*file)->GetTensor("c").status().message(), "tensor 'c': missing from the file");
  }
}

TEST_F(FileTest, EveryTypeHasItsSizeAndAlignment) {
  std::mt19937_64 rng(20240517);
  const base::WeightType types[] = {
      base::WeightType::kF32,  base::WeightType::kF16,  base::WeightType::kBF16,
      base::WeightType::kQ4_0, base::WeightType::kQ4_1, base::WeightType::kQ5_0,
      base::WeightType::kQ5_1, base::WeightType::kQ8_0, base::WeightType::kQ4_K,
      base::WeightType::kQ5_K, base::WeightType::kQ6_K};
  GgufWriter writer(3, 64);
  writer.U32("general.alignment", 64);
  std::vector<std::string> weights;
  for (base::WeightType type : types) {
    weights.push_back(testing::RandomWeights(type, 256 * 3, 1.0f, rng));
    writer.Tensor(std::string(base::GetWeightType(type).name), {256, 3}, type, weights.back());
  }
  ASSERT_TRUE(writer.WriteTo(Path()).ok());
  const auto file = File::Open(Path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->alignment(), 64u);
  for (size_t i = 0; i < std::size(types); ++i) {
    const TensorInfo& tensor = (*file)->tensors()[i];
    EXPECT_EQ(tensor.type, types[i]);
    ASSERT_EQ(tensor.data.size(), weights[i].size());
    EXPECT_EQ(std::memcmp(tensor.data.data(), weights[i].data(), weights[i].size()), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data.data()) % 64, 0u);
  }
}

TEST_F(FileTest, MetadataCanBeReadWhateverTheTensorsAre) {
  GgufWriter writer;
  writer.String("general.name", "of another day").RawTensor("w", {256}, 999, 0, "data");
  ASSERT_TRUE(writer.WriteTo(Path()).ok());
  EXPECT_EQ(File::Open(Path()).status().code(), absl::StatusCode::kUnimplemented);
  const auto file = File::OpenMetadata(Path());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->GetString("general.name"), "of another day");
  EXPECT_TRUE((*file)->tensors().empty());
}

TEST_F(FileTest, ReleasedMemoryReadsTheSameAgain) {
  std::mt19937_64 rng(7);
  const std::string weights = testing::RandomWeights(base::WeightType::kF32, 1 << 16, 1.0f, rng);
  GgufWriter writer;
  writer.Tensor("w", {1 << 16}, base::WeightType::kF32, weights);
  ASSERT_TRUE(writer.WriteTo(Path()).ok());
  const auto file = File::Open(Path());
  ASSERT_TRUE(file.ok());
  const TensorInfo& tensor = (*file)->tensors()[0];
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(std::memcmp(tensor.data.data(), weights.data(), weights.size()), 0);
    (*file)->ReleaseMemory();
  }
}

// Memory of this process that mapped files back, as the kernel counts it.
int64_t MappedFileBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0, shared = 0;
  statm >> total >> resident >> shared;
  return shared * ::sysconf(_SC_PAGESIZE);
}

TEST_F(FileTest, ReleasedMemoryIsGivenBack) {
  std::mt19937_64 rng(8);
  constexpr uint64_t kElements = 4 << 20;
  const std::string weights = testing::RandomWeights(base::WeightType::kF32, kElements, 1, rng);
  GgufWriter writer;
  writer.Tensor("w", {kElements}, base::WeightType::kF32, weights);
  ASSERT_TRUE(writer.WriteTo(Path()).ok());
  const auto file = File::Open(Path());
  ASSERT_TRUE(file.ok());
  const int64_t before = MappedFileBytes();
  const TensorInfo& tensor = (*file)->tensors()[0];
  EXPECT_EQ(std::memcmp(tensor.data.data(), weights.data(), weights.size()), 0);
  const auto bytes = static_cast<int64_t>(weights.size());
  if (MappedFileBytes() < before + bytes / 2) GTEST_SKIP() << "emulated: mappings are not counted";
  (*file)->ReleaseMemory();
  EXPECT_LT(MappedFileBytes(), before + bytes / 4);
}

TEST_F(FileTest, OpenErrorsNameThePathAndAreNotBadModelFiles) {
  const auto missing = File::Open("/nonexistent/model.gguf");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("/nonexistent/model.gguf"), absl::string_view::npos);
  EXPECT_FALSE(IsBadModelFile(missing.status()));
  if (::geteuid() != 0) {
    std::ofstream(Path()) << "GGUF";
    ::chmod(Path().c_str(), 0);
    EXPECT_EQ(File::Open(Path()).status().code(), absl::StatusCode::kPermissionDenied);
  }
}

TEST_F(FileTest, WhatIsNoFileIsRefusedAtOnce) {
  EXPECT_TRUE(absl::IsDataLoss(File::Open(::testing::TempDir()).status()));
  EXPECT_TRUE(absl::IsDataLoss(File::Open("/dev/null").status()));
  ASSERT_EQ(::mkfifo(Path().c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsDataLoss(File::Open(Path()).status()));  // without waiting for a writer
  ::unlink(Path().c_str());
  std::ofstream(Path()).close();
  const auto empty = File::Open(Path());
  EXPECT_EQ(empty.status().message(), Path() + ": the file is empty");
}

TEST_F(FileTest, ADamagedFileIsNamed) {
  std::ofstream(Path()) << "version https://git-lfs.github.com/spec/v1";
  const absl::Status status = File::Open(Path()).status();
  EXPECT_TRUE(IsBadModelFile(status));
  EXPECT_EQ(status.message(), Path() + ": header at byte 0: not a GGUF file (wrong magic number)");
}

TEST_F(FileTest, AFileWithoutTensorsMayEndAfterItsMetadata) {
  GgufWriter writer;
  writer.String("general.name", "vocabulary only");
  const std::string bytes = writer.Build();
  const auto file = ParseString(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->tensors().empty());
  EXPECT_EQ((*file)->alignment(), 32u);
}

}  // namespace
}  // namespace tokend::gguf
