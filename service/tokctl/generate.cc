// tokctl generate and tokctl chat.
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "service/tokctl/client.h"
#include "service/tokctl/commands.h"
#include "service/tokctl/output.h"

namespace tokend::tokctl {
namespace {

// Options that generate and chat share.
struct TurnOptions {
  std::string session;
  std::optional<int64_t> expected_version;
  std::optional<int64_t> from_position;
  std::string on_conflict;
  std::string commit;
  std::string request_id;
  std::optional<int32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::optional<int32_t> logprobs;
  bool drop_oldest = false;
};

struct GenerateOptions {
  TurnOptions turn;
  std::string prompt;
  std::string prompt_file;
  std::vector<std::string> token_ids;
  bool parse_special = false;
  bool stream = false;
};

struct ChatOptions {
  TurnOptions turn;
  std::string message;
  std::string system;
  bool no_default_system = false;
};

void AddTurnOptions(CLI::App* app, TurnOptions* turn) {
  auto* session =
      app->add_option("--session", turn->session, "Session to continue; created if it is missing")
          ->check(CheckUtf8);
  app->add_option("--expected-version", turn->expected_version, "Fail if the head is another one")
      ->needs(session);
  app->add_option("--from-position", turn->from_position,
                  "Drop the session's tokens from here on first")
      ->needs(session);
  app->add_option("--on-conflict", turn->on_conflict, "Behind another turn of the session")
      ->check(CLI::IsMember({"queue", "abort", "fork"}))
      ->needs(session);
  app->add_option("--commit", turn->commit, "What the session keeps")
      ->check(CLI::IsMember({"on-finish", "partial", "never"}))
      ->needs(session);
  app->add_option("--request-id", turn->request_id, "Handle of the turn")->check(CheckUtf8);
  app->add_option("--max-tokens", turn->max_tokens, "Most output tokens; 0 feeds the input alone");
  app->add_option("--temperature", turn->temperature, "0 picks the likeliest token");
  app->add_option("--top-k", turn->top_k, "0: off");
  app->add_option("--top-p", turn->top_p, "1: off");
  app->add_option("--min-p", turn->min_p, "0: off");
  app->add_option("--repetition-penalty", turn->repetition_penalty, "1: off");
  app->add_option("--presence-penalty", turn->presence_penalty, "0: off");
  app->add_option("--frequency-penalty", turn->frequency_penalty, "0: off");
  app->add_option("--seed", turn->seed, "Same seed, same text; drawn by the server if absent");
  app->add_option("--stop", turn->stop, "Stop string; may be repeated")
      ->allow_extra_args(false)
      ->check(CheckUtf8);
  app->add_flag("--ignore-eos", turn->ignore_eos, "Go on after the end of the text");
  app->add_option("--logprobs", turn->logprobs,
                  "With --json: log-probabilities, and so many likeliest tokens");
  app->add_flag("--drop-oldest", turn->drop_oldest, "Cut an over-long input at its start");
}

v1::ConflictPolicy ParseConflict(const std::string& name) {
  if (name == "queue") return v1::CONFLICT_POLICY_QUEUE;
  if (name == "abort") return v1::CONFLICT_POLICY_ABORT;
  return name == "fork" ? v1::CONFLICT_POLICY_FORK : v1::CONFLICT_POLICY_UNSPECIFIED;
}

v1::CommitMode ParseCommit(const std::string& name) {
  if (name == "on-finish") return v1::COMMIT_MODE_ON_FINISH;
  if (name == "partial") return v1::COMMIT_MODE_PARTIAL;
  return name == "never" ? v1::COMMIT_MODE_NEVER : v1::COMMIT_MODE_UNSPECIFIED;
}

void FillSampling(const TurnOptions& options, v1::Sampling* sampling) {
  if (options.temperature) sampling->set_temperature(*options.temperature);
  if (options.top_k) sampling->set_top_k(*options.top_k);
  if (options.top_p) sampling->set_top_p(*options.top_p);
  if (options.min_p) sampling->set_min_p(*options.min_p);
  if (options.repetition_penalty) sampling->set_repetition_penalty(*options.repetition_penalty);
  if (options.presence_penalty) sampling->set_presence_penalty(*options.presence_penalty);
  if (options.frequency_penalty) sampling->set_frequency_penalty(*options.frequency_penalty);
  if (options.seed) sampling->set_seed(*options.seed);
}

v1::Turn MakeTurn(const TurnOptions& options) {
  v1::Turn turn;
  if (!options.session.empty()) {
    v1::SessionTarget* session = turn.mutable_session();
    session->set_name(absl::StrCat("sessions/", options.session));
    session->set_allow_missing(true);
    if (options.expected_version) session->set_expected_version(*options.expected_version);
    if (options.from_position) session->set_from_position(*options.from_position);
    session->set_on_conflict(ParseConflict(options.on_conflict));
    session->set_commit(ParseCommit(options.commit));
  }
  FillSampling(options, turn.mutable_sampling());
  if (options.max_tokens) turn.mutable_stop()->set_max_output_tokens(*options.max_tokens);
  for (const std::string& stop : options.stop) turn.mutable_stop()->add_stop_strings(stop);
  turn.mutable_stop()->set_ignore_end_of_text(options.ignore_eos);
  if (options.logprobs) turn.mutable_output()->set_top_logprobs(*options.logprobs);
  if (options.drop_oldest) turn.set_input_overflow(v1::INPUT_OVERFLOW_DROP_OLDEST);
  turn.set_request_id(options.request_id);
  return turn;
}

void PrintSummary(const v1::Finished& finished) {
  const v1::Usage& usage = finished.usage();
  const v1::Timings& timings = finished.timings();
  std::string reason = v1::FinishReason_Name(finished.reason());
  const std::string prefix = "FINISH_REASON_";
  if (reason.compare(0, prefix.size(), prefix) == 0) reason.erase(0, prefix.size());
  const double decode = ToSeconds(timings.decode());
  // The first token comes out of the prefill.
  const int steps = usage.output_tokens() - 1;
  std::cerr << absl::StreamFormat(
      "[%s; %d input tokens, %d of base and input cached; %d output tokens", reason,
      usage.input_tokens(), usage.cached_tokens(), usage.output_tokens());
  if (usage.output_tokens() > 0) {
    std::cerr << absl::StreamFormat("; first after %.0f ms",
                                    1e3 * ToSeconds(timings.time_to_first_token()));
  }
  if (steps > 0 && decode > 0)
    std::cerr << absl::StreamFormat(", then %.1f tokens/s", steps / decode);
  if (!finished.version().empty()) std::cerr << "; " << finished.version();
  std::cerr << "]" << std::endl;
}

// Streams a turn to stdout. Text is written as it comes, so that a person sees it
// token by token.
int StreamTurn(const Globals& globals, Client* client, const v1::Turn& turn) {
  grpc::ClientContext context;
  client->Prepare(&context);
  v1::StreamRequest request;
  *request.mutable_turn() = turn;
  const auto reader = client->generation()->Stream(&context, request);
  v1::StreamResponse response;
  v1::Finished finished;
  bool at_line_start = true;
  while (reader->Read(&response)) {
    if (globals.json) {
      PrintJson(response);
      continue;
    }
    if (response.has_delta() && !response.delta().text().empty()) {
      std::cout << response.delta().text() << std::flush;
      at_line_start = response.delta().text().back() == '\n';
    }
    if (response.has_finished()) finished = response.finished();
  }
  const grpc::Status status = reader->Finish();
  if (!globals.json && !at_line_start) std::cout << std::endl;
  if (!status.ok()) return PrintStatus(globals, status);
  if (!globals.json) PrintSummary(finished);
  return kDone;
}

// Where they would be computed for nobody.
bool CheckLogprobs(const Globals& globals, const TurnOptions& options) {
  if (globals.json || !options.logprobs) return true;
  PrintFailure(globals, "--logprobs requires --json");
  return false;
}

int Generate(const Globals& globals, const GenerateOptions& options) {
  if (!CheckLogprobs(globals, options.turn)) return kUsage;
  v1::Turn turn = MakeTurn(options.turn);
  if (!options.token_ids.empty()) {
    for (int32_t id : ParseTokenIds(options.token_ids)) turn.mutable_tokens()->add_token_ids(id);
  } else {
    std::string text = options.prompt;
    if (!options.prompt_file.empty() && !ReadFile(globals, options.prompt_file, &text)) {
      return kRequestFailed;
    }
    if (const std::string problem = CheckUtf8(text); !problem.empty()) {
      PrintFailure(globals, absl::StrCat(options.prompt_file, ": ", problem));
      return kRequestFailed;
    }
    turn.mutable_prompt()->set_text(text);
    turn.mutable_prompt()->set_parse_special(options.parse_special);
  }
  const auto client = Client::Connect(globals);
  if (client == nullptr) return kUnreachable;
  if (options.stream || !globals.json) return StreamTurn(globals, client.get(), turn);
  grpc::ClientContext context;
  client->Prepare(&context);
  v1::GenerateRequest request;
  *request.mutable_turn() = turn;
  v1::GenerateResponse response;
  const grpc::Status status = client->generation()->Generate(&context, request, &response);
  if (!status.ok()) return PrintStatus(globals, status);
  PrintJson(response);
  return kDone;
}

v1::Message TextMessage(v1::Role role, const std::string& text) {
  v1::Message message;
  message.set_role(role);
  message.add_parts()->set_text(text);
  return message;
}

int Chat(const Globals& globals, const ChatOptions& options) {
  if (!CheckLogprobs(globals, options.turn)) return kUsage;
  const auto client = Client::Connect(globals);
  if (client == nullptr) return kUnreachable;
  bool first = true;
  const auto say = [&](const std::string& text) {
    v1::Turn turn = MakeTurn(options.turn);
    // What names one version, one place or one turn is for the first line alone.
    if (!first) {
      turn.clear_request_id();
      if (turn.has_session()) {
        turn.mutable_session()->clear_expected_version();
        turn.mutable_session()->clear_from_position();
      }
    }
    v1::ChatInput* chat = turn.mutable_chat();
    if (first && !options.system.empty()) {
      *chat->add_messages() = TextMessage(v1::ROLE_SYSTEM, options.system);
    }
    chat->set_omit_default_system(options.no_default_system);
    *chat->add_messages() = TextMessage(v1::ROLE_USER, text);
    first = false;
    return StreamTurn(globals, client.get(), turn);
  };
  if (!options.message.empty()) return say(options.message);
  // Without a session every line would be a new conversation.
  const bool terminal = isatty(STDIN_FILENO) != 0;
  std::string line;
  for (;;) {
    if (terminal) std::cerr << "> " << std::flush;
    if (!std::getline(std::cin, line)) return kDone;
    if (line.empty()) continue;
    if (const std::string problem = CheckUtf8(line); !problem.empty()) {
      PrintFailure(globals, absl::StrCat("the line is ", problem));
      return kRequestFailed;
    }
    if (const int code = say(line); code != kDone) return code;
  }
}

}  // namespace

void AddGenerate(CLI::App* app, const Globals* globals, Action* action) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app->add_subcommand("generate", "Continue a text");
  auto* input = command->add_option_group("input");
  input->add_option("--prompt", options->prompt, "The text")->check(CheckUtf8);
  input->add_option("--prompt-file", options->prompt_file, "A file with the text; - for stdin");
  auto* ids =
      input->add_option("--token-ids", options->token_ids, "Tokens, taken as they are: 1,2,3")
          ->check(CheckTokenIds);
  input->require_option(1);
  command
      ->add_flag("--parse-special", options->parse_special,
                 "Read <|...|> in the text as special tokens")
      ->excludes(ids);
  command->add_flag("--stream", options->stream, "With --json: one response a line");
  AddTurnOptions(command, &options->turn);
  command->callback([=] { *action = [=] { return Generate(*globals, *options); }; });
}

void AddChat(CLI::App* app, const Globals* globals, Action* action) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command = app->add_subcommand("chat", "Talk: one --message, or a line at a time");
  command->add_option("--message", options->message, "Say this and return")->check(CheckUtf8);
  command->add_option("--system", options->system, "System message")->check(CheckUtf8);
  command->add_flag("--no-default-system", options->no_default_system,
                    "Leave out the template's own system message");
  AddTurnOptions(command, &options->turn);
  command->callback([=] {
    if (options->turn.session.empty() && options->message.empty()) {
      throw CLI::RequiredError("--session (or --message)");
    }
    *action = [=] { return Chat(*globals, *options); };
  });
}

}  // namespace tokend::tokctl
