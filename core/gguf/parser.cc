#include "core/gguf/parser.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/numeric/bits.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "core/gguf/value.h"

namespace tokend::gguf {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kMinVersion = 2;      // version 1 had 32-bit counts; no such files are left
constexpr uint32_t kMaxVersion = 3;
constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMinAlignment = 8;
constexpr uint64_t kMaxKeyBytes = 65535;      // the format's own limit
constexpr uint64_t kMaxTensorNameBytes = 64;  // the format's own limit
constexpr int kMaxRank = 4;                   // the format's own limit
constexpr int kMaxArrayDepth = 4;             // bounds recursion; real files use 1

// Least bytes on disk: key length, one byte of key, type, one byte of value.
constexpr uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
// Name length, one byte of name, rank, one dimension, type, offset.
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

std::string KeyLabel(absl::string_view key) { return absl::StrCat("key ", Quoted(key)); }
std::string TensorLabel(absl::string_view name) { return absl::StrCat("tensor ", Quoted(name)); }

// False if a * b does not fit.
bool Multiply(uint64_t a, uint64_t b, uint64_t* product) {
  return !__builtin_mul_overflow(a, b, product);
}

}  // namespace

absl::Status Parser::Run(bool with_tensors) {
  TOKEND_RETURN_IF_ERROR(ReadHeader());
  TOKEND_RETURN_IF_ERROR(ReadMetadata());
  TOKEND_RETURN_IF_ERROR(CheckAlignment());
  TOKEND_RETURN_IF_ERROR(CheckSplit());
  return with_tensors ? ReadTensors() : absl::OkStatus();
}

absl::Status Parser::Truncated(absl::string_view what) const {
  return Damaged(what, reader_.offset(),
                 absl::StrCat("the file ends early, after ", file_.bytes_.size(), " bytes"));
}

