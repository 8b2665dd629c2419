#ifndef TOKEND_CORE_GGUF_FILE_H_
#define TOKEND_CORE_GGUF_FILE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/dtype.h"

namespace tokend::gguf {

// GGUF's own type numbers.
enum class ValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

absl::string_view ValueTypeName(ValueType type);  // "u32"

// Key and data are views into the file.
struct MetadataEntry {
  absl::string_view key;
  ValueType type = ValueType::kU8;
  ValueType element_type = ValueType::kU8;  // arrays only
  uint64_t count = 0;                       // arrays only
  // The value as stored, without its type. A string has its length (u64) in front, an array
  // its element type (u32) and count (u64).
  absl::Span<const std::byte> raw;
};

// Name and data are views into the file.
struct TensorInfo {
  absl::string_view name;
  base::WeightType type = base::WeightType::kF32;
  int rank = 0;  // 1 to 4
  // GGUF order: shape[0] runs fastest (the length of a row), so a PyTorch [out, in] matrix has
  // shape {in, out}. Entries from `rank` on are 1; all are at least 1.
  std::array<uint64_t, 4> shape = {1, 1, 1, 1};
  // Blocks as in base::GetWeightType(type), row by row. Aligned to the file's alignment (at
  // least 8) within the file; the file is mapped at a page boundary.
  absl::Span<const std::byte> data;

  uint64_t row_elements() const { return shape[0]; }
  uint64_t rows() const { return shape[1] * shape[2] * shape[3]; }
  uint64_t elements() const { return row_elements() * rows(); }
};

// A GGUF file, version 2 or 3, little endian: validated whole when opened, so that every view it
// hands out lies inside the file and no two tensors overlap. Memory taken is a small multiple of
// the file's size, whatever its counts claim. Immutable and thread-safe; views live as long as it.
//
// The mapping is of the file, not a copy: a file that is cut short by someone else while it is
// open raises SIGBUS. Replace a model by renaming, never in place.
class File {
 public:
  // Errors: see errors.h.
  static absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path);
  // Metadata alone, and no tensors(): for a tokeniser, whatever the tensors' types are.
  static absl::StatusOr<std::unique_ptr<File>> OpenMetadata(const std::string& path);
  // `bytes` must outlive the File. Errors: DATA_LOSS, UNIMPLEMENTED.
  static absl::StatusOr<std::unique_ptr<File>> Parse(absl::Span<const std::byte> bytes);

  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  absl::string_view path() const { return path_; }  // "" from Parse
  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  uint64_t size_bytes() const { return bytes_.size(); }

  // In file order.
  absl::Span<const MetadataEntry> metadata() const { return metadata_; }
  absl::Span<const TensorInfo> tensors() const { return tensors_; }

  // nullptr: not there.
  const MetadataEntry* FindMetadata(absl::string_view key) const;
  const TensorInfo* FindTensor(absl::string_view name) const;
  bool Has(absl::string_view key) const { return FindMetadata(key) != nullptr; }
  // DATA_LOSS if it is not there.
  absl::StatusOr<const TensorInfo*> GetTensor(absl::string_view name) const;

  // Scalars. DATA_LOSS if the key is missing or of another kind, naming the key and both types.
  // Integers are read from any integer type that holds a value in range; floats from f32 and f64,
  // and must be finite.
  absl::StatusOr<uint32_t> GetU32(absl::string_view key) const;
  absl::StatusOr<uint64_t> GetU64(absl::string_view key) const;
  absl::StatusOr<int32_t> GetI32(absl::string_view key) const;
  absl::StatusOr<float> GetF32(absl::string_view key) const;
  absl::StatusOr<bool> GetBool(absl::string_view key) const;
  absl::StatusOr<absl::string_view> GetString(absl::string_view key) const;

  // As above, but a missing key gives `fallback`; a wrong type is still an error.
  absl::StatusOr<uint32_t> GetU32Or(absl::string_view key, uint32_t fallback) const;
  absl::StatusOr<float> GetF32Or(absl::string_view key, float fallback) const;
  absl::StatusOr<bool> GetBoolOr(absl::string_view key, bool fallback) const;
  absl::StatusOr<absl::string_view> GetStringOr(absl::string_view key,
                                                absl::string_view fallback) const;

  // Arrays, with the same rules for each element.
  absl::StatusOr<std::vector<absl::string_view>> GetStrings(absl::string_view key) const;
  absl::StatusOr<std::vector<int32_t>> GetI32s(absl::string_view key) const;
  absl::StatusOr<std::vector<float>> GetF32s(absl::string_view key) const;
  absl::StatusOr<std::vector<bool>> GetBools(absl::string_view key) const;

  // Gives the mapped memory back to the system (say, after the tensors were repacked); what is read
  // again comes from the file again, a page at a time. Nothing for a File from Parse.
  void ReleaseMemory() const;

 private:
  friend class Parser;
  File() = default;

  static absl::StatusOr<std::unique_ptr<File>> Map(const std::string& path, bool with_tensors);
  absl::StatusOr<const MetadataEntry*> Require(absl::string_view key) const;

  std::string path_;
  bool mapped_ = false;  // bytes_ is our own mapping
  absl::Span<const std::byte> bytes_;
  uint32_t version_ = 0;
  uint32_t alignment_ = 0;
  std::vector<MetadataEntry> metadata_;
  std::vector<TensorInfo> tensors_;
  absl::flat_hash_map<absl::string_view, size_t> metadata_index_;
  absl::flat_hash_map<absl::string_view, size_t> tensor_index_;
};

}  // namespace tokend::gguf

#endif  // TOKEND_CORE_GGUF_FILE_H_
