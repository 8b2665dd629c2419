// Every field of a Turn: what is in its range, what is not, and how it is named.
#include "service/convert_turn.h"

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

namespace tokend::service {
namespace {

using ::testing::Contains;
using ::testing::Key;

constexpr int32_t kVocabulary = 1000;
constexpr int64_t kContext = 512;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TurnRules Rules() {
  TurnRules rules;
  rules.context_tokens = kContext;
  rules.vocabulary_size = kVocabulary;
  return rules;
}

v1::Turn ValidTurn() {
  v1::Turn turn;
  turn.mutable_prompt()->set_text("hi");
  turn.mutable_session()->set_name("sessions/a");
  return turn;
}

// Expects INVALID_ARGUMENT that names `path`.
void ExpectInvalid(const v1::Turn& turn, const std::string& path) {
  SCOPED_TRACE(absl::StrCat(path, ": ", turn.ShortDebugString().substr(0, 200)));
  const auto request = ConvertTurn(turn, Rules());
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.status().code(), absl::StatusCode::kInvalidArgument);
  const auto info = base::GetErrorInfo(request.status());
  ASSERT_TRUE(info.has_value());
  EXPECT_EQ(info->reason, base::ErrorReason::kInvalidField);
  EXPECT_THAT(info->metadata, Contains(Key(path)));
}

void ExpectValid(const v1::Turn& turn) {
  const auto request = ConvertTurn(turn, Rules());
  EXPECT_TRUE(request.ok()) << request.status() << turn.ShortDebugString().substr(0, 200);
}

struct FloatCase {
  std::string field;
  std::function<void(v1::Turn*, float)> set;
  std::vector<float> good;
  std::vector<float> bad;
};

std::vector<FloatCase> FloatCases() {
  const auto sampling = [](void (v1::Sampling::*set)(float)) {
    return [set](v1::Turn* turn, float value) { (turn->mutable_sampling()->*set)(value); };
  };
  return {
      {"temperature", sampling(&v1::Sampling::set_temperature), {0, 0.5f, 10}, {-0.1f, 10.1f}},
      {"top_p", sampling(&v1::Sampling::set_top_p), {0.001f, 1}, {0, -1, 1.001f}},
      {"min_p", sampling(&v1::Sampling::set_min_p), {0, 1}, {-0.001f, 1.001f}},
      {"repetition_penalty",
       sampling(&v1::Sampling::set_repetition_penalty),
       {0.001f, 1, 10},
       {0, -1, 10.1f}},
      {"presence_penalty",
       sampling(&v1::Sampling::set_presence_penalty),
       {-2, 0, 2},
       {-2.1f, 2.1f}},
      {"frequency_penalty",
       sampling(&v1::Sampling::set_frequency_penalty),
       {-2, 0, 2},
       {-2.1f, 2.1f}},
      {"logit_bias[7]",
       [](v1::Turn* turn, float value) {
         (*turn->mutable_sampling()->mutable_logit_bias())[7] = value;
       },
       {-100, 0, 100},
       {-100.1f, 100.1f}},
  };
}

TEST(ConvertTurn, FloatsInAndOutOfRange) {
  for (const FloatCase& test : FloatCases()) {
    for (const float value : test.good) {
      v1::Turn turn = ValidTurn();
      test.set(&turn, value);
      ExpectValid(turn);
    }
    std::vector<float> bad = test.bad;
    bad.insert(bad.end(), {kNan, -kNan, kInf, -kInf, 1e38f, -1e38f});
    for (const float value : bad) {
      v1::Turn turn = ValidTurn();
      test.set(&turn, value);
      ExpectInvalid(turn, absl::StrCat("turn.sampling.", test.field));
    }
  }
}

struct IntCase {
  std::string path;
  std::function<void(v1::Turn*, int64_t)> set;
  std::vector<int64_t> good;
  std::vector<int64_t> bad;
};

constexpr int64_t kBig = INT32_MAX;
constexpr int64_t kSmall = INT32_MIN;

std::vector<IntCase> IntCases() {
  return {
      {"turn.tokens.token_ids[0]",
       [](v1::Turn* turn, int64_t value) {
         turn->mutable_tokens()->add_token_ids(static_cast<int32_t>(value));
       },
       {0, kVocabulary - 1},
       {-1, kVocabulary, kBig, kSmall}},
      {"turn.session.expected_version",
       [](v1::Turn* turn, int64_t value) { turn->mutable_session()->set_expected_version(value); },
       {0, 5, INT64_MAX},
       {-1, INT64_MIN}},
      {"turn.session.from_position",
       [](v1::Turn* turn, int64_t value) { turn->mutable_session()->set_from_position(value); },
       {0, 5, INT64_MAX},
       {-1, INT64_MIN}},
      {"turn.session.on_conflict",
       [](v1::Turn* turn, int64_t value) {
         turn->mutable_session()->set_on_conflict(static_cast<v1::ConflictPolicy>(value));
       },
       {0, 1, 2, 3},
       {-1, 4, kBig, kSmall}},
      {"turn.session.commit",
       [](v1::Turn* turn, int64_t value) {
         turn->mutable_session()->set_commit(static_cast<v1::CommitMode>(value));
       },
       {0, 1, 2, 3},
       {-1, 4, kBig, kSmall}},
      {"turn.sampling.top_k",
       [](v1::Turn* turn, int64_t value) {
         turn->mutable_sampling()->set_top_k(static_cast<int32_t>(value));
       },
       {0, kVocabulary},
       {-1, kVocabulary + 1, kBig, kSmall}},
      {"turn.sampling.logit_bias[-1]",
       [](v1::Turn* turn, int64_t value) {
         (*turn->mutable_sampling()->mutable_logit_bias())[static_cast<int32_t>(value)] = 1;
       },
       {0, kVocabulary - 1},
       {-1}},
      {"turn.sampling.logit_bias[1000]",
       [](v1::Turn* turn, int64_t value) {
         (*turn->mutable_sampling()->mutable_logit_bias())[static_cast<int32_t>(value)] = 1;
       },
       {},
       {kVocabulary}},
      {"turn.sampling.seed",
       [](v1::Turn* turn, int64_t value) { turn->mutable_sampling()->set_seed(value); },
       {0, -1, INT64_MAX, INT64_MIN},
       {}},
      {"turn.stop.max_output_tokens",
       [](v1::Turn* turn, int64_t value) {
         turn->mutable_stop()->set_max_output_tokens(static_cast<int32_t>(value));
       },
       {0, kContext},
       {-1, kContext + 1, kBig, kSmall}},
      {"turn.stop.stop_token_ids[0]",
       [](v1::Turn* turn, int64_t value) {
         turn->mutable_stop()->add_stop_token_ids(static_cast<int32_t>(value));
       },
       {0, kVocabulary - 1},
       {-1, kVocabulary, kBig, kSmall}},
      {"turn.output.top_logprobs",
       [](v1::Turn* turn, int64_t value) {
         turn->mutable_output()->set_top_logprobs(static_cast<int32_t>(value));
       },
       {0, 20},
       {-1, 21, kBig, kSmall}},
      {"turn.scheduling.priority",
       [](v1::Turn* turn, int64_t value) {
         turn->mutable_scheduling()->set_priority(static_cast<v1::Priority>(value));
       },
       {0, 2},
       {-1, 4, kBig, kSmall}},
      {"turn.input_overflow",
       [](v1::Turn* turn, int64_t value) {
         turn->set_input_overflow(static_cast<v1::InputOverflow>(value));
       },
       {0, 1, 2},
       {-1, 3, kBig, kSmall}},
      {"turn.chat.messages[0].role",
       [](v1::Turn* turn, int64_t value) {
         auto* message = turn->mutable_chat()->add_messages();
         message->set_role(static_cast<v1::Role>(value));
         message->add_parts()->set_text("hi");
       },
       {1, 2, 3},
       {0, -1, 4, kBig, kSmall}},
  };
}

TEST(ConvertTurn, IntegersAndEnumsInAndOutOfRange) {
  for (const IntCase& test : IntCases()) {
    for (const int64_t value : test.good) {
      v1::Turn turn = ValidTurn();
      test.set(&turn, value);
      ExpectValid(turn);
    }
    for (const int64_t value : test.bad) {
      v1::Turn turn = ValidTurn();
      test.set(&turn, value);
      ExpectInvalid(turn, test.path);
    }
  }
}

// Paths without indices and keys.
void NumericFields(const google::protobuf::Descriptor* message, const std::string& path,
                   std::set<std::string>* out) {
  using google::protobuf::FieldDescriptor;
  for (int i = 0; i < message->field_count(); ++i) {
    const FieldDescriptor* field = message->field(i);
    const std::string name = absl::StrCat(path, ".", field->name());
    if (field->is_map()) {
      out->insert(name);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      NumericFields(field->message_type(), name, out);
    } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
               field->cpp_type() != FieldDescriptor::CPPTYPE_BOOL) {
      out->insert(name);
    }
  }
}

