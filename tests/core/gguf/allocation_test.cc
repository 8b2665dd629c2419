// Files that claim much and hold little: what parsing them allocates stays a small multiple of
// their size. Counts what goes through operator new.
#include <gtest/gtest.h>

#include "core/gguf/file.h"
#include "tests/core/gguf/parse.h"
#include "tests/support/allocations.h"
#include "tests/support/gguf_writer.h"

namespace tokend::gguf {
namespace {

using ::tokend::testing::AllAllocations;
using ::tokend::testing::Bytes;
using ::tokend::testing::GgufWriter;

constexpr size_t kAllowance = 16 << 10;  // the File, messages, first blocks of containers
constexpr size_t kPerByte = 16;

void ExpectBounded(const std::string& bytes) {
  const size_t before = AllAllocations().bytes;
  const auto file = ParseString(bytes);
  const size_t allocated = AllAllocations().bytes - before;
  EXPECT_LE(allocated, kAllowance + kPerByte * bytes.size())
      << bytes.size() << " bytes, " << file.status();
}

constexpr uint64_t kHuge[] = {uint64_t{1} << 20,       uint64_t{1} << 32, uint64_t{1} << 61,
                              (uint64_t{1} << 61) + 1, ~uint64_t{0},      ~uint64_t{0} - 31};

TEST(AllocationTest, CounterWorks) {
  const size_t before = AllAllocations().bytes;
  std::vector<char> block(1 << 20);
  EXPECT_GE(AllAllocations().bytes - before, size_t{1} << 20);
}

TEST(AllocationTest, HugeCountsInTheHeader) {
  for (uint64_t huge : kHuge) {
    ExpectBounded("GGUF" + Bytes<uint32_t>(3) + Bytes(huge) + Bytes<uint64_t>(0));
    ExpectBounded("GGUF" + Bytes<uint32_t>(3) + Bytes<uint64_t>(0) + Bytes(huge));
    ExpectBounded("GGUF" + Bytes<uint32_t>(3) + Bytes(huge) + Bytes(huge) + std::string(512, '\1'));
  }
}

TEST(AllocationTest, HugeArraysAndStrings) {
  for (uint64_t huge : kHuge) {
    for (uint32_t type = 0; type <= 12; ++type) {
      GgufWriter array;
      array.Raw("k", 9, Bytes(type) + Bytes(huge) + std::string(64, '\0'));
      ExpectBounded(array.Build());
    }
    GgufWriter text;
    text.Raw("k", 8, Bytes(huge) + "abc");
    ExpectBounded(text.Build());
  }
}

TEST(AllocationTest, ManySmallThings) {
  GgufWriter keys;
  for (int i = 0; i < 4000; ++i) keys.Raw(std::to_string(i), 0, "\1");
  ExpectBounded(keys.Build());
  GgufWriter tensors;
  for (int i = 0; i < 4000; ++i) {
    tensors.RawTensor(std::to_string(i), {8}, 0, static_cast<uint64_t>(i) * 32,
                      std::string(32, 'x'));
  }
  ExpectBounded(tensors.Build());
}

TEST(AllocationTest, ArraysReadBackAreBoundedToo) {
  GgufWriter writer;
  writer.Strings("strings", std::vector<std::string>(10000));
  writer.Raw("bytes", 9, Bytes<uint32_t>(0) + Bytes<uint64_t>(10000) + std::string(10000, '\1'));
  const std::string bytes = writer.Build();
  const auto file = ParseString(bytes);
  ASSERT_TRUE(file.ok());
  const size_t before = AllAllocations().bytes;
  EXPECT_EQ((*file)->GetStrings("strings")->size(), 10000u);
  EXPECT_EQ((*file)->GetI32s("bytes")->size(), 10000u);
  EXPECT_LE(AllAllocations().bytes - before, kPerByte * bytes.size());
}

}  // namespace
}  // namespace tokend::gguf
