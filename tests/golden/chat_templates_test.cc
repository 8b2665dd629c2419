// Real chat templates, and small sources of the language's corners, against what jinja2 made of
// them: chat_templates/, by make.py there.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/chat/json.h"
#include "core/chat/template.h"
#include "tests/support/test_files.h"

namespace tokend::chat {
namespace {

using ::nlohmann::json;
using ::tokend::testing::ReadFile;

constexpr char kFolder[] = "tests/golden/chat_templates/";

struct Conversation {
  std::string name;
  Value variables;
};

Value Parsed(const nlohmann::ordered_json& variables) {
  const auto value = ParseJson(variables.dump(), "variables");
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : Value();
}

std::vector<Conversation> Conversations() {
  std::vector<Conversation> conversations;
  const std::string text = ReadFile(std::string(kFolder) + "conversations.json");
  for (const auto& conversation : nlohmann::ordered_json::parse(text)) {
    conversations.push_back({conversation["name"], Parsed(conversation["variables"])});
  }
  return conversations;
}

// Renders `source` and compares: `wanted` is null where jinja2 raises.
void Check(const std::string& source, const Value& variables, const json& wanted) {
  const auto chat = Template::Parse(source);
  const absl::StatusOr<Text> text =
      chat.ok() ? (*chat)->Render(variables, absl::CivilSecond(2024, 7, 26, 13, 5, 9))
                : chat.status();
  if (wanted.is_null()) {
    ASSERT_FALSE(text.ok()) << "jinja2 raises, ours gives: " << text->bytes();
    EXPECT_EQ(base::GetErrorReason(text.status()), base::ErrorReason::kTemplateFailed);
    return;
  }
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(std::string(text->bytes()), wanted.get<std::string>());
}

TEST(ChatTemplatesGoldenTest, RealTemplatesRenderByteForByte) {
  const auto folder = testing::SharedFile("chat_templates");
  if (!folder.has_value()) GTEST_SKIP() << "the templates are not beside the project";
  const std::vector<Conversation> conversations = Conversations();
  size_t templates = 0;
  size_t rendered = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*folder)) {
    if (entry.path().extension() != ".jinja") continue;
    ++templates;
    const std::string name = entry.path().stem();
    const json texts = json::parse(ReadFile(kFolder + name + ".json"));
    ASSERT_EQ(texts.size(), conversations.size()) << name;
    const std::string source = ReadFile(entry.path());
    for (size_t i = 0; i < conversations.size(); ++i) {
      SCOPED_TRACE(name + ", " + conversations[i].name);
      const json& text = texts[i].is_number() ? texts[texts[i].get<size_t>()] : texts[i];
      rendered += text.is_string() ? 1 : 0;
      Check(source, conversations[i].variables, text);
    }
  }
  EXPECT_GE(templates, 48u);
  EXPECT_GE(rendered, templates * conversations.size() / 2);
  std::printf("%zu templates, %zu conversations each, %zu texts byte-equal\n", templates,
              conversations.size(), rendered);
}

TEST(ChatTemplatesGoldenTest, SnippetsRenderByteForByte) {
  const auto snippets =
      nlohmann::ordered_json::parse(ReadFile(std::string(kFolder) + "snippets.json"));
  const json texts = json::parse(ReadFile(std::string(kFolder) + "snippets_rendered.json"));
  ASSERT_EQ(snippets["sources"].size(), texts.size());
  const Value variables = Parsed(snippets["variables"]);
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string source = snippets["sources"][i];
    SCOPED_TRACE(source);
    Check(source, variables, texts[i]);
  }
}

}  // namespace
}  // namespace tokend::chat
