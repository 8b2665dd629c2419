#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "core/cpu/cpu_features.h"
#include "core/cpu/huge_pages.h"
#include "gtest/gtest.h"

namespace tokend::cpu {
namespace {

TEST(HugeBufferTest, IsZeroAlignedAndWritable) {
  for (const int64_t bytes : {int64_t{1}, int64_t{100'000}, int64_t{5} << 20}) {
    absl::StatusOr<HugeBuffer> buffer = HugeBuffer::Allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->size(), bytes);
    const int64_t alignment = bytes < (2 << 20) ? 4096 : 2 << 20;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % static_cast<uintptr_t>(alignment), 0u);
    EXPECT_EQ(buffer->data()[bytes - 1], std::byte{0});
    std::memset(buffer->data(), 1, static_cast<size_t>(bytes));
    HugeBuffer moved = *std::move(buffer);
    EXPECT_EQ(moved.data()[bytes - 1], std::byte{1});
    EXPECT_GE(moved.HugePageBytes(), 0);
    EXPECT_LE(moved.HugePageBytes(), bytes);
  }
}

TEST(HugeBufferTest, ReportsWhatIsBacked) {
  const char* path = "/sys/kernel/mm/transparent_hugepage/enabled";
  FILE* file = std::fopen(path, "re");
  char line[100] = "";
  if (file != nullptr) {
    if (std::fgets(line, sizeof(line), file) == nullptr) line[0] = 0;
    std::fclose(file);
  }
  if (line[0] == 0 || std::strstr(line, "[never]") != nullptr) {
    GTEST_SKIP() << "no transparent huge pages here";
  }
  absl::StatusOr<HugeBuffer> buffer = HugeBuffer::Allocate(int64_t{64} << 20);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->HugePageBytes(), 0) << "nothing is touched yet";
  std::memset(buffer->data(), 1, static_cast<size_t>(buffer->size()));
  // Memory may be fragmented, so how much it gets is the system's to say.
  RecordProperty("huge_page_bytes", std::to_string(buffer->HugePageBytes()));
  EXPECT_LE(buffer->HugePageBytes(), buffer->size());
}

TEST(HugeBufferTest, TooMuchIsRefused) {
  absl::StatusOr<HugeBuffer> buffer = HugeBuffer::Allocate(int64_t{1} << 60);
  EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(WeightArenaTest, HandsOutAlignedPieces) {
  absl::StatusOr<WeightArena> arena = WeightArena::Create(64 + 128 + 64);
  ASSERT_TRUE(arena.ok());
  std::byte* first = arena->Take(1);
  std::byte* second = arena->Take(65);
  std::byte* third = arena->Take(64);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  EXPECT_EQ(second, first + 64);
  EXPECT_EQ(third, second + 128);
  EXPECT_EQ(arena->used(), arena->size());
  EXPECT_DEATH(arena->Take(1), "size");
}

TEST(CpuFeaturesTest, PlainIsAlwaysThereAndLast) {
  const std::vector<Isa> isas = SupportedIsas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.back(), Isa::kPlain);
}

TEST(CpuFeaturesTest, Choose) {
  unsetenv("TOKEND_CPU_ISA");
  EXPECT_EQ(*ChooseIsa(), SupportedIsas().front());
  for (const Isa isa : SupportedIsas()) {
    EXPECT_EQ(*ChooseIsa(IsaName(isa)), isa);
    setenv("TOKEND_CPU_ISA", std::string(IsaName(isa)).c_str(), 1);
    EXPECT_EQ(*ChooseIsa(), isa);
  }
  setenv("TOKEND_CPU_ISA", "", 1);
  EXPECT_EQ(*ChooseIsa(), SupportedIsas().front());
  setenv("TOKEND_CPU_ISA", "mmx", 1);
  EXPECT_EQ(ChooseIsa().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(*ChooseIsa("plain"), Isa::kPlain) << "a name goes before the environment";
  unsetenv("TOKEND_CPU_ISA");
  const absl::Status unknown = ChooseIsa("avx1024").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(unknown.message().find("plain"), std::string::npos) << "says what there is";
}

}  // namespace
}  // namespace tokend::cpu
