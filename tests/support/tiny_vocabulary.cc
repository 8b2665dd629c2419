#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/tokenizer/byte_alphabet.h"
#include "tests/support/gguf_writer.h"

namespace tokend::testing {
namespace {

constexpr char kChatMl[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

}  // namespace

void AddTinyVocabulary(GgufWriter& writer, absl::string_view pre_tokenizer, bool chat) {
  constexpr int32_t kNormal = 1;
  constexpr int32_t kControl = 3;
  std::vector<std::string> tokens = {"<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types(tokens.size(), kControl);
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(tokenizer::ToByteAlphabet(std::string(1, static_cast<char>(byte))));
  }
  const std::string space = tokenizer::ToByteAlphabet(" ");
  const std::vector<std::string> merges = {space + " t", "h e", space + "t he", "i n", "e r"};
  for (const char* merged : {" t", "he", " the", "in", "er"}) {
    tokens.push_back(tokenizer::ToByteAlphabet(merged));
  }
  types.resize(tokens.size(), kNormal);
  writer.String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", pre_tokenizer)
      .Strings("tokenizer.ggml.tokens", tokens)
      .I32s("tokenizer.ggml.token_type", types)
      .Strings("tokenizer.ggml.merges", merges)
      .U32("tokenizer.ggml.bos_token_id", 0)
      .U32("tokenizer.ggml.eos_token_id", 1)
      .Bool("tokenizer.ggml.add_bos_token", false);
  if (chat) writer.String("tokenizer.chat_template", kChatMl);
}

void AddTinySentencePiece(GgufWriter& writer) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(absl::StrCat("<0x", absl::Hex(byte, absl::kZeroPad2), ">"));
  }
  types.resize(tokens.size(), 6);
  const std::string space = "\u2581";
  tokens.insert(tokens.end(), {space, "a", space + "a", "b", "ab", space + space, "<tag>"});
  types.insert(types.end(), {1, 1, 1, 1, 1, 5, 4});
  std::vector<float> scores(3 + 256, 0);
  scores.insert(scores.end(), {-9, -9, -2, -9, -3, -1, 0});
  writer.String("tokenizer.ggml.model", "llama")
      .Strings("tokenizer.ggml.tokens", tokens)
      .I32s("tokenizer.ggml.token_type", types)
      .F32s("tokenizer.ggml.scores", scores);
}

}  // namespace tokend::testing
