#include "tests/support/gguf_writer.h"

#include <cstring>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"

namespace tokend::testing {
namespace {

uint32_t TypeNumber(gguf::ValueType type) { return static_cast<uint32_t>(type); }

template <typename T>
std::string ArrayOf(gguf::ValueType type, absl::Span<const T> values) {
  std::string bytes = Bytes(TypeNumber(type)) + Bytes<uint64_t>(values.size());
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return bytes;
}

}  // namespace

std::string GgufString(absl::string_view value) {
  return absl::StrCat(Bytes<uint64_t>(value.size()), value);
}

void GgufWriter::PutKey(absl::string_view key, gguf::ValueType type) {
  ++keys_;
  absl::StrAppend(&metadata_, GgufString(key), Bytes(TypeNumber(type)));
}

GgufWriter& GgufWriter::U32(absl::string_view key, uint32_t value) {
  PutKey(key, gguf::ValueType::kU32);
  metadata_ += Bytes(value);
  return *this;
}

GgufWriter& GgufWriter::I32(absl::string_view key, int32_t value) {
  PutKey(key, gguf::ValueType::kI32);
  metadata_ += Bytes(value);
  return *this;
}

GgufWriter& GgufWriter::U64(absl::string_view key, uint64_t value) {
  PutKey(key, gguf::ValueType::kU64);
  metadata_ += Bytes(value);
  return *this;
}

GgufWriter& GgufWriter::F32(absl::string_view key, float value) {
  PutKey(key, gguf::ValueType::kF32);
  metadata_ += Bytes(value);
  return *this;
}

GgufWriter& GgufWriter::Bool(absl::string_view key, bool value) {
  PutKey(key, gguf::ValueType::kBool);
  metadata_ += Bytes<uint8_t>(value ? 1 : 0);
  return *this;
}

GgufWriter& GgufWriter::String(absl::string_view key, absl::string_view value) {
  PutKey(key, gguf::ValueType::kString);
  metadata_ += GgufString(value);
  return *this;
}

GgufWriter& GgufWriter::Strings(absl::string_view key, absl::Span<const std::string> values) {
  PutKey(key, gguf::ValueType::kArray);
  absl::StrAppend(&metadata_, Bytes(TypeNumber(gguf::ValueType::kString)),
                  Bytes<uint64_t>(values.size()));
  for (const std::string& value : values) metadata_ += GgufString(value);
  return *this;
}

GgufWriter& GgufWriter::I32s(absl::string_view key, absl::Span<const int32_t> values) {
  PutKey(key, gguf::ValueType::kArray);
  metadata_ += ArrayOf(gguf::ValueType::kI32, values);
  return *this;
}

GgufWriter& GgufWriter::F32s(absl::string_view key, absl::Span<const float> values) {
  PutKey(key, gguf::ValueType::kArray);
  metadata_ += ArrayOf(gguf::ValueType::kF32, values);
  return *this;
}

GgufWriter& GgufWriter::Raw(absl::string_view key, uint32_t type, absl::string_view bytes) {
  ++keys_;
  absl::StrAppend(&metadata_, GgufString(key), Bytes(type), bytes);
  return *this;
}

GgufWriter& GgufWriter::Tensor(absl::string_view name, absl::Span<const uint64_t> shape,
                               base::WeightType type, absl::string_view data) {
  data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_);
  return RawTensor(name, shape, static_cast<uint32_t>(type), data_.size(), data);
}

GgufWriter& GgufWriter::RawTensor(absl::string_view name, absl::Span<const uint64_t> shape,
                                  uint32_t type, uint64_t offset, absl::string_view data) {
  ++tensors_;
  absl::StrAppend(&infos_, GgufString(name), Bytes(static_cast<uint32_t>(shape.size())));
  for (uint64_t dimension : shape) infos_ += Bytes(dimension);
  absl::StrAppend(&infos_, Bytes(type), Bytes(offset));
  if (!data.empty()) {
    if (data_.size() < offset + data.size()) data_.resize(offset + data.size());
    std::memcpy(data_.data() + offset, data.data(), data.size());
  }
  return *this;
}

std::string GgufWriter::Build() const {
  std::string file =
      absl::StrCat("GGUF", Bytes(version_), Bytes(tensors_), Bytes(keys_), metadata_, infos_);
  if (tensors_ > 0) file.resize((file.size() + alignment_ - 1) / alignment_ * alignment_);
  return file + data_;
}

absl::Status GgufWriter::WriteTo(const std::string& path) const {
  std::ofstream out(path, std::ios::binary);
  const std::string file = Build();
  out.write(file.data(), static_cast<std::streamsize>(file.size()));
  out.close();
  return out ? absl::OkStatus() : absl::UnavailableError(absl::StrCat("cannot write ", path));
}

}  // namespace tokend::testing
