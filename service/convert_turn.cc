#include "service/convert_turn.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/tokenizer/utf8.h"
#include "openssl/rand.h"
#include "service/errors.h"
#include "service/field_checks.h"
#include "service/limits.h"
#include "service/names.h"

namespace tokend::service {
namespace {

constexpr char kNotAnEnum[] = "not a value of this server";

// Known fields that this build cannot honour.
absl::Status CheckFeatures(const v1::Turn& turn) {
  if (turn.detachable()) {
    return base::FeatureUnavailable("resume", "turn.detachable: this server has no resume");
  }
  if (turn.scheduling().has_time_budget()) {
    return base::FeatureUnavailable("time_budget",
                                    "turn.scheduling.time_budget: not available on this server");
  }
  const v1::Priority priority = turn.scheduling().priority();
  if (priority == v1::PRIORITY_REALTIME || priority == v1::PRIORITY_BATCH) {
    return base::FeatureUnavailable(
        "priority", "turn.scheduling.priority: only INTERACTIVE is available on this server");
  }
  return absl::OkStatus();
}

void CheckTokenIds(absl::string_view path, const google::protobuf::RepeatedField<int32_t>& ids,
                   int32_t vocabulary_size, FieldErrors* errors) {
  for (int i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary_size) continue;
    CheckRange<int32_t>(absl::StrCat(path, "[", i, "]"), ids[i], 0, vocabulary_size - 1, errors);
    return;  // one is enough: there may be a million
  }
}

void ConvertPrompt(const v1::TextInput& in, engine::Request* out, FieldErrors* errors) {
  if (in.text().size() > kMaxTextBytes) {
    errors->Add("turn.prompt.text",
                absl::StrCat(in.text().size(), " bytes are more than ", kMaxTextBytes));
    return;
  }
  engine::TextInput text;
  text.text = in.text();
  if (in.has_add_bos()) text.add_bos = in.add_bos();
  text.parse_special = in.parse_special();
  out->input = std::move(text);
}

std::optional<engine::ChatInput::Message> ConvertMessage(const v1::Message& in,
                                                         const std::string& path,
                                                         FieldErrors* errors) {
  engine::ChatInput::Message out;
  switch (in.role()) {
    case v1::ROLE_SYSTEM:
      out.role = kv::Role::kSystem;
      break;
    case v1::ROLE_USER:
      out.role = kv::Role::kUser;
      break;
    case v1::ROLE_ASSISTANT:
      out.role = kv::Role::kAssistant;
      break;
    default:
      errors->Add(absl::StrCat(path, ".role"),
                  in.role() == v1::ROLE_UNSPECIFIED ? "required" : kNotAnEnum);
      return std::nullopt;
  }
  if (in.parts().empty()) {
    errors->Add(absl::StrCat(path, ".parts"), "at least one is required");
    return std::nullopt;
  }
  for (int i = 0; i < in.parts_size(); ++i) {
    if (in.parts(i).kind_case() != v1::Part::kText) {
      errors->Add(absl::StrCat(path, ".parts[", i, "]"), "holds nothing");
      return std::nullopt;
    }
    out.text += in.parts(i).text();
  }
  return out;
}

void ConvertChat(const v1::ChatInput& in, engine::Request* out, FieldErrors* errors) {
  if (!CheckRange<int>("turn.chat.messages", in.messages_size(), 1, kMaxChatMessages, errors)) {
    return;
  }
  engine::ChatInput chat;
  chat.omit_default_system = in.omit_default_system();
  size_t bytes = 0;
  for (int i = 0; i < in.messages_size(); ++i) {
    auto message =
        ConvertMessage(in.messages(i), absl::StrCat("turn.chat.messages[", i, "]"), errors);
    if (!message.has_value()) continue;
    bytes += message->text.size();
    chat.messages.push_back(std::move(*message));
  }
  if (bytes > kMaxTextBytes) {
    errors->Add("turn.chat.messages",
                absl::StrCat(bytes, " bytes of text are more than ", kMaxTextBytes));
  }
  out->input = std::move(chat);
}

void ConvertTokens(const v1::TokenInput& in, const TurnRules& rules, engine::Request* out,
                   FieldErrors* errors) {
  if (in.token_ids_size() > kMaxInputTokens) {
    errors->Add("turn.tokens.token_ids",
                absl::StrCat(in.token_ids_size(), " ids are more than ", kMaxInputTokens));
    return;
  }
  CheckTokenIds("turn.tokens.token_ids", in.token_ids(), rules.vocabulary_size, errors);
  out->input = engine::TokenInput{{in.token_ids().begin(), in.token_ids().end()}};
}

void ConvertInput(const v1::Turn& turn, const TurnRules& rules, engine::Request* out,
                  FieldErrors* errors) {
  switch (turn.input_case()) {
    case v1::Turn::kPrompt:
      return ConvertPrompt(turn.prompt(), out, errors);
    case v1::Turn::kChat:
      return ConvertChat(turn.chat(), out, errors);
    case v1::Turn::kTokens:
      return ConvertTokens(turn.tokens(), rules, out, errors);
    case v1::Turn::INPUT_NOT_SET:
      errors->Add("turn", "one of prompt, chat and tokens is required");
  }
}

void ConvertConflictPolicy(v1::ConflictPolicy in, engine::SessionTarget* out, FieldErrors* errors) {
  switch (in) {
    case v1::CONFLICT_POLICY_UNSPECIFIED:
    case v1::CONFLICT_POLICY_QUEUE:
      out->on_conflict = engine::OnConflict::kQueue;
      return;
    case v1::CONFLICT_POLICY_ABORT:
      out->on_conflict = engine::OnConflict::kAbort;
      return;
    case v1::CONFLICT_POLICY_FORK:
      out->on_conflict = engine::OnConflict::kFork;
      return;
    default:
      errors->Add("turn.session.on_conflict", kNotAnEnum);
  }
}

void ConvertCommitMode(v1::CommitMode in, engine::SessionTarget* out, FieldErrors* errors) {
  switch (in) {
    case v1::COMMIT_MODE_UNSPECIFIED:
    case v1::COMMIT_MODE_ON_FINISH:
      out->commit = engine::CommitMode::kOnFinish;
      return;
    case v1::COMMIT_MODE_PARTIAL:
      out->commit = engine::CommitMode::kPartial;
      return;
    case v1::COMMIT_MODE_NEVER:
      out->commit = engine::CommitMode::kNever;
      return;
    default:
      errors->Add("turn.session.commit", kNotAnEnum);
  }
}

void ConvertSession(const v1::SessionTarget& in, const TurnRules& rules, engine::Request* out,
                    FieldErrors* errors) {
  engine::SessionTarget session;
  session.spec_if_missing = rules.default_session;
  const auto name = ParseSessionName(in.name());
  if (!name.has_value() || name->version.has_value()) {
    errors->Add("turn.session.name",
                absl::StrCat(Echo(in.name()), " is not of the form sessions/{session}"));
  } else {
    session.id = name->id;
  }
  session.allow_missing = in.allow_missing();
  if (in.has_expected_version()) {
    CheckRange<int64_t>("turn.session.expected_version", in.expected_version(), 0, INT64_MAX,
                        errors);
    session.expected_version = in.expected_version();
  }
  if (in.has_from_position()) {
    CheckRange<int64_t>("turn.session.from_position", in.from_position(), 0, INT64_MAX, errors);
    session.from_position = in.from_position();
  }
  ConvertConflictPolicy(in.on_conflict(), &session, errors);
  ConvertCommitMode(in.commit(), &session, errors);
  out->session = std::move(session);
}

void ConvertLogitBias(const v1::Sampling& in, int32_t vocabulary_size, ops::SamplingParams* out,
                      FieldErrors* errors) {
  if (in.logit_bias_size() > kMaxLogitBiases) {
    errors->Add("turn.sampling.logit_bias",
                absl::StrCat(in.logit_bias_size(), " entries are more than ", kMaxLogitBiases));
    return;
  }
  for (const auto& [id, bias] : in.logit_bias()) {
    const std::string path = absl::StrCat("turn.sampling.logit_bias[", id, "]");
    CheckRange<int32_t>(path, id, 0, vocabulary_size - 1, errors);
    CheckRange(path, bias, -kMaxLogitBias, kMaxLogitBias, errors);
    out->logit_bias.emplace_back(id, bias);
  }
  std::sort(out->logit_bias.begin(), out->logit_bias.end());
}

uint64_t DrawSeed() {
  uint64_t seed = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&seed), sizeof(seed));
  return seed;
}

