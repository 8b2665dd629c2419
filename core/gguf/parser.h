#ifndef TOKEND_CORE_GGUF_PARSER_H_
#define TOKEND_CORE_GGUF_PARSER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/gguf/byte_reader.h"
#include "core/gguf/file.h"

namespace tokend::gguf {

// Fills a File from its bytes in one pass: header, metadata, tensor infos; then places the
// tensors in the data section. Nothing is believed before it has been compared with the bytes that
// are left, and nothing is allocated for what has not been read.
class Parser {
 public:
  explicit Parser(File* file) : file_(*file), reader_(file->bytes_) {}

  absl::Status Run(bool with_tensors);

 private:
  absl::Status ReadHeader();
  absl::Status ReadMetadata();
  absl::Status ReadEntry(MetadataEntry* entry);
  // `what` names the value in errors.
  absl::Status SkipValue(ValueType type, absl::string_view what, int depth);
  absl::Status SkipArray(ValueType element_type, uint64_t count, absl::string_view what, int depth);
  absl::Status ReadArrayHeader(absl::string_view what, ValueType* element_type, uint64_t* count);
  absl::Status ReadString(absl::string_view what, uint64_t max_bytes, absl::string_view* value);
  absl::Status CheckAlignment();
  absl::Status CheckSplit();
  absl::Status ReadTensors();
  absl::Status ReadTensor(TensorInfo* tensor, uint64_t* data_offset);
  absl::Status ReadShape(TensorInfo* tensor);
  absl::Status PlaceTensors(const std::vector<uint64_t>& offsets);
  absl::Status CheckOverlap() const;
  absl::Status Truncated(absl::string_view what) const;

  File& file_;
  ByteReader reader_;
  uint64_t entry_count_ = 0;
  uint64_t tensor_count_ = 0;
};

}  // namespace tokend::gguf

#endif  // TOKEND_CORE_GGUF_PARSER_H_
