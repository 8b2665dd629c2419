// Any bytes as a model file, and whatever reads its metadata at start.
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/gguf/errors.h"
#include "core/gguf/file.h"
#include "core/gguf/fingerprint.h"
#include "core/tokenizer/chat_template.h"
#include "core/tokenizer/tokenizer.h"

namespace tokend {
namespace {

void ReadEveryKey(const gguf::File& file) {
  for (const gguf::MetadataEntry& entry : file.metadata()) {
    (void)file.GetU32(entry.key);
    (void)file.GetU64(entry.key);
    (void)file.GetI32(entry.key);
    (void)file.GetF32(entry.key);
    (void)file.GetBool(entry.key);
    (void)file.GetString(entry.key);
    (void)file.GetStrings(entry.key);
    (void)file.GetI32s(entry.key);
    (void)file.GetF32s(entry.key);
    (void)file.GetBools(entry.key);
  }
}

void UseTokenizer(const gguf::File& file) {
  const auto tokenizer = tokenizer::Tokenizer::Create(file);
  if (!tokenizer.ok()) {
    TOKEND_CHECK(gguf::IsBadModelFile(tokenizer.status()));
    return;
  }
  (void)(*tokenizer)->Encode("It's 12 <|im_end|> \n\xFF", {true, true, true});
  const auto chat = tokenizer::ChatTemplate::Create(file, tokenizer->get());
  if (!chat.ok()) return;
  const std::vector<tokenizer::Message> messages = {{tokenizer::Role::kUser, "Hi"}};
  (void)(*chat)->Render(messages, {});
}

void Fuzz(absl::Span<const std::byte> bytes) {
  const auto file = gguf::File::Parse(bytes);
  if (!file.ok()) {
    TOKEND_CHECK(gguf::IsBadModelFile(file.status()));
    return;
  }
  ReadEveryKey(**file);
  TOKEND_CHECK(gguf::Fingerprint(**file, 1).size() == 64);  // reads all of it
  UseTokenizer(**file);
}

}  // namespace
}  // namespace tokend

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tokend::Fuzz(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(data), size));
  return 0;
}