void ConvertSampling(const v1::Sampling& in, const TurnRules& rules, engine::Request* out,
                     FieldErrors* errors) {
  ops::SamplingParams& sampling = out->sampling;
  sampling = rules.default_sampling;
  if (in.has_temperature()) {
    CheckRange("turn.sampling.temperature", in.temperature(), 0.0f, kMaxTemperature, errors);
    sampling.temperature = in.temperature();
  }
  if (in.has_top_k()) {
    CheckRange<int32_t>("turn.sampling.top_k", in.top_k(), 0, rules.vocabulary_size, errors);
    sampling.top_k = in.top_k();
  }
  if (in.has_top_p()) {
    CheckAbove("turn.sampling.top_p", in.top_p(), 0.0f, 1.0f, errors);
    sampling.top_p = in.top_p();
  }
  if (in.has_min_p()) {
    CheckRange("turn.sampling.min_p", in.min_p(), 0.0f, 1.0f, errors);
    sampling.min_p = in.min_p();
  }
  if (in.has_repetition_penalty()) {
    CheckAbove("turn.sampling.repetition_penalty", in.repetition_penalty(), 0.0f,
               kMaxRepetitionPenalty, errors);
    sampling.repetition_penalty = in.repetition_penalty();
  }
  if (in.has_presence_penalty()) {
    CheckRange("turn.sampling.presence_penalty", in.presence_penalty(), -kMaxPenalty, kMaxPenalty,
               errors);
    sampling.presence_penalty = in.presence_penalty();
  }
  if (in.has_frequency_penalty()) {
    CheckRange("turn.sampling.frequency_penalty", in.frequency_penalty(), -kMaxPenalty, kMaxPenalty,
               errors);
    sampling.frequency_penalty = in.frequency_penalty();
  }
  ConvertLogitBias(in, rules.vocabulary_size, &sampling, errors);
  sampling.seed = in.has_seed() ? static_cast<uint64_t>(in.seed()) : DrawSeed();
}

