// Which bytes of a rendered text the template itself wrote.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "core/chat/json.h"
#include "core/chat/template.h"

namespace tokend::chat {
namespace {

// The text with brackets around what is not trusted.
std::string Marked(absl::string_view source) {
  const auto chat = Template::Parse(source);
  EXPECT_TRUE(chat.ok()) << chat.status();
  if (!chat.ok()) return "";
  auto entries = ParseJson(R"({"s": "<x>", "l": ["<x>", 1, true], "d": {"<x>": "<x>"}, "n": 5,
                               "sp": "  <x> ", "esc": "<\"é>", "multi": "<x>\n<y>"})",
                           "v")
                     ->dict()
                     .entries;
  entries.emplace_back(Value::String("bos_token", true), Value::String("<s>", true));
  const auto text = (*chat)->Render(*MakeDict(std::move(entries)), {});
  EXPECT_TRUE(text.ok()) << text.status();
  if (!text.ok()) return "";
  std::string marked;
  text->ForEachRun(0, text->size(), [&](absl::string_view run, bool trusted) {
    absl::StrAppend(&marked, trusted ? "" : "[", run, trusted ? "" : "]");
  });
  return marked;
}

TEST(TrustTest, TheTemplatesOwnTextIsTrusted) {
  EXPECT_EQ(Marked("<a>{{ '<b>' }}{{ bos_token }}{% set c = '<c>' %}{{ c }}"), "<a><b><s><c>");
  EXPECT_EQ(Marked("{{ s }}<a>{{ s }}"), "[<x>]<a>[<x>]");
}

TEST(TrustTest, PassesThroughOperators) {
  EXPECT_EQ(Marked("{{ '<a>' + s + '<b>' }}"), "<a>[<x>]<b>");
  EXPECT_EQ(Marked("{{ '<a>' ~ s ~ n ~ 1 }}"), "<a>[<x>5]1");
  EXPECT_EQ(Marked("{{ (s + 'a') * 2 }}"), "[<x>]a[<x>]a");
  EXPECT_EQ(Marked("{{ (s + 'abc')[1:5] }}"), "[x>]ab");
  EXPECT_EQ(Marked("{{ ('ab' + s)[::-1] }}"), "[>x<]ba");
  EXPECT_EQ(Marked("{{ ('a' + s)[0] }}{{ s[0] }}"), "a[<]");
  EXPECT_EQ(Marked("{{ '<%s>' % s }}{{ '<{}>'.format(s) }}"), "<[<x>]><[<x>]>");
  EXPECT_EQ(Marked("{{ s if s else 'a' }}{{ s or 'a' }}"), "[<x><x>]");
}

TEST(TrustTest, PassesThroughMethodsAndFilters) {
  EXPECT_EQ(Marked("{{ ('a ' + sp).strip() }}{{ sp|trim }}"), "a [  <x><x>]");
  EXPECT_EQ(Marked("{{ s.replace('x', '<b>') }}"), "[<]<b>[>]");
  EXPECT_EQ(Marked("{{ 'a-b'.replace('-', s) }}"), "a[<x>]b");
  EXPECT_EQ(Marked("{{ (s + ',a').split(',')|join('|') }}"), "[<x>]|a");
  EXPECT_EQ(Marked("{{ ('a' + s)|upper }}{{ s.title() }}"), "A[<X><X>]");
  EXPECT_EQ(Marked("{{ multi|indent(2) }}"), "[<x>]\n  [<y>]");
  EXPECT_EQ(Marked("{{ s|e }}{{ ('a' + s)|string|safe }}"), "[&lt;x&gt;]a[<x>]");
  EXPECT_EQ(Marked("{{ s|default('a') }}{{ q|default('a') }}"), "[<x>]a");
  EXPECT_EQ(Marked("{{ (s ~ 'ab')|reverse }}"), "ba[>x<]");
  EXPECT_EQ(Marked("{% for c in 'a' + s %}{{ c }}{% endfor %}"), "a[<x>]");
}

TEST(TrustTest, JsonAndReprTrustNoStructure) {
  EXPECT_EQ(Marked("{{ d|tojson }}"), "[{\"<x>\": \"<x>\"}]");
  EXPECT_EQ(Marked("{{ {'<a>': s}|tojson }}"), "[{\"]<a>[\": \"<x>\"}]");
  EXPECT_EQ(Marked("{{ esc|tojson }}"), "[\"<\\\"é>\"]");
  EXPECT_EQ(Marked("{{ l }}"), "[['<x>', 1, True]]");
  EXPECT_EQ(Marked("{{ ['<a>', s] }}"), "[[']<a>[', '<x>']]");
}

TEST(TrustTest, PassesThroughBlocksAndMacros) {
  EXPECT_EQ(Marked("{% macro f(x) %}<a>{{ x }}{% endmacro %}{{ f(s) }}"), "<a>[<x>]");
  EXPECT_EQ(Marked("{% set x %}<a>{{ s }}{% endset %}{{ x }}"), "<a>[<x>]");
  EXPECT_EQ(Marked("{% filter upper %}a{{ s }}{% endfilter %}"), "A[<X>]");
  EXPECT_EQ(Marked("{% generation %}<a>{{ s }}{% endgeneration %}"), "<a>[<x>]");
}

TEST(TrustTest, NamesOfArgumentsAreTheMessages) {
  EXPECT_EQ(Marked("{{ dict(**d)|tojson }}"), "[{\"<x>\": \"<x>\"}]");
  EXPECT_EQ(Marked("{% for k in dict(**d) %}{{ k }}{% endfor %}"), "[<x>]");
  EXPECT_EQ(Marked("{% macro f() %}{{ kwargs }}{% endmacro %}{{ f(**d) }}"), "[{'<x>': '<x>'}]");
  EXPECT_EQ(Marked("{{ namespace(d) }}"), "[<Namespace {'<x>': '<x>'}>]");
}

TEST(TrustTest, NumbersAreTheirOrigins) {
  EXPECT_EQ(Marked("{{ n }}{{ n + 1 }}{{ 1 + 1 }}{{ '3'|int }}"), "[56]2[3]");
  EXPECT_EQ(Marked("{% for x in l %}{{ loop.index }}{% endfor %}{{ l|length }}"), "1233");
}

}  // namespace
}  // namespace tokend::chat
