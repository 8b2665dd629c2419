#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "absl/strings/match.h"
#include "core/gguf/errors.h"
#include "core/gguf/file.h"
#include "tests/core/gguf/parse.h"
#include "tests/support/gguf_writer.h"

namespace tokend::gguf {
namespace {

using ::tokend::testing::Bytes;
using ::tokend::testing::GgufWriter;

constexpr uint32_t kF32 = 0;
constexpr uint64_t kMax = ~uint64_t{0};

void ExpectError(const std::string& bytes, absl::StatusCode code, const std::string& message) {
  const auto file = ParseString(bytes);
  EXPECT_EQ(file.status().code(), code) << file.status();
  EXPECT_TRUE(absl::StrContains(file.status().message(), message)) << file.status();
}

void ExpectDamaged(const std::string& bytes, const std::string& message) {
  ExpectError(bytes, absl::StatusCode::kDataLoss, message);
}

void ExpectDamaged(const GgufWriter& writer, const std::string& message) {
  ExpectDamaged(writer.Build(), message);
}

std::string Header(uint32_t version, uint64_t tensors, uint64_t keys) {
  return "GGUF" + Bytes(version) + Bytes(tensors) + Bytes(keys);
}

GgufWriter OneTensor(absl::Span<const uint64_t> shape, uint32_t type, uint64_t offset,
                     size_t data_bytes) {
  GgufWriter writer;
  writer.RawTensor("w", shape, type, offset, "");
  writer.RawTensor("z", {1}, kF32, data_bytes, "zzzz");  // so that there are data
  return writer;
}

TEST(DamagedTest, Headers) {
  ExpectDamaged("", "header at byte 0: the file ends early");
  ExpectDamaged("GGU", "header at byte 0: the file ends early");
  ExpectDamaged("GGML" + Header(3, 0, 0).substr(4), "not a GGUF file");
  ExpectDamaged(Header(3, 0, 0).substr(0, 20), "the file ends early, after 20 bytes");
  for (uint32_t version : {0u, 1u, 4u, 0xffffffffu}) {
    ExpectError(Header(version, 0, 0), absl::StatusCode::kUnimplemented, "supported: 2 and 3");
  }
  ExpectError(Header(0x03000000u, 0, 0), absl::StatusCode::kUnimplemented, "big-endian");
}

TEST(DamagedTest, CountsThatCannotFit) {
  for (uint64_t count : {uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 62, kMax}) {
    ExpectDamaged(Header(3, 0, count), "metadata keys cannot fit into 0 bytes");
    ExpectDamaged(Header(3, count, 0), "tensors cannot fit into 0 bytes");
  }
}

TEST(DamagedTest, Strings) {
  for (uint64_t size : {uint64_t{100}, uint64_t{1} << 40, uint64_t{1} << 63, kMax}) {
    const std::string padding(64, 'x');
    ExpectDamaged(Header(3, 0, 1) + Bytes(size) + padding, "metadata key number 0 at byte 24");
    GgufWriter value;
    value.Raw("name", 8, Bytes(size) + "abc");
    ExpectDamaged(value, "key 'name' at byte 40: a string of " + std::to_string(size) +
                             " bytes, but only 3 are left");
    GgufWriter element;
    element.Raw("names", 9, Bytes<uint32_t>(8) + Bytes<uint64_t>(1) + Bytes(size) + "abc");
    ExpectDamaged(element, "key 'names' at byte 53");
  }
  GgufWriter empty;
  empty.U32("", 1);
  ExpectDamaged(empty, "empty name");
  GgufWriter longer;
  longer.U32(std::string(65536, 'k'), 1);
  ExpectDamaged(longer, "at most 65535");
}

TEST(DamagedTest, Arrays) {
  // 2^61 elements of 8 bytes wrap to 0 bytes, 2^61 + 1 to 8.
  for (uint64_t count : {uint64_t{9}, uint64_t{1} << 61, (uint64_t{1} << 61) + 1, kMax}) {
    for (uint32_t type : {8u, 9u, 10u, 11u, 12u}) {
      GgufWriter writer;
      writer.Raw("k", 9, Bytes(type) + Bytes(count) + std::string(64, '\0'));
      ExpectDamaged(writer, "key 'k' at byte 37: an array of " + std::to_string(count));
    }
  }
  std::string nested = Bytes<uint32_t>(0) + Bytes<uint64_t>(0);
  for (int depth = 0; depth < 4; ++depth) {
    nested = Bytes<uint32_t>(9) + Bytes<uint64_t>(1) + nested;
  }
  GgufWriter deep;
  deep.Raw("k", 9, nested);
  ExpectDamaged(deep, "nested deeper than 4");
  std::string bottomless;
  for (int i = 0; i < 100000; ++i) bottomless += Bytes<uint32_t>(9) + Bytes<uint64_t>(1);
  GgufWriter abyss;
  abyss.Raw("k", 9, bottomless);
  ExpectDamaged(abyss, "nested deeper than 4");
}

TEST(DamagedTest, Types) {
  for (uint32_t type : {13u, 255u, 0x80000000u, 0xffffffffu}) {
    GgufWriter value;
    value.Raw("k", type, std::string(32, '\0'));
    ExpectDamaged(value, "unknown value type " + std::to_string(type));
    GgufWriter element;
    element.Raw("k", 9, Bytes(type) + Bytes<uint64_t>(0));
    ExpectDamaged(element, "unknown array element type " + std::to_string(type));
  }
  GgufWriter boolean;
  boolean.Raw("k", 7, "\2");
  ExpectDamaged(boolean, "a bool that is neither 0 nor 1");
  GgufWriter booleans;
  booleans.Raw("k", 9, Bytes<uint32_t>(7) + Bytes<uint64_t>(2) + "\1\2");
  ExpectDamaged(booleans, "a bool that is neither 0 nor 1");
}

TEST(DamagedTest, Duplicates) {
  GgufWriter keys;
  keys.U32("same", 1).F32("same", 2.0f);
  ExpectDamaged(keys, "key 'same' at byte 44: the key is there twice");
  GgufWriter tensors;
  tensors.RawTensor("same", {1}, kF32, 0, "aaaa").RawTensor("same", {1}, kF32, 32, "bbbb");
  ExpectDamaged(tensors, "the tensor is there twice");
}

TEST(DamagedTest, Shapes) {
  ExpectDamaged(OneTensor({}, kF32, 0, 64), "0 dimensions");
  ExpectDamaged(OneTensor({1, 1, 1, 1, 1}, kF32, 0, 64), "5 dimensions");
  ExpectDamaged(OneTensor({0}, kF32, 0, 64), "tensor 'w' at byte 37: dimension 0 is zero");
  ExpectDamaged(OneTensor({4, 0}, kF32, 0, 64), "dimension 1 is zero");
  // Products that wrap to 0, to a small number, and to one that just fits.
  ExpectDamaged(OneTensor({uint64_t{1} << 32, uint64_t{1} << 32}, kF32, 0, 64), "dimension 1");
  ExpectDamaged(OneTensor({kMax, kMax}, kF32, 0, 64), "dimension 0 is absurd");
  ExpectDamaged(OneTensor({1, 1, uint64_t{1} << 62, 4}, kF32, 0, 64), "dimension 2 is absurd");
  ExpectDamaged(OneTensor({uint64_t{1} << 62}, kF32, 0, 64), "dimension 0 is absurd");
  ExpectDamaged(OneTensor({33}, 8, 0, 64), "no multiple of the block of Q8_0, 32");
  ExpectDamaged(OneTensor({32}, 12, 0, 64), "no multiple of the block of Q4_K, 256");
}

TEST(DamagedTest, TensorTypes) {
  for (uint32_t type : {4u, 9u, 16u, 24u, 31u, 0xffffffffu}) {
    ExpectError(OneTensor({256}, type, 0, 64).Build(), absl::StatusCode::kUnimplemented,
                "tensor 'w' at byte 45: tensor type " + std::to_string(type));
  }
}

TEST(DamagedTest, Offsets) {
  ExpectDamaged(OneTensor({1}, kF32, 4, 64), "data offset 4 is no multiple of the alignment, 32");
  for (uint64_t offset : {uint64_t{96}, uint64_t{1} << 40, kMax - 31}) {
    ExpectDamaged(OneTensor({1}, kF32, offset, 64), "tensor 'w': its 4 bytes of data at offset " +
                                                        std::to_string(offset) + " run past");
  }
  ExpectDamaged(OneTensor({uint64_t{1} << 40}, kF32, 0, 64), "run past the end");
  ExpectDamaged(OneTensor({18}, kF32, 0, 64), "run past the end");
  EXPECT_TRUE(ParseString(OneTensor({16}, kF32, 0, 64).Build()).ok());
}

TEST(DamagedTest, Overlaps) {
  ExpectDamaged(OneTensor({17}, kF32, 0, 64), "overlaps tensor 'w'");
  ExpectDamaged(OneTensor({1}, kF32, 64, 64), "overlaps tensor");  // the same place
  GgufWriter inside;
  inside.RawTensor("inner", {1}, kF32, 32, "")
      .RawTensor("outer", {24}, kF32, 0, std::string(96, 'x'));
  ExpectDamaged(inside, "tensor 'inner' at byte 160: its data overlaps tensor 'outer'");
}

TEST(DamagedTest, Alignments) {
  for (uint32_t alignment : {0u, 1u, 4u, 7u, 33u, 0xffffffffu}) {
    GgufWriter writer;
    writer.U32("general.alignment", alignment);
    ExpectDamaged(writer, "key 'general.alignment': " + std::to_string(alignment));
  }
  GgufWriter text;
  text.String("general.alignment", "32");
  ExpectDamaged(text, "its type is string, wanted u32");
  GgufWriter beyond;
  beyond.U32("general.alignment", 1u << 31).RawTensor("w", {1}, kF32, 0, "data");
  ExpectDamaged(beyond, "run past the end");
}

TEST(DamagedTest, PartsOfASplitModel) {
  GgufWriter writer;
  writer.Raw("split.count", 2, Bytes<uint16_t>(5));
  ExpectError(writer.Build(), absl::StatusCode::kUnimplemented, "split into 5 files");
}

TEST(DamagedTest, NamesAreShownPrintableAndCut) {
  GgufWriter writer;
  const std::string name = "a\nb\x1b" + std::string(100, 'n');
  writer.U32(name, 1).U32(name, 2);
  const absl::Status status = ParseString(writer.Build()).status();
  EXPECT_TRUE(absl::StrContains(status.message(), "'a\\nb\\x1b")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "...'")) << status;
  EXPECT_LT(status.message().size(), 200u);
}

// A file with every kind of value and two tensors, the last byte of which is data.
std::string SmallFile() {
  GgufWriter writer;
  testing::AddTinyVocabulary(writer);
  writer.U64("u64", 1).F32("f32", 2.0f).Bool("bool", true).F32s("f32s", {1, 2});
  writer.Tensor("a", {32, 2}, base::WeightType::kQ8_0, std::string(68, 'q'));
  writer.Tensor("b", {3}, base::WeightType::kF32, std::string(12, 'f'));
  return writer.Build();
}

void ExpectInside(const File& file, const std::string& bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.data());
  for (const TensorInfo& tensor : file.tensors()) {
    EXPECT_GE(tensor.data.data(), begin);
    EXPECT_LE(tensor.data.data() + tensor.data.size(), begin + bytes.size());
  }
  for (const MetadataEntry& entry : file.metadata()) {
    EXPECT_GE(entry.raw.data(), begin);
    EXPECT_LE(entry.raw.data() + entry.raw.size(), begin + bytes.size());
  }
}

