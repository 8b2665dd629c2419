#include "core/chat/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"
#include "core/chat/json.h"

namespace tokend::chat {
namespace {

using ::testing::HasSubstr;

constexpr char kVariables[] = R"({"messages": [{"role": "user", "content": "Hi"}], "n": 7})";

absl::StatusOr<std::string> Render(absl::string_view source) {
  const auto chat = Template::Parse(source);
  if (!chat.ok()) return chat.status();
  const auto variables = ParseJson(kVariables, "variables");
  if (!variables.ok()) return variables.status();
  const auto text = (*chat)->Render(*variables, absl::CivilSecond(2024, 7, 26, 13, 5, 9));
  if (!text.ok()) return text.status();
  return std::string(text->bytes());
}

// Where and why.
struct Failure {
  std::string line;
  std::string column;
  std::string message;
};

Failure FailureOf(absl::string_view source) {
  const auto text = Render(source);
  EXPECT_FALSE(text.ok()) << source << " gives " << *text;
  if (text.ok()) return {};
  EXPECT_EQ(text.status().code(), absl::StatusCode::kFailedPrecondition) << text.status();
  const auto info = base::GetErrorInfo(text.status());
  EXPECT_TRUE(info.has_value()) << text.status();
  if (!info.has_value()) return {};
  EXPECT_EQ(info->reason, base::ErrorReason::kTemplateFailed);
  EXPECT_EQ(info->metadata.size(), 2u);
  return {info->metadata[0].second, info->metadata[1].second, std::string(text.status().message())};
}

TEST(TemplateTest, RendersTheCallersVariables) {
  const auto text = Render("{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{% endfor %}");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "<user>Hi");
}

TEST(TemplateTest, WritesTheDateItIsGiven) {
  const auto text = Render("{{ strftime_now('%A, %d %B %Y, %j') }}");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, "Friday, 26 July 2024, 208");
}

TEST(TemplateTest, ErrorsNameLineAndColumn) {
  const Failure failure = FailureOf("a\n  {{ 'é' }}{{ raise_exception('no ' ~ n) }}");
  EXPECT_EQ(failure.line, "2");
  EXPECT_EQ(failure.column, "15");  // code points, not bytes
  EXPECT_EQ(failure.message, "chat template, line 2, column 15: no 7");
}

TEST(TemplateTest, SyntaxErrorsNameLineAndColumn) {
  EXPECT_EQ(FailureOf("{% if n %}\n{% for x in n %}\n{% endif %}").line, "3");
  EXPECT_EQ(FailureOf("a\n\n {{ (1] }}").line, "3");
  EXPECT_EQ(FailureOf("{{ 1 + }}").column, "8");
  EXPECT_EQ(FailureOf("\n{# never ends").line, "2");
}

TEST(TemplateTest, ReachesNoFile) {
  for (const char* source : {"{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}",
                             "{% from 'x' import y %}", "{% block b %}{% endblock %}"}) {
    EXPECT_THAT(FailureOf(source).message, HasSubstr("tag")) << source;
  }
}

TEST(TemplateTest, ChangesNoValueOfTheCaller) {
  EXPECT_THAT(FailureOf("{{ messages.append(1) }}").message, HasSubstr("unsafe"));
  EXPECT_THAT(FailureOf("{{ messages[0].pop('role') }}").message, HasSubstr("unsafe"));
  EXPECT_THAT(FailureOf("{{ messages.__class__.__name__ }}").message, HasSubstr("__class__"));
}

TEST(TemplateTest, LongMessagesAreCut) {
  const Failure failure = FailureOf("{{ raise_exception('é' * 1000) }}");
  EXPECT_LT(failure.message.size(), 320u);
  EXPECT_EQ(failure.message.back(), '\xA9');  // the second byte of the last whole é
}

TEST(TemplateTest, VariablesMustBeADict) {
  const auto chat = Template::Parse("x");
  ASSERT_TRUE(chat.ok());
  EXPECT_FALSE((*chat)->Render(Value::Int(1), {}).ok());
}

TEST(JsonTest, KeepsOrderAndIntegers) {
  const auto value = ParseJson(R"({"b": 1, "a": [1.0, 9007199254740993, "é", null], "b": 2})", "x");
  ASSERT_TRUE(value.ok()) << value.status();
  const auto variables = MakeDict({{Value::String("v", true), *value}});
  const auto chat = Template::Parse("{{ v|tojson }}");
  EXPECT_EQ((*chat)->Render(*variables, {})->bytes(),
            R"({"b": 2, "a": [1.0, 9007199254740993, "é", null]})");
}

TEST(JsonTest, RefusesWhatItCannotHold) {
  for (const std::string& text :
       {std::string("{"), std::string("[1,]"), std::string("18446744073709551616"),
        std::string("9223372036854775808"), std::string("\"\xFF\""), std::string(200, '[')}) {
    const auto value = ParseJson(text, "turn.chat.tools[0]");
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_EQ(value.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(base::GetErrorInfo(value.status())->metadata[0].first, "turn.chat.tools[0]");
  }
}

}  // namespace
}  // namespace tokend::chat
