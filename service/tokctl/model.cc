// tokctl model, tokenize, detokenize and stats.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/gguf/file.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/utf8.h"
#include "service/tokctl/client.h"
#include "service/tokctl/commands.h"
#include "service/tokctl/output.h"

namespace tokend::tokctl {
namespace {

struct TokenizeOptions {
  std::string text;
  std::string text_file;
  std::string model_file;
  bool no_special = false;
};

struct DetokenizeOptions {
  std::vector<std::string> token_ids;
  std::string model_file;
  bool skip_special = false;
};

int ShowModel(const Globals& globals) {
  const auto client = Client::Connect(globals);
  if (client == nullptr) return kUnreachable;
  grpc::ClientContext context;
  client->Prepare(&context);
  v1::GetModelResponse response;
  const grpc::Status status = client->model()->GetModel(&context, {}, &response);
  if (!status.ok()) return PrintStatus(globals, status);
  if (globals.json) {
    PrintJson(response);
    return kDone;
  }
  const v1::Model& model = response.model();
  std::vector<std::pair<std::string, std::string>> pairs = {
      {"name", model.name()},
      {"ready", response.ready() ? "yes" : "no, loading"},
      {"architecture", model.architecture()},
      {"parameters",
       absl::StrFormat("%.1f M", 1e-6 * static_cast<double>(model.parameter_count()))},
      {"weights", absl::StrCat(model.weight_type(), ", ", FormatBytes(model.weight_bytes()))},
      {"layers", absl::StrCat(model.layer_count())},
      {"context", absl::StrCat(model.context_length(), " tokens")},
      {"vocabulary", absl::StrCat(model.vocabulary_size(), " tokens")},
      {"kv", absl::StrCat(model.kv_type(), ", ", model.kv_bytes_per_token(), " bytes a token")},
      {"features", absl::StrJoin(model.features(), ", ")},
      {"fingerprint", model.fingerprint()}};
  for (const auto& [name, value] : model.attributes()) pairs.emplace_back(name, value);
  PrintPairs(pairs);
  return kDone;
}

// The tokeniser of a model file, without a server; nullptr: printed why.
std::unique_ptr<tokenizer::Tokenizer> OpenTokenizer(const Globals& globals,
                                                    const std::string& path) {
  auto file = gguf::File::OpenMetadata(path);
  if (!file.ok()) {
    PrintFailure(globals, std::string(file.status().message()));
    return nullptr;
  }
  auto tokenizer = tokenizer::Tokenizer::Create(**file);
  if (!tokenizer.ok()) {
    PrintFailure(globals, absl::StrCat(path, ": ", tokenizer.status().message()));
    return nullptr;
  }
  return *std::move(tokenizer);
}

int PrintTokens(const Globals& globals, const v1::TokenizeResponse& response) {
  if (globals.json) {
    PrintJson(response);
  } else {
    std::cout << absl::StrJoin(response.token_ids(), ",") << std::endl;
  }
  return kDone;
}

int TokenizeLocally(const Globals& globals, const TokenizeOptions& options,
                    const std::string& text) {
  const auto tokenizer = OpenTokenizer(globals, options.model_file);
  if (tokenizer == nullptr) return kBadModel;
  const bool special = !options.no_special;
  const auto ids =
      tokenizer->Encode(text, {.add_bos = special, .add_eos = special, .parse_special = special});
  if (!ids.ok()) {
    PrintFailure(globals, std::string(ids.status().message()));
    return kRequestFailed;
  }
  v1::TokenizeResponse response;
  response.mutable_token_ids()->Add(ids->begin(), ids->end());
  return PrintTokens(globals, response);
}

int Tokenize(const Globals& globals, const TokenizeOptions& options) {
  std::string text = options.text;
  if (!options.text_file.empty() && !ReadFile(globals, options.text_file, &text)) {
    return kRequestFailed;
  }
  if (!options.model_file.empty()) return TokenizeLocally(globals, options, text);
  const auto client = Client::Connect(globals);
  if (client == nullptr) return kUnreachable;
  grpc::ClientContext context;
  client->Prepare(&context);
  v1::TokenizeRequest request;
  // A file may hold anything, so it goes as bytes.
  request.set_raw(text);
  request.set_add_special(!options.no_special);
  request.set_parse_special(!options.no_special);
  v1::TokenizeResponse response;
  const grpc::Status status = client->model()->Tokenize(&context, request, &response);
  if (!status.ok()) return PrintStatus(globals, status);
  return PrintTokens(globals, response);
}

int PrintText(const Globals& globals, const v1::DetokenizeResponse& response) {
  if (globals.json) {
    PrintJson(response);
  } else {
    std::cout << response.text() << std::endl;
  }
  return kDone;
}

int DetokenizeLocally(const Globals& globals, const DetokenizeOptions& options) {
  const auto tokenizer = OpenTokenizer(globals, options.model_file);
  if (tokenizer == nullptr) return kBadModel;
  const auto raw = tokenizer->Detokenize(ParseTokenIds(options.token_ids), options.skip_special);
  if (!raw.ok()) {
    PrintFailure(globals, std::string(raw.status().message()));
    return kRequestFailed;
  }
  v1::DetokenizeResponse response;
  response.set_raw(*raw);
  response.set_text(tokenizer::ReplaceInvalidUtf8(*raw));
  return PrintText(globals, response);
}

int Detokenize(const Globals& globals, const DetokenizeOptions& options) {
  if (!options.model_file.empty()) return DetokenizeLocally(globals, options);
  const auto client = Client::Connect(globals);
  if (client == nullptr) return kUnreachable;
  grpc::ClientContext context;
  client->Prepare(&context);
  v1::DetokenizeRequest request;
  const std::vector<int32_t> ids = ParseTokenIds(options.token_ids);
  request.mutable_token_ids()->Add(ids.begin(), ids.end());
  request.set_skip_special(options.skip_special);
  v1::DetokenizeResponse response;
  const grpc::Status status = client->model()->Detokenize(&context, request, &response);
  if (!status.ok()) return PrintStatus(globals, status);
  return PrintText(globals, response);
}

int ShowStats(const Globals& globals) {
  const auto client = Client::Connect(globals);
  if (client == nullptr) return kUnreachable;
  grpc::ClientContext context;
  client->Prepare(&context);
  v1::GetStatsResponse stats;
  const grpc::Status status = client->admin()->GetStats(&context, {}, &stats);
  if (!status.ok()) return PrintStatus(globals, status);
  if (globals.json) {
    PrintJson(stats);
    return kDone;
  }
  const v1::PageCounts& pages = stats.pages();
  PrintPairs({{"server", stats.server_version()},
              {"device", stats.device()},
              {"uptime", absl::StrFormat("%.0f s", ToSeconds(stats.uptime()))},
              {"turns", absl::StrCat(stats.running_turns(), " running, ", stats.waiting_turns(),
                                     " waiting")},
              {"sessions", absl::StrCat(stats.sessions(), ", ", stats.versions(), " versions")},
              {"kv", FormatBytes(stats.kv_bytes_total())},
              {"pages", absl::StrCat(pages.total(), ": ", pages.free(), " free, ", pages.cached(),
                                     " cached, ", pages.private_pages(), " private, ",
                                     pages.shared(), " shared, ", pages.pinned(), " pinned, ",
                                     pages.quarantined(), " quarantined")},
              {"prefill", absl::StrFormat("%.1f tokens/s", stats.prefill_tokens_per_second())},
              {"decode", absl::StrFormat("%.1f tokens/s", stats.decode_tokens_per_second())},
              {"huge pages", absl::StrCat(FormatBytes(stats.huge_page_bytes()), " of the weights")},
              {"saturated", absl::StrCat(stats.saturated_activations(), " activations")}});
  return kDone;
}

void AddTokenize(CLI::App* app, const Globals* globals, Action* action) {
  auto options = std::make_shared<TokenizeOptions>();
  CLI::App* command = app->add_subcommand("tokenize", "Text to token ids");
  auto* input = command->add_option_group("input");
  input->add_option("--text", options->text, "The text");
  input->add_option("--text-file", options->text_file, "A file with the text; - for stdin");
  input->require_option(1);
  command->add_flag("--no-special", options->no_special,
                    "Add no BOS or EOS, read no special tokens in the text");
  command->add_option("--model", options->model_file,
                      "Use this file's tokeniser, without a server");
  command->callback([=] { *action = [=] { return Tokenize(*globals, *options); }; });
}

void AddDetokenize(CLI::App* app, const Globals* globals, Action* action) {
  auto options = std::make_shared<DetokenizeOptions>();
  CLI::App* command = app->add_subcommand("detokenize", "Token ids to text");
  command->add_option("token-ids", options->token_ids, "1,2,3")->check(CheckTokenIds)->required();
  command->add_flag("--skip-special", options->skip_special, "Leave special tokens out");
  command->add_option("--model", options->model_file,
                      "Use this file's tokeniser, without a server");
  command->callback([=] { *action = [=] { return Detokenize(*globals, *options); }; });
}

}  // namespace

void AddModel(CLI::App* app, const Globals* globals, Action* action) {
  app->add_subcommand("model", "What is being served")->callback([=] {
    *action = [=] { return ShowModel(*globals); };
  });
  AddTokenize(app, globals, action);
  AddDetokenize(app, globals, action);
  app->add_subcommand("stats", "What the server is doing")->callback([=] {
    *action = [=] { return ShowStats(*globals); };
  });
}

}  // namespace tokend::tokctl