// A numeric field that is added to the proto must be added to the tables above.
TEST(ConvertTurn, NoNumericFieldIsForgotten) {
  std::set<std::string> fields;
  NumericFields(v1::Turn::descriptor(), "turn", &fields);
  std::set<std::string> tested = {
      // Refused whatever it holds: see RefusesWhatThisBuildLacks.
      "turn.scheduling.time_budget.seconds", "turn.scheduling.time_budget.nanos"};
  const auto strip = [](std::string path) {
    for (size_t at; (at = path.find('[')) != std::string::npos;) {
      path.erase(at, path.find(']', at) - at + 1);
    }
    return path;
  };
  for (const auto& test : IntCases()) tested.insert(strip(test.path));
  for (const auto& test : FloatCases()) tested.insert(strip("turn.sampling." + test.field));
  EXPECT_EQ(fields, tested);
}

TEST(ConvertTurn, RefusesWhatThisBuildLacks) {
  const auto feature = [](const v1::Turn& turn) -> std::string {
    const auto request = ConvertTurn(turn, Rules());
    EXPECT_EQ(request.status().code(), absl::StatusCode::kFailedPrecondition);
    const auto info = base::GetErrorInfo(request.status());
    if (!info.has_value() || info->reason != base::ErrorReason::kFeatureUnavailable) return "";
    return info->metadata.at(0).second;
  };
  v1::Turn turn = ValidTurn();
  turn.set_detachable(true);
  EXPECT_EQ(feature(turn), "resume");
  turn = ValidTurn();
  turn.mutable_scheduling()->mutable_time_budget()->set_seconds(1);
  EXPECT_EQ(feature(turn), "time_budget");
  turn = ValidTurn();
  turn.mutable_scheduling()->set_priority(v1::PRIORITY_REALTIME);
  EXPECT_EQ(feature(turn), "priority");
  turn.mutable_scheduling()->set_priority(v1::PRIORITY_BATCH);
  EXPECT_EQ(feature(turn), "priority");
}