absl::Status Parser::ReadHeader() {
  uint32_t magic = 0;
  uint32_t version = 0;
  if (!reader_.Read(&magic)) return Truncated("header");
  if (magic != kMagic) return Damaged("header", 0, "not a GGUF file (wrong magic number)");
  if (!reader_.Read(&version)) return Truncated("header");
  if (version > 0xffff && __builtin_bswap32(version) <= kMaxVersion) {
    return Unsupported("header at byte 4", "big-endian GGUF file");
  }
  if (version < kMinVersion || version > kMaxVersion) {
    return Unsupported("header at byte 4",
                       absl::StrCat("GGUF version ", version, "; supported: 2 and 3"));
  }
  file_.version_ = version;
  if (!reader_.Read(&tensor_count_) || !reader_.Read(&entry_count_)) return Truncated("header");
  if (entry_count_ > reader_.remaining() / kMinEntryBytes) {
    return Damaged("header", 16,
                   absl::StrCat(entry_count_, " metadata keys cannot fit into ",
                                reader_.remaining(), " bytes"));
  }
  if (tensor_count_ > reader_.remaining() / kMinTensorBytes) {
    return Damaged(
        "header", 8,
        absl::StrCat(tensor_count_, " tensors cannot fit into ", reader_.remaining(), " bytes"));
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadString(absl::string_view what, uint64_t max_bytes,
                                absl::string_view* value) {
  const uint64_t begin = reader_.offset();
  uint64_t size = 0;
  if (!reader_.Read(&size)) return Truncated(what);
  if (size > reader_.remaining()) {
    return Damaged(what, begin,
                   absl::StrCat("a string of ", size, " bytes, but only ", reader_.remaining(),
                                " are left in the file"));
  }
  if (size > max_bytes) {
    return Damaged(what, begin,
                   absl::StrCat("a string of ", size, " bytes; at most ", max_bytes, " here"));
  }
  reader_.ReadBytes(size, value);
  return absl::OkStatus();
}

absl::Status Parser::ReadMetadata() {
  for (uint64_t i = 0; i < entry_count_; ++i) {
    const uint64_t begin = reader_.offset();
    MetadataEntry entry;
    const std::string what = absl::StrCat("metadata key number ", i);
    TOKEND_RETURN_IF_ERROR(ReadString(what, kMaxKeyBytes, &entry.key));
    if (entry.key.empty()) return Damaged(what, begin, "empty name");
    TOKEND_RETURN_IF_ERROR(ReadEntry(&entry));
    if (!file_.metadata_index_.emplace(entry.key, file_.metadata_.size()).second) {
      return Damaged(KeyLabel(entry.key), begin, "the key is there twice");
    }
    file_.metadata_.push_back(entry);
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadEntry(MetadataEntry* entry) {
  const std::string what = KeyLabel(entry->key);
  const uint64_t begin = reader_.offset();
  uint32_t type = 0;
  if (!reader_.Read(&type)) return Truncated(what);
  if (!IsValueType(type)) {
    return Damaged(what, begin, absl::StrCat("unknown value type ", type));
  }
  entry->type = static_cast<ValueType>(type);
  const uint64_t value_begin = reader_.offset();
  if (entry->type == ValueType::kArray) {
    TOKEND_RETURN_IF_ERROR(ReadArrayHeader(what, &entry->element_type, &entry->count));
    TOKEND_RETURN_IF_ERROR(SkipArray(entry->element_type, entry->count, what, 1));
  } else {
    TOKEND_RETURN_IF_ERROR(SkipValue(entry->type, what, 0));
  }
  entry->raw = reader_.Since(value_begin);
  return absl::OkStatus();
}

absl::Status Parser::ReadArrayHeader(absl::string_view what, ValueType* element_type,
                                     uint64_t* count) {
  const uint64_t begin = reader_.offset();
  uint32_t type = 0;
  if (!reader_.Read(&type) || !reader_.Read(count)) return Truncated(what);
  if (!IsValueType(type)) {
    return Damaged(what, begin, absl::StrCat("unknown array element type ", type));
  }
  *element_type = static_cast<ValueType>(type);
  // Compared by division, so that no count can wrap.
  if (*count > reader_.remaining() / MinValueBytes(*element_type)) {
    return Damaged(what, begin,
                   absl::StrCat("an array of ", *count, " ", ValueTypeName(*element_type),
                                ", but only ", reader_.remaining(), " bytes are left in the file"));
  }
  return absl::OkStatus();
}

absl::Status Parser::SkipArray(ValueType element_type, uint64_t count, absl::string_view what,
                               int depth) {
  if (depth > kMaxArrayDepth) {
    return Damaged(what, reader_.offset(),
                   absl::StrCat("arrays nested deeper than ", kMaxArrayDepth));
  }
  if (IsFixedSize(element_type) && element_type != ValueType::kBool) {
    absl::string_view skipped;
    reader_.ReadBytes(count * MinValueBytes(element_type), &skipped);  // fits: see ReadArrayHeader
    return absl::OkStatus();
  }
  for (uint64_t i = 0; i < count; ++i) {
    TOKEND_RETURN_IF_ERROR(SkipValue(element_type, what, depth));
  }
  return absl::OkStatus();
}

absl::Status Parser::SkipValue(ValueType type, absl::string_view what, int depth) {
  if (type == ValueType::kArray) {
    ValueType element_type;
    uint64_t count = 0;
    TOKEND_RETURN_IF_ERROR(ReadArrayHeader(what, &element_type, &count));
    return SkipArray(element_type, count, what, depth + 1);
  }
  if (type == ValueType::kString) {
    absl::string_view skipped;
    return ReadString(what, std::numeric_limits<uint64_t>::max(), &skipped);
  }
  const uint64_t begin = reader_.offset();
  absl::string_view skipped;
  if (!reader_.ReadBytes(MinValueBytes(type), &skipped)) return Truncated(what);
  if (type == ValueType::kBool && skipped[0] != 0 && skipped[0] != 1) {
    return Damaged(what, begin, "a bool that is neither 0 nor 1");
  }
  return absl::OkStatus();
}

absl::Status Parser::CheckAlignment() {
  constexpr absl::string_view kKey = "general.alignment";
  TOKEND_ASSIGN_OR_RETURN(file_.alignment_, file_.GetU32Or(kKey, kDefaultAlignment));
  if (!absl::has_single_bit(file_.alignment_) || file_.alignment_ < kMinAlignment) {
    return Damaged(
        KeyLabel(kKey),
        absl::StrCat(file_.alignment_, " is not a power of two of at least ", kMinAlignment));
  }
  return absl::OkStatus();
}

absl::Status Parser::CheckSplit() {
  TOKEND_ASSIGN_OR_RETURN(const uint32_t parts, file_.GetU32Or("split.count", 1));
  if (parts <= 1) return absl::OkStatus();
  return Unsupported("key 'split.count'",
                     absl::StrCat("the model is split into ", parts, " files; merge them first"));
}

absl::Status Parser::ReadTensors() {
  std::vector<uint64_t> offsets;  // within the data section
  for (uint64_t i = 0; i < tensor_count_; ++i) {
    const uint64_t begin = reader_.offset();
    TensorInfo tensor;
    const std::string what = absl::StrCat("tensor number ", i);
    TOKEND_RETURN_IF_ERROR(ReadString(what, kMaxTensorNameBytes, &tensor.name));
    if (tensor.name.empty()) return Damaged(what, begin, "empty name");
    uint64_t data_offset = 0;
    TOKEND_RETURN_IF_ERROR(ReadTensor(&tensor, &data_offset));
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      return Damaged(TensorLabel(tensor.name), begin, "the tensor is there twice");
    }
    file_.tensors_.push_back(tensor);
    offsets.push_back(data_offset);
  }
  if (tensor_count_ == 0) return absl::OkStatus();
  TOKEND_RETURN_IF_ERROR(PlaceTensors(offsets));
  return CheckOverlap();
}

absl::Status Parser::ReadTensor(TensorInfo* tensor, uint64_t* data_offset) {
  const std::string what = TensorLabel(tensor->name);
  TOKEND_RETURN_IF_ERROR(ReadShape(tensor));
  const uint64_t type_begin = reader_.offset();
  uint32_t type = 0;
  if (!reader_.Read(&type)) return Truncated(what);
  const base::WeightTypeInfo* info = base::FindWeightType(type);
  if (info == nullptr) {
    return Unsupported(absl::StrCat(what, " at byte ", type_begin),
                       absl::StrCat("tensor type ", type, " is not supported"));
  }
  tensor->type = info->type;
  if (tensor->shape[0] % static_cast<uint64_t>(info->block_elements) != 0) {
    return Damaged(
        what, type_begin,
        absl::StrCat("rows of ", tensor->shape[0], " elements are no multiple of the block of ",
                     info->name, ", ", info->block_elements));
  }
  const uint64_t offset_begin = reader_.offset();
  if (!reader_.Read(data_offset)) return Truncated(what);
  if (*data_offset % file_.alignment_ != 0) {
    return Damaged(what, offset_begin,
                   absl::StrCat("data offset ", *data_offset, " is no multiple of the alignment, ",
                                file_.alignment_));
  }
  return absl::OkStatus();
}

absl::Status Parser::ReadShape(TensorInfo* tensor) {
  const std::string what = TensorLabel(tensor->name);
  const uint64_t begin = reader_.offset();
  uint32_t rank = 0;
  if (!reader_.Read(&rank)) return Truncated(what);
  if (rank < 1 || rank > kMaxRank) {
    return Damaged(what, begin, absl::StrCat(rank, " dimensions; 1 to ", kMaxRank, " are allowed"));
  }
  tensor->rank = static_cast<int>(rank);
  uint64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    const uint64_t at = reader_.offset();
    if (!reader_.Read(&tensor->shape[i])) return Truncated(what);
    if (tensor->shape[i] == 0) {
      return Damaged(what, at, absl::StrCat("dimension ", i, " is zero"));
    }
    // Bounded well below 2^64, so that a size in bytes cannot wrap either.
    if (!Multiply(elements, tensor->shape[i], &elements) || elements > (uint64_t{1} << 48)) {
      return Damaged(what, at, absl::StrCat("dimension ", i, " is absurd: ", tensor->shape[i]));
    }
  }
  return absl::OkStatus();
}

absl::Status Parser::PlaceTensors(const std::vector<uint64_t>& offsets) {
  const uint64_t size = file_.bytes_.size();
  const uint64_t alignment = file_.alignment_;
  const uint64_t data_begin = (reader_.offset() + alignment - 1) / alignment * alignment;
  const uint64_t data_size = size > data_begin ? size - data_begin : 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    TensorInfo& tensor = file_.tensors_[i];
    const base::WeightTypeInfo& info = base::GetWeightType(tensor.type);
    const uint64_t bytes = tensor.elements() / static_cast<uint64_t>(info.block_elements) *
                           static_cast<uint64_t>(info.block_bytes);
    if (offsets[i] > data_size || bytes > data_size - offsets[i]) {
      return Damaged(TensorLabel(tensor.name),
                     absl::StrCat("its ", bytes, " bytes of data at offset ", offsets[i],
                                  " run past the end of the data section (", data_size,
                                  " bytes from byte ", data_begin, ")"));
    }
    tensor.data = file_.bytes_.subspan(data_begin + offsets[i], bytes);
  }
  return absl::OkStatus();
}

absl::Status Parser::CheckOverlap() const {
  std::vector<const TensorInfo*> sorted;
  sorted.reserve(file_.tensors_.size());
  for (const TensorInfo& tensor : file_.tensors_) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(), [](const TensorInfo* a, const TensorInfo* b) {
    return a->data.data() < b->data.data();
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->data.data() < sorted[i - 1]->data.data() + sorted[i - 1]->data.size()) {
      return Damaged(TensorLabel(sorted[i]->name),
                     static_cast<uint64_t>(sorted[i]->data.data() - file_.bytes_.data()),
                     absl::StrCat("its data overlaps ", TensorLabel(sorted[i - 1]->name)));
    }
  }
  return absl::OkStatus();
}

}  // namespace tokend::gguf
