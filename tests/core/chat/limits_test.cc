// Templates that want more than a rendering may take end in an error, soon.
#include "core/chat/limits.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"
#include "core/chat/json.h"
#include "core/chat/template.h"

namespace tokend::chat {
namespace {

absl::Status Outcome(absl::string_view source) {
  const auto chat = Template::Parse(source);
  if (!chat.ok()) return chat.status();
  const auto variables = MakeDict({{Value::String("s", true), Value::String("ab", false)}});
  return (*chat)->Render(*variables, {}).status();
}

void ExpectRefused(absl::string_view source) {
  const absl::Status status = Outcome(source);
  EXPECT_EQ(base::GetErrorReason(status), base::ErrorReason::kTemplateFailed)
      << source.substr(0, 100) << ": " << status;
}

TEST(LimitsTest, Steps) {
  ExpectRefused("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}");
  ExpectRefused(
      "{% macro f(n) %}{% for i in range(9) %}{{ f(n - 1) if n }}{% endfor %}{% endmacro %}"
      "{{ f(30) }}");
  ExpectRefused("{% set x = range(99999)|list %}{% for a in x %}{% set y = x|sort %}{% endfor %}");
}

TEST(LimitsTest, Memory) {
  ExpectRefused("{{ s * 99999999 }}");
  ExpectRefused(
      "{% set ns = namespace(x=s) %}{% for a in range(99) %}{% set ns.x = ns.x ~ ns.x %}"
      "{% endfor %}");
  ExpectRefused("{% set x = s * 99999 %}{{ x.replace('a', x) }}");
  ExpectRefused("{% set x = s * 999999 %}{% for a in range(999) %}{{ x }}{% endfor %}");
  ExpectRefused("{{ ([s] * 999999) * 999999 }}");
  ExpectRefused("{{ s.center(999999999999) }}{{ '%99999999d' % 1 }}");
  ExpectRefused("{{ '{:99999999}'.format(s) }}");
  ExpectRefused("{{ [s]|tojson(indent=99999999) }}{{ s|indent(99999999, true) }}");
  ExpectRefused("{{ range(999999999) }}");
  ExpectRefused("{{ s|batch(99999999, 0)|list }}");
}

TEST(LimitsTest, Depth) {
  ExpectRefused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  ExpectRefused(
      "{% set ns = namespace(x=[]) %}{% for a in range(9999) %}{% set ns.x = [ns.x] %}"
      "{% endfor %}");
  ExpectRefused("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}");
  ExpectRefused("{{ " + std::string(9999, '(') + "1" + std::string(9999, ')') + " }}");
  ExpectRefused("{{ " + std::string(9999, '[') + std::string(9999, ']') + " }}");
  ExpectRefused("{{ " + std::string(9999, '-') + "1 }}");
  std::string nots;
  std::string ifs;
  std::string dots;
  std::string filters;
  for (int i = 0; i < 9999; ++i) {
    nots += "not ";
    ifs += "{% if s %}";
    dots += ".x";
    filters += "|trim";
  }
  ExpectRefused("{{ " + nots + "s }}");
  ExpectRefused(ifs);
  ExpectRefused("{{ s" + dots + " }}");
  ExpectRefused("{{ s" + filters + " }}");
}

TEST(LimitsTest, LongChainsAreNoDepth) {
  std::string sum = "1";
  std::string elifs = "{% if not s %}";
  for (int i = 0; i < 9999; ++i) {
    sum += " + 1";
    elifs += "{% elif s == 'b' %}";
  }
  EXPECT_TRUE(Outcome("{{ " + sum + " }}").ok());
  EXPECT_TRUE(Outcome(elifs + "{% endif %}").ok());
}

TEST(LimitsTest, LongLinesAreNoWork) {
  std::string tags;
  while (tags.size() < kMaxSourceBytes - 8) tags += "{{ 1 }}";
  EXPECT_TRUE(Outcome(tags).ok());
  EXPECT_FALSE(Outcome(tags + tags).ok());
}

TEST(LimitsTest, ValuesMayOutliveTheirBlocks) {
  // A macro, a caller and a loop that are called after the blocks that they look names up in.
  EXPECT_TRUE(Outcome("{% set ns = namespace() %}"
                      "{% for a in [1, 2] %}{% set b = a %}{% macro f() %}{{ b }}{% endmacro %}"
                      "{% set ns.f = f %}{% set ns.l = loop %}{% endfor %}"
                      "{% macro g() %}{% set ns.c = caller %}{% endmacro %}"
                      "{% with z = s %}{% call g() %}{{ z }}{% endcall %}{% endwith %}"
                      "{{ ns.f() }}{{ ns.l.index }}{{ ns.c() }}{{ ns.l.nextitem }}")
                  .ok());
}

}  // namespace
}  // namespace tokend::chat
