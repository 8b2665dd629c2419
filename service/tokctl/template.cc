// tokctl template: a chat template rendered without a server.
#include "core/chat/template.h"

#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status_macros.h"
#include "core/chat/json.h"
#include "core/gguf/file.h"
#include "nlohmann/json.hpp"
#include "service/tokctl/commands.h"
#include "service/tokctl/output.h"

namespace tokend::tokctl {
namespace {

constexpr char kTemplateKey[] = "tokenizer.chat_template";

struct TemplateOptions {
  std::string template_file;
  std::string model_file;
  std::string messages_file;
  std::string date;
};

// Noon is nobody's time of day; without a date it is the time of now.
absl::CivilSecond Now(const std::string& date) {
  absl::CivilDay day;
  if (absl::ParseCivilTime(date, &day)) return absl::CivilSecond(day) + 12 * 60 * 60;
  return absl::ToCivilSecond(absl::Now(), absl::LocalTimeZone());
}

std::string CheckDate(const std::string& date) {
  absl::CivilDay day;
  const bool good = date.size() == 10 && absl::ParseCivilTime(date, &day);
  return good ? "" : "expected a date such as 2026-07-31";
}

absl::StatusOr<std::string> TemplateOf(const std::string& model_file) {
  TOKEND_ASSIGN_OR_RETURN(const auto file, gguf::File::OpenMetadata(model_file));
  if (!file->Has(kTemplateKey)) {
    return absl::NotFoundError(absl::StrCat(model_file, ": the model has no chat template"));
  }
  TOKEND_ASSIGN_OR_RETURN(const absl::string_view source, file->GetString(kTemplateKey));
  return std::string(source);
}

absl::StatusOr<std::string> Render(const std::string& source, const std::string& variables,
                                   const TemplateOptions& options) {
  TOKEND_ASSIGN_OR_RETURN(const auto chat, chat::Template::Parse(source));
  TOKEND_ASSIGN_OR_RETURN(const chat::Value value,
                          chat::ParseJson(variables, options.messages_file));
  if (!value.Is(chat::Kind::kDict) || value.dict().Find("messages") == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.messages_file, ": no JSON object with \"messages\""));
  }
  TOKEND_ASSIGN_OR_RETURN(const chat::Text text, chat->Render(value, Now(options.date)));
  return std::string(text.bytes());
}

int RenderTemplate(const Globals& globals, const TemplateOptions& options) {
  std::string source;
  if (options.model_file.empty()) {
    if (!ReadFile(globals, options.template_file, &source)) return kRequestFailed;
  } else {
    const auto found = TemplateOf(options.model_file);
    if (!found.ok()) {
      PrintFailure(globals, std::string(found.status().message()));
      return kBadModel;
    }
    source = *found;
  }
  std::string variables;
  if (!ReadFile(globals, options.messages_file, &variables)) return kRequestFailed;
  const auto text = Render(source, variables, options);
  if (!text.ok()) {
    PrintFailure(globals, std::string(text.status().message()));
    return kRequestFailed;
  }
  if (globals.json) {
    std::cout << nlohmann::json({{"text", *text}})
                     .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
              << std::endl;
  } else {
    std::cout << *text << std::flush;  // byte for byte, without a newline of ours
  }
  return kDone;
}

}  // namespace

void AddTemplate(CLI::App* app, const Globals* globals, Action* action) {
  auto options = std::make_shared<TemplateOptions>();
  CLI::App* command = app->add_subcommand(
      "template", "A conversation as a chat template writes it, without a server");
  auto* source = command->add_option_group("source");
  source->add_option("--template", options->template_file, "A Jinja template");
  source->add_option("--model", options->model_file, "A model file that holds one");
  source->require_option(1);
  command
      ->add_option("--messages", options->messages_file,
                   "A JSON object: messages, and whatever else the template reads (tools, "
                   "add_generation_prompt, enable_thinking, bos_token ...); - for stdin")
      ->required();
  command->add_option("--date", options->date, "YYYY-MM-DD for strftime_now; default: now")
      ->check(CheckDate);
  command->callback([=] { *action = [=] { return RenderTemplate(*globals, *options); }; });
}

}  // namespace tokend::tokctl