void ExpectOneLine(const absl::Status& status) {
  EXPECT_TRUE(IsBadModelFile(status)) << status;
  EXPECT_FALSE(status.message().empty());
  EXPECT_TRUE(std::all_of(status.message().begin(), status.message().end(), [](char c) {
    return c >= ' ' && c <= '~';
  })) << status;
}

TEST(DamagedTest, CutAtEveryByte) {
  const std::string whole = SmallFile();
  ASSERT_TRUE(ParseString(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    // A copy of its own, so that a sanitizer sees a read beyond its end.
    const std::string cut = whole.substr(0, size);
    const auto file = ParseString(cut);
    ASSERT_FALSE(file.ok()) << "cut to " << size << " bytes";
    ExpectOneLine(file.status());
  }
}

TEST(DamagedTest, AnyByteChanged) {
  const std::string whole = SmallFile();
  for (size_t i = 0; i < whole.size(); ++i) {
    for (unsigned char value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::string changed = whole;
      changed[i] = static_cast<char>(value);
      const auto file = ParseString(changed);
      if (file.ok()) {
        ExpectInside(**file, changed);
      } else {
        ExpectOneLine(file.status());
      }
    }
  }
}

TEST(DamagedTest, RandomDamage) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 rng(seed);
  const std::string whole = SmallFile();
  for (int round = 0; round < 3000; ++round) {
    std::string changed = whole;
    for (uint64_t change = rng() % 4 + 1; change > 0; --change) {
      const size_t at = rng() % changed.size();
      const std::string splice = Bytes<uint64_t>(rng() >> (rng() % 64));
      if (rng() % 3 == 0) {
        changed.insert(at, splice.substr(0, rng() % 9));
      } else if (rng() % 2 == 0) {
        changed.erase(at, rng() % 9);
      } else {
        changed.replace(at, std::min<size_t>(8, changed.size() - at), splice);
      }
    }
    const auto file = ParseString(changed);
    if (file.ok()) {
      ExpectInside(**file, changed);
    } else {
      ExpectOneLine(file.status());
    }
  }
}

}  // namespace
}  // namespace tokend::gguf
