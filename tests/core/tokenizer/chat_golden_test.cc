// Rendering against Jinja's: chat_golden.json, by make_chat_golden.py.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/tokenizer/chat_template.h"
#include "tests/core/tokenizer/test_vocabularies.h"
#include "tests/support/test_files.h"

namespace tokend::tokenizer {
namespace {

using ::nlohmann::json;
using ::tokend::testing::ReadFile;

struct Chat {
  std::unique_ptr<Tokenizer> tokenizer;
  absl::StatusOr<std::unique_ptr<ChatTemplate>> chat_template;
};

Chat OnTinyVocabulary(const std::string& source) {
  testing::GgufWriter writer;
  testing::AddTinyVocabulary(writer, "gpt-2", /*chat=*/false);
  writer.String("tokenizer.chat_template", source);
  const std::string bytes = writer.Build();
  const auto file = gguf::File::Parse(
      absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
  EXPECT_TRUE(file.ok()) << file.status();
  auto tokenizer = Tokenizer::Create(**file);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  auto chat_template = ChatTemplate::Create(**file, tokenizer->get());
  return {*std::move(tokenizer), std::move(chat_template)};
}

std::vector<Message> Messages(const json& list) {
  std::vector<Message> messages;
  for (const json& item : list) {
    const std::string name = item.at("role");
    const Role role = name == "system" ? Role::kSystem
                      : name == "user" ? Role::kUser
                                       : Role::kAssistant;
    messages.push_back({role, item.at("content")});
  }
  return messages;
}

void ExpectCase(const Tokenizer& tokenizer, const ChatTemplate& chat_template, const json& item) {
  const std::vector<Message> messages = Messages(item.at("messages"));
  for (bool open : {true, false}) {
    const std::string expected = item.at(open ? "open" : "closed");
    const auto chat = chat_template.Render(messages, {.open_reply = open});
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(*tokenizer.Detokenize(chat->tokens, false), expected);
    // The ids are those of the rendered text as a whole.
    EXPECT_EQ(chat->tokens, *tokenizer.Encode(expected, {.parse_special = true}));
  }
}

// Sent message by message, the conversation has the same tokens.
void ExpectSameInPieces(const ChatTemplate& chat_template, const json& item) {
  const std::vector<Message> messages = Messages(item.at("messages"));
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < messages.size(); ++i) {
    // As if the model had ended each message itself: without the newline that follows.
    if (i > 0) tokens.pop_back();
    const auto chat = chat_template.Render(
        {messages[i]}, {.at_start = i == 0, .tail = tokens, .open_reply = false});
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(chat->closing_tokens, i > 0 ? 1u : 0u);
    tokens.insert(tokens.end(), chat->tokens.begin(), chat->tokens.end());
  }
  EXPECT_EQ(tokens, chat_template.Render(messages, {.open_reply = false})->tokens);
}

TEST(ChatGoldenTest, RendersAsJinjaDoes) {
  const json golden = json::parse(ReadFile("tests/core/tokenizer/chat_golden.json"));
  ASSERT_GE(golden.size(), 4u);
  for (const json& item : golden) {
    SCOPED_TRACE(item.at("name"));
    const Chat chat = OnTinyVocabulary(item.at("template"));
    ASSERT_TRUE(chat.chat_template.ok()) << chat.chat_template.status();
    ASSERT_FALSE(item.at("cases").empty());
    for (const json& one : item.at("cases")) {
      ExpectCase(*chat.tokenizer, **chat.chat_template, one);
      ExpectSameInPieces(**chat.chat_template, one);
    }
  }
}

TEST(ChatGoldenTest, SmolLm2sOwnDefault) {
  const json golden = json::parse(ReadFile("tests/core/tokenizer/chat_golden.json"));
  const Chat chat = OnTinyVocabulary(golden.at(0).at("template"));
  ASSERT_TRUE(chat.chat_template.ok());
  EXPECT_EQ((*chat.chat_template)->default_system(),
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
}

// A template that does more than the family says must not be taken for one of it. Of the real ones
// here these two render plain messages as plain ChatML; the others with its tokens do not.
TEST(ChatGoldenTest, OnlyPlainChatMlIsRecognised) {
  const auto folder = testing::SharedFile("chat_templates");
  if (!folder.has_value()) GTEST_SKIP() << "no ../shared/chat_templates";
  std::set<std::string> recognised;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    const Chat chat = OnTinyVocabulary(ReadFile(entry.path()));
    if (chat.chat_template.ok()) recognised.insert(entry.path().stem());
  }
  EXPECT_EQ(recognised, (std::set<std::string>{"MiMo-VL", "Qwen-Qwen2.5-7B-Instruct"}));
}

class SmolLm2ChatTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing::SmolLm2File();
    if (!path.has_value()) {
      GTEST_SKIP() << "no SmolLM2-135M-Instruct: ./dev model smollm2, or $TOKEND_TEST_MODEL";
    }
    auto file = gguf::File::Open(*path);
    ASSERT_TRUE(file.ok()) << file.status();
    auto tokenizer = Tokenizer::Create(**file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    auto chat_template = ChatTemplate::Create(**file, tokenizer->get());
    ASSERT_TRUE(chat_template.ok()) << chat_template.status();
    source_ = std::string(*(*file)->GetString("tokenizer.chat_template"));
    tokenizer_ = *std::move(tokenizer);
    chat_template_ = *std::move(chat_template);
  }

  std::string source_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
};

TEST_F(SmolLm2ChatTest, RendersAsJinjaDoes) {
  const json golden = json::parse(ReadFile("tests/core/tokenizer/chat_golden.json"));
  EXPECT_EQ(source_, golden.at(0).at("template").get<std::string>());
  for (const json& item : golden.at(0).at("cases")) {
    ExpectCase(*tokenizer_, *chat_template_, item);
    ExpectSameInPieces(*chat_template_, item);
  }
}

// The prompts of the logits' golden file, chats among them: ids by Hugging Face's tokenizers.
TEST_F(SmolLm2ChatTest, PromptsHaveTheGoldenTokens) {
  const json golden = json::parse(ReadFile("tests/golden/smollm2/goldens.json"));
  int chats = 0;
  for (const json& prompt : golden.at("prompts")) {
    SCOPED_TRACE(prompt.at("name"));
    const std::vector<int32_t> ids = prompt.at("ids");
    EXPECT_EQ(*tokenizer_->Encode(prompt.at("text").get<std::string>(), {.parse_special = true}),
              ids);
    if (!prompt.contains("messages")) continue;
    ++chats;
    EXPECT_EQ(chat_template_->Render(Messages(prompt.at("messages")), {})->tokens, ids);
  }
  EXPECT_GE(chats, 2);
}

}  // namespace
}  // namespace tokend::tokenizer
