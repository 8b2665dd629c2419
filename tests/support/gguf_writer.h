#ifndef TOKEND_TESTS_SUPPORT_GGUF_WRITER_H_
#define TOKEND_TESTS_SUPPORT_GGUF_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/base/dtype.h"
#include "core/gguf/file.h"

namespace tokend::testing {

// Writes small GGUF files for tests, malformed ones included: it checks nothing.
class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3, uint32_t alignment = 32)
      : version_(version), alignment_(alignment) {}

  GgufWriter& U32(absl::string_view key, uint32_t value);
  GgufWriter& I32(absl::string_view key, int32_t value);
  GgufWriter& U64(absl::string_view key, uint64_t value);
  GgufWriter& F32(absl::string_view key, float value);
  GgufWriter& Bool(absl::string_view key, bool value);
  GgufWriter& String(absl::string_view key, absl::string_view value);
  GgufWriter& Strings(absl::string_view key, absl::Span<const std::string> values);
  GgufWriter& I32s(absl::string_view key, absl::Span<const int32_t> values);
  GgufWriter& F32s(absl::string_view key, absl::Span<const float> values);
  // `type` is a GGUF value type number; `bytes` is the value as stored.
  GgufWriter& Raw(absl::string_view key, uint32_t type, absl::string_view bytes);

  // `shape` in GGUF order: row length first. `data`: blocks as on disk. Tensors are laid out in
  // the order given, each at the next multiple of the alignment.
  GgufWriter& Tensor(absl::string_view name, absl::Span<const uint64_t> shape,
                     base::WeightType type, absl::string_view data);
  // Any type number and any offset (from the start of the data section); data only if not empty.
  GgufWriter& RawTensor(absl::string_view name, absl::Span<const uint64_t> shape, uint32_t type,
                        uint64_t offset, absl::string_view data);

  std::string Build() const;
  absl::Status WriteTo(const std::string& path) const;

 private:
  void PutKey(absl::string_view key, gguf::ValueType type);

  const uint32_t version_;
  const uint32_t alignment_;
  uint64_t keys_ = 0;
  uint64_t tensors_ = 0;
  std::string metadata_;
  std::string infos_;
  std::string data_;
};

// Little-endian bytes of a value.
template <typename T>
std::string Bytes(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
// Length (u64) and bytes, as GGUF stores a string.
std::string GgufString(absl::string_view value);

// Metadata of a complete byte-level BPE tokeniser: ids 0 to 3 are the control tokens <|bos|>,
// <|eos|>, <|im_start|> and <|im_end|>, then byte b is id 4 + b, then the merges " t", "he",
// " the", "in", "er". With `chat`, a ChatML template whose default system message is "Be brief.".
void AddTinyVocabulary(GgufWriter& writer, absl::string_view pre_tokenizer = "gpt-2",
                       bool chat = true);
constexpr int32_t kTinyVocabularySize = 4 + 256 + 5;

// Metadata of a complete SentencePiece tokeniser: <unk>, <s>, </s>, then byte b is id 3 + b, then
// " ", "a", " a", "b", "ab", "  " (unused), "<tag>" (user-defined). A space is put in front of
// text.
void AddTinySentencePiece(GgufWriter& writer);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_GGUF_WRITER_H_
