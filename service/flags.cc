#include "service/flags.h"

#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/read_file.h"
#include "core/base/status_macros.h"
#include "google/protobuf/descriptor.h"
#include "service/build_info.h"
#include "service/errors.h"

namespace tokend::service {
namespace {

using google::protobuf::FieldDescriptor;

// More than a thousand principals need.
constexpr size_t kMaxConfigBytes = 1 << 20;

constexpr char kFooter[] =
    "Settings come from flags, then from the configuration file (protobuf text, fields as the\n"
    "flags with underscores), then from the defaults. config.proto describes each.\n\n"
    "Exit codes:\n"
    "  0   done: told to stop, and drained\n"
    "  1   failed, and a restart may help (port in use, too little memory, device)\n"
    "  65  the model file is damaged or not supported\n"
    "  78  the configuration is wrong";

struct FlagHelp {
  const char* field;
  const char* help;
};

// Every field of ServerConfig, in its order.
constexpr std::array<FlagHelp, 32> kHelp = {{
    {"model", "GGUF file"},
    {"listen", "HOST:PORT or unix:PATH; may be repeated [127.0.0.1:50551]"},
    {"metrics_listen", "HOST:PORT of /metrics, or off [127.0.0.1:9551]"},
    {"device", "auto, cpu, cuda or cuda:N [auto: cuda where it can run]"},
    {"threads", "CPU threads [one per core]"},
    {"activations", "CPU: int16, int8 or f32 [int16]; CUDA: f16 or f32 [f16]"},
    {"kv_dtype", "KV cache: f16, int8 or, on the CPU, f32 [f16]"},
    {"page_tokens", "positions in a page: 16 or 32 [16]"},
    {"context_tokens", "longest context [the file's]"},
    {"kv_budget_bytes", "memory of the KV cache; KiB, MiB, GiB [half of what is available]"},
    {"kv_memory_fraction", "CUDA: share of what is free for the KV cache, (0, 1]"},
    {"max_running", "turns in a step, 1 to 32 [8]"},
    {"max_batch_tokens", "tokens in a step [2048]"},
    {"prefill_chunk_tokens", "prompt tokens of a turn in a step; 0: automatic [0]"},
    {"step_time_target_ms", "duration of a step while others wait [50]"},
    {"max_queued", "turns that wait [64]"},
    {"stall_timeout_ms", "patience with a reader that takes nothing [30000]"},
    {"drain_timeout_ms", "time for running turns after SIGTERM [20000]"},
    {"detach_timeout_ms", "time a detached turn runs on [30000]"},
    {"replay_window_ms", "how long an ended turn is known by its id [120000]"},
    {"max_sessions", "sessions [1024]"},
    {"max_versions", "versions kept of a session [16]"},
    {"default_retention", "of new sessions, as text [full {}]"},
    {"default_idle_ttl_ms", "idle sessions are deleted after so long [never]"},
    {"share_prefixes", "let callers reuse each other's prompt pages"},
    {"allow_insecure_remote", "serve other machines without TLS"},
    {"allow_anonymous", "serve callers without a token beside principals"},
    {"tls_cert_file", "PEM file of the certificate chain"},
    {"tls_key_file", "PEM file of the key"},
    {"principals", "a caller, as text: name: \"a\" token_sha256: \"...\"; may be repeated"},
    {"log_format", "text or json [text]"},
    {"stream_priority", "CUDA: normal or high, before other programs' kernels [normal]"},
}};

struct ParsedFlags {
  std::string config_file;
  std::string ports_file;
  bool version = false;
  std::map<std::string, std::vector<std::string>> values;  // by field
};

void AddFlags(CLI::App* app, ParsedFlags* out) {
  const auto* descriptor = v1::ServerConfig::descriptor();
  for (const FlagHelp& flag : kHelp) {
    const FieldDescriptor* field = descriptor->FindFieldByName(flag.field);
    TOKEND_CHECK(field != nullptr);
    const std::string name = absl::StrCat("--", FlagName(flag.field));
    std::vector<std::string>& values = out->values[flag.field];
    if (field->type() == FieldDescriptor::TYPE_BOOL) {
      app->add_flag(name, values, flag.help)
          ->take_last()
          ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
      continue;
    }
    auto* option = app->add_option(name, values, flag.help);
    // One value after each flag, so that nothing else is taken for one.
    option->type_size(1)->expected(1)->allow_extra_args(false)->type_name("");
    if (field->is_repeated()) {
      option->expected(1, 1024)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    } else {
      option->multi_option_policy(CLI::MultiOptionPolicy::Throw);
    }
  }
}

absl::Status Merge(const ParsedFlags& flags, v1::ServerConfig* config) {
  for (const auto& [field, values] : flags.values) {
    if (!values.empty()) TOKEND_RETURN_IF_ERROR(SetFromFlag(field, values, config));
  }
  return absl::OkStatus();
}

}  // namespace

std::string ServerVersion() { return absl::StrCat(kBuildVersion, " (", kBuildType, ")"); }

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  static_assert(kHelp.size() == 32);
  CLI::App app("tokend: serves a language model over gRPC", "tokend");
  app.footer(kFooter);
  ParsedFlags flags;
  app.add_option("--config", flags.config_file, "configuration file")->type_name("");
  app.add_option("--ports-file", flags.ports_file, "where to write the addresses it listens on")
      ->type_name("");
  app.add_flag("--version", flags.version, "print the version and exit");
  AddFlags(&app, &flags);
  CommandLine out;
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    out.done = true;
    out.text = app.help();
    return out;
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(absl::StrCat(error.what(), " (see tokend --help)"));
  }
  if (flags.version) {
    out.done = true;
    out.text = absl::StrCat("tokend ", ServerVersion(), "\n");
    return out;
  }
  out.ports_file = flags.ports_file;
  v1::ServerConfig config;
  if (!flags.config_file.empty()) {
    const auto text = base::ReadWholeFile(flags.config_file, kMaxConfigBytes);
    if (!text.ok()) return BadSetting("config", text.status().message());
    TOKEND_ASSIGN_OR_RETURN(config, ParseConfigText(*text, flags.config_file));
  }
  TOKEND_RETURN_IF_ERROR(Merge(flags, &config));
  TOKEND_ASSIGN_OR_RETURN(out.settings, ResolveSettings(config));
  return out;
}

}  // namespace tokend::service