void ConvertStop(const v1::StopRules& in, const TurnRules& rules, engine::Request* out,
                 FieldErrors* errors) {
  engine::StopRules& stop = out->stop;
  if (in.has_max_output_tokens()) {
    const int64_t most = std::min<int64_t>(rules.context_tokens, INT32_MAX);
    CheckRange<int64_t>("turn.stop.max_output_tokens", in.max_output_tokens(), 0, most, errors);
    stop.max_output_tokens = in.max_output_tokens();
  }
  CheckRange<int>("turn.stop.stop_strings", in.stop_strings_size(), 0, kMaxStopStrings, errors);
  for (int i = 0; i < in.stop_strings_size(); ++i) {
    const size_t size = in.stop_strings(i).size();
    if (size >= 1 && size <= kMaxStopStringBytes) continue;
    errors->Add(absl::StrCat("turn.stop.stop_strings[", i, "]"),
                absl::StrCat(size, " bytes are not in [1, ", kMaxStopStringBytes, "]"));
  }
  CheckRange<int>("turn.stop.stop_token_ids", in.stop_token_ids_size(), 0, kMaxStopTokens, errors);
  CheckTokenIds("turn.stop.stop_token_ids", in.stop_token_ids(), rules.vocabulary_size, errors);
  stop.strings.assign(in.stop_strings().begin(), in.stop_strings().end());
  stop.token_ids.assign(in.stop_token_ids().begin(), in.stop_token_ids().end());
  stop.ignore_end_of_text = in.ignore_end_of_text();
}

void ConvertRest(const v1::Turn& turn, engine::Request* out, FieldErrors* errors) {
  if (turn.output().has_top_logprobs()) {
    CheckRange<int32_t>("turn.output.top_logprobs", turn.output().top_logprobs(), 0,
                        kMaxTopLogprobs, errors);
    out->top_logprobs = turn.output().top_logprobs();
  }
  if (!v1::Priority_IsValid(turn.scheduling().priority())) {
    errors->Add("turn.scheduling.priority", kNotAnEnum);
  }
  switch (turn.input_overflow()) {
    case v1::INPUT_OVERFLOW_UNSPECIFIED:
    case v1::INPUT_OVERFLOW_REJECT:
      out->input_overflow = engine::InputOverflow::kReject;
      break;
    case v1::INPUT_OVERFLOW_DROP_OLDEST:
      out->input_overflow = engine::InputOverflow::kDropOldest;
      break;
    default:
      errors->Add("turn.input_overflow", kNotAnEnum);
  }
  if (turn.request_id().empty()) {
    out->id = RandomUuid();
  } else if (IsRequestId(turn.request_id())) {
    out->id = turn.request_id();
  } else {
    errors->Add("turn.request_id",
                absl::StrCat(Echo(turn.request_id()), " is not 1 to 64 of [A-Za-z0-9._-]"));
  }
}

}  // namespace

absl::StatusOr<engine::Request> ConvertTurn(const v1::Turn& turn, const TurnRules& rules) {
  TOKEND_RETURN_IF_ERROR(CheckFeatures(turn));
  engine::Request out;
  FieldErrors errors;
  ConvertInput(turn, rules, &out, &errors);
  if (turn.has_session()) ConvertSession(turn.session(), rules, &out, &errors);
  ConvertSampling(turn.sampling(), rules, &out, &errors);
  ConvertStop(turn.stop(), rules, &out, &errors);
  ConvertRest(turn, &out, &errors);
  TOKEND_RETURN_IF_ERROR(errors.status());
  return out;
}

}  // namespace tokend::service