TEST(ConvertTurn, InputIsRequiredAndBounded) {
  v1::Turn turn;
  ExpectInvalid(turn, "turn");
  turn.mutable_prompt()->set_text(std::string((1 << 20) + 1, 'a'));
  ExpectInvalid(turn, "turn.prompt.text");
  turn.mutable_prompt()->mutable_text()->pop_back();
  ExpectValid(turn);
  turn.mutable_tokens()->mutable_token_ids()->Resize((1 << 20) + 1, 0);
  ExpectInvalid(turn, "turn.tokens.token_ids");
  turn.mutable_tokens()->mutable_token_ids()->Resize(1 << 20, 0);
  ExpectValid(turn);
  turn.mutable_chat();
  ExpectInvalid(turn, "turn.chat.messages");
  turn.mutable_chat()->add_messages()->set_role(v1::ROLE_USER);
  ExpectInvalid(turn, "turn.chat.messages[0].parts");
  turn.mutable_chat()->mutable_messages(0)->add_parts();
  ExpectInvalid(turn, "turn.chat.messages[0].parts[0]");
  turn.mutable_chat()->mutable_messages(0)->mutable_parts(0)->set_text("");
  ExpectValid(turn);
  while (turn.chat().messages_size() < 1024)
    *turn.mutable_chat()->add_messages() = turn.chat().messages(0);
  ExpectValid(turn);
  *turn.mutable_chat()->add_messages() = turn.chat().messages(0);
  ExpectInvalid(turn, "turn.chat.messages");
  turn.mutable_chat()->mutable_messages()->DeleteSubrange(2, 1023);
  for (auto& message : *turn.mutable_chat()->mutable_messages()) {
    message.mutable_parts(0)->set_text(std::string(600000, 'a'));
  }
  ExpectInvalid(turn, "turn.chat.messages");
}

