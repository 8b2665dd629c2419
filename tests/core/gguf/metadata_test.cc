#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/gguf/errors.h"
#include "core/gguf/file.h"
#include "tests/core/gguf/parse.h"
#include "tests/support/gguf_writer.h"

namespace tokend::gguf {
namespace {

using ::tokend::testing::Bytes;
using ::tokend::testing::GgufWriter;

uint32_t Number(ValueType type) { return static_cast<uint32_t>(type); }

class MetadataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    GgufWriter writer;
    writer.U32("u32", 7).I32("negative", -1).U64("big", uint64_t{1} << 40).F32("f32", 0.5f);
    writer.Bool("yes", true).String("text", "abc").Strings("texts", {"", "x", "yz"});
    writer.I32s("i32s", {1, -2, 3}).F32s("f32s", {1.5f, -2.5f}).I32s("none", {});
    writer.F32("nan", std::nanf("")).F32s("infinities", {std::numeric_limits<float>::infinity()});
    writer.Raw("u8", Number(ValueType::kU8), "\xff").Raw("i8", Number(ValueType::kI8), "\xff");
    writer.Raw("i64", Number(ValueType::kI64), Bytes(std::numeric_limits<int64_t>::min()));
    writer.Raw("u64", Number(ValueType::kU64), Bytes(std::numeric_limits<uint64_t>::max()));
    writer.Raw("f64", Number(ValueType::kF64), Bytes(0.25));
    writer.Raw("f64 too big", Number(ValueType::kF64), Bytes(1e300));
    const std::string three_bools = Bytes(Number(ValueType::kBool)) + Bytes<uint64_t>(3);
    writer.Raw("bools", Number(ValueType::kArray), three_bools + std::string("\1\0\1", 3));
    const std::string two_u16 = Bytes(Number(ValueType::kU16)) + Bytes<uint64_t>(2);
    writer.Raw("u16s", Number(ValueType::kArray), two_u16 + std::string("\x01\x00\xff\xff", 4));
    const std::string no_strings = Bytes(Number(ValueType::kString)) + Bytes<uint64_t>(0);
    writer.Raw("nested", Number(ValueType::kArray),
               Bytes(Number(ValueType::kArray)) + Bytes<uint64_t>(2) + no_strings + two_u16 +
                   std::string(4, '\0'));
    bytes_ = writer.Build();
    auto file = ParseString(bytes_);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
  }

  std::string bytes_;
  std::unique_ptr<File> file_;
};

TEST_F(MetadataTest, Scalars) {
  EXPECT_EQ(*file_->GetU32("u32"), 7u);
  EXPECT_EQ(*file_->GetI32("negative"), -1);
  EXPECT_EQ(*file_->GetU64("big"), uint64_t{1} << 40);
  EXPECT_EQ(*file_->GetU32("u8"), 255u);
  EXPECT_EQ(*file_->GetI32("i8"), -1);
  EXPECT_EQ(*file_->GetU64("u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*file_->GetF32("f32"), 0.5f);
  EXPECT_EQ(*file_->GetF32("f64"), 0.25f);
  EXPECT_TRUE(*file_->GetBool("yes"));
  EXPECT_EQ(*file_->GetString("text"), "abc");
}

TEST_F(MetadataTest, Arrays) {
  EXPECT_EQ(*file_->GetStrings("texts"), (std::vector<absl::string_view>{"", "x", "yz"}));
  EXPECT_EQ(*file_->GetI32s("i32s"), (std::vector<int32_t>{1, -2, 3}));
  EXPECT_EQ(*file_->GetI32s("u16s"), (std::vector<int32_t>{1, 65535}));
  EXPECT_EQ(*file_->GetI32s("none"), std::vector<int32_t>{});
  EXPECT_EQ(*file_->GetF32s("f32s"), (std::vector<float>{1.5f, -2.5f}));
  EXPECT_EQ(*file_->GetBools("bools"), (std::vector<bool>{true, false, true}));
  const MetadataEntry* nested = file_->FindMetadata("nested");
  ASSERT_NE(nested, nullptr);
  EXPECT_EQ(nested->element_type, ValueType::kArray);
  EXPECT_EQ(nested->count, 2u);
}

TEST_F(MetadataTest, MissingKeysFallBackButWrongTypesDoNot) {
  EXPECT_EQ(file_->GetU32("absent").status().message(), "key 'absent': missing from the file");
  EXPECT_TRUE(IsBadModelFile(file_->GetU32("absent").status()));
  EXPECT_EQ(*file_->GetU32Or("absent", 3), 3u);
  EXPECT_EQ(*file_->GetU32Or("u32", 3), 7u);
  EXPECT_EQ(*file_->GetF32Or("absent", 1.0f), 1.0f);
  EXPECT_TRUE(*file_->GetBoolOr("absent", true));
  EXPECT_EQ(*file_->GetStringOr("absent", "d"), "d");
  EXPECT_FALSE(file_->GetU32Or("text", 3).ok());
  EXPECT_FALSE(file_->GetF32Or("u32", 1.0f).ok());
  EXPECT_FALSE(file_->GetBoolOr("u32", true).ok());
  EXPECT_FALSE(file_->GetStringOr("u32", "d").ok());
}

TEST_F(MetadataTest, WrongTypesNameKeyAndTypes) {
  EXPECT_EQ(file_->GetU32("text").status().message(), "key 'text': its type is string, wanted u32");
  EXPECT_EQ(file_->GetU32("f32").status().message(), "key 'f32': its type is f32, wanted u32");
  EXPECT_EQ(file_->GetU32("yes").status().message(), "key 'yes': its type is bool, wanted u32");
  EXPECT_EQ(file_->GetString("i32s").status().message(),
            "key 'i32s': its type is array of i32, wanted string");
  EXPECT_EQ(file_->GetStrings("text").status().message(),
            "key 'text': its type is string, wanted array of string");
  EXPECT_EQ(file_->GetI32s("texts").status().message(),
            "key 'texts': its type is array of string, wanted array of i32");
  EXPECT_EQ(file_->GetI32s("u32").status().message(),
            "key 'u32': its type is u32, wanted array of i32");
  EXPECT_EQ(file_->GetI32s("nested").status().message(),
            "key 'nested': its type is array of array, wanted array of i32");
  EXPECT_FALSE(file_->GetF32s("i32s").ok());
  EXPECT_FALSE(file_->GetBools("i32s").ok());
  EXPECT_FALSE(file_->GetStrings("nested").ok());
}

TEST_F(MetadataTest, ValuesOutOfRangeNameTheValue) {
  EXPECT_EQ(file_->GetU32("negative").status().message(),
            "key 'negative': its value -1 does not fit u32");
  EXPECT_EQ(file_->GetU32("big").status().message(),
            "key 'big': its value 1099511627776 does not fit u32");
  EXPECT_EQ(file_->GetI32("u64").status().message(),
            "key 'u64': its value 18446744073709551615 does not fit i32");
  EXPECT_EQ(file_->GetU64("i64").status().message(),
            "key 'i64': its value -9223372036854775808 does not fit u64");
  EXPECT_FALSE(file_->GetF32("nan").ok());
  EXPECT_FALSE(file_->GetF32("f64 too big").ok());
  EXPECT_FALSE(file_->GetF32s("infinities").ok());
}

}  // namespace
}  // namespace tokend::gguf