TEST(ConvertTurn, NamesAreChecked) {
  for (const std::string name : {"", "a", "sessions/", "sessions/a/versions/1", "sessions/-a",
                                 "sessions/a b", "sessions/\xff"}) {
    v1::Turn turn = ValidTurn();
    turn.mutable_session()->set_name(name);
    ExpectInvalid(turn, "turn.session.name");
  }
  v1::Turn turn = ValidTurn();
  turn.mutable_session()->set_name("sessions/" + std::string(63, 'a'));
  ExpectValid(turn);
  turn.mutable_session()->set_name("sessions/" + std::string(64, 'a'));
  ExpectInvalid(turn, "turn.session.name");
  turn = ValidTurn();
  turn.set_request_id(std::string(64, '.'));
  ExpectValid(turn);
  for (const std::string& id : {std::string(65, 'a'), std::string("a/b"), std::string("a\n")}) {
    turn.set_request_id(id);
    ExpectInvalid(turn, "turn.request_id");
  }
}

TEST(ConvertTurn, StopRulesAreBounded) {
  v1::Turn turn = ValidTurn();
  for (int i = 0; i < 16; ++i) turn.mutable_stop()->add_stop_strings(std::string(256, 'a'));
  for (int i = 0; i < 16; ++i) turn.mutable_stop()->add_stop_token_ids(i);
  ExpectValid(turn);
  turn.mutable_stop()->add_stop_strings("a");
  ExpectInvalid(turn, "turn.stop.stop_strings");
  turn.mutable_stop()->mutable_stop_strings()->RemoveLast();
  turn.mutable_stop()->set_stop_strings(3, "");
  ExpectInvalid(turn, "turn.stop.stop_strings[3]");
  turn.mutable_stop()->set_stop_strings(3, std::string(257, 'a'));
  ExpectInvalid(turn, "turn.stop.stop_strings[3]");
  turn.mutable_stop()->set_stop_strings(3, "a");
  turn.mutable_stop()->add_stop_token_ids(1);
  ExpectInvalid(turn, "turn.stop.stop_token_ids");
  turn = ValidTurn();
  for (int i = 0; i < 1000; ++i) (*turn.mutable_sampling()->mutable_logit_bias())[i] = 0;
  ExpectValid(turn);
}

TEST(ConvertTurn, AbsentFieldsTakeTheModelsDefaults) {
  TurnRules rules = Rules();
  rules.default_sampling.temperature = 0.3f;
  rules.default_sampling.top_k = 17;
  v1::Turn turn = ValidTurn();
  turn.mutable_sampling()->set_min_p(0.5f);
  turn.mutable_sampling()->set_seed(-3);
  (*turn.mutable_sampling()->mutable_logit_bias())[9] = 1;
  (*turn.mutable_sampling()->mutable_logit_bias())[2] = -100;
  const engine::Request request = ConvertTurn(turn, rules).value();
  EXPECT_EQ(request.sampling.temperature, 0.3f);
  EXPECT_EQ(request.sampling.top_k, 17);
  EXPECT_EQ(request.sampling.min_p, 0.5f);
  EXPECT_EQ(request.sampling.seed, static_cast<uint64_t>(-3));
  const std::vector<std::pair<int32_t, float>> bias = {{2, -100.0f}, {9, 1.0f}};
  EXPECT_EQ(request.sampling.logit_bias, bias);
  EXPECT_FALSE(request.stop.max_output_tokens.has_value());
  EXPECT_FALSE(request.top_logprobs.has_value());
  EXPECT_EQ(request.id.size(), 36u);
  EXPECT_NE(request.id, ConvertTurn(turn, rules).value().id);
  turn.mutable_sampling()->clear_seed();
  EXPECT_NE(ConvertTurn(turn, rules).value().sampling.seed,
            ConvertTurn(turn, rules).value().sampling.seed);
}

TEST(ConvertTurn, TellsAllThatIsWrong) {
  v1::Turn turn = ValidTurn();
  turn.mutable_sampling()->set_top_p(2);
  turn.mutable_sampling()->set_temperature(-1);
  turn.mutable_stop()->set_max_output_tokens(-1);
  ExpectInvalid(turn, "turn.sampling.top_p");
  ExpectInvalid(turn, "turn.sampling.temperature");
  ExpectInvalid(turn, "turn.stop.max_output_tokens");
}

}  // namespace
}  // namespace tokend::service
