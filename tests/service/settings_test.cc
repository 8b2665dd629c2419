// The configuration file, flags, and every setting's range.
#include "service/settings.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/flags.h"

namespace tokend::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<Settings> Resolve(const std::string& text) {
  auto config = ParseConfigText("model: \"m.gguf\"\n" + text, "tokend.textproto");
  if (!config.ok()) return config.status();
  return ResolveSettings(*config);
}

std::string Problem(const std::string& text) {
  const auto settings = Resolve(text);
  EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(settings.status().message().data(), settings.status().message().size());
}

TEST(Settings, Defaults) {
  const Settings settings = Resolve("").value();
  ASSERT_EQ(settings.listen.size(), 1u);
  EXPECT_EQ(settings.listen[0].ToString(), "127.0.0.1:50551");
  EXPECT_EQ(settings.metrics_listen->ToString(), "127.0.0.1:9551");
  EXPECT_EQ(settings.kv_dtype, base::KvDtype::kF16);
  EXPECT_FALSE(settings.activations.has_value());
  EXPECT_EQ(settings.device.kind, DeviceSetting::Kind::kAuto);
  EXPECT_EQ(settings.max_running, 8);
  EXPECT_EQ(settings.stall_timeout, absl::Seconds(30));
  EXPECT_GE(settings.threads, 1);
  EXPECT_FALSE(settings.kv_budget_bytes.has_value());
  EXPECT_FALSE(settings.default_idle_ttl.has_value());
}

TEST(Settings, ReadsAll) {
  const Settings settings = Resolve(R"(
    listen: "127.0.0.1:0" listen: "unix:/tmp/x" metrics_listen: "off" device: "cpu"
    threads: 3 activations: "int8" kv_dtype: "int8" page_tokens: 32 context_tokens: 100
    kv_budget_bytes: 1000000 max_running: 32 max_batch_tokens: 64 prefill_chunk_tokens: 5
    step_time_target_ms: 20 max_queued: 1 stall_timeout_ms: 100 drain_timeout_ms: 0
    replay_window_ms: 5 max_sessions: 2 max_versions: 3 default_idle_ttl_ms: 1000
    default_retention { sliding_window { sink_tokens: 4 window_tokens: 256 } }
    share_prefixes: true log_format: "json" allow_anonymous: true
    principals { name: "a" token_sha256: "ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789" }
  )")
                                .value();
  EXPECT_EQ(settings.listen.size(), 2u);
  EXPECT_FALSE(settings.metrics_listen.has_value());
  EXPECT_EQ(settings.threads, 3);
  EXPECT_EQ(settings.page_tokens, 32);
  EXPECT_EQ(settings.kv_budget_bytes, 1000000);
  EXPECT_EQ(settings.prefill_chunk_tokens, 5);
  EXPECT_EQ(settings.step_time_target, absl::Milliseconds(20));
  EXPECT_EQ(settings.default_idle_ttl, absl::Seconds(1));
  EXPECT_EQ(settings.default_retention.window_tokens, 256);
  EXPECT_TRUE(settings.json_log);
  EXPECT_EQ(settings.principals[0].token_sha256.substr(0, 6), "abcdef");
}

TEST(Settings, DevicesAndWhatIsForCuda) {
  EXPECT_EQ(Resolve("device: \"cpu\"")->device.kind, DeviceSetting::Kind::kCpu);
  EXPECT_EQ(Resolve("device: \"cuda\"")->device.kind, DeviceSetting::Kind::kCuda);
  const Settings settings = Resolve(R"(
    device: "cuda:3" activations: "f16" kv_memory_fraction: 1 stream_priority: "high")")
                                .value();
  EXPECT_EQ(settings.device.kind, DeviceSetting::Kind::kCuda);
  EXPECT_EQ(settings.device.ordinal, 3);
  EXPECT_EQ(settings.activations, base::Activations::kF16);
  EXPECT_EQ(settings.kv_memory_fraction, 1.0);
  EXPECT_EQ(settings.high_stream_priority, true);
  EXPECT_EQ(Resolve("stream_priority: \"normal\"")->high_stream_priority, false);
}

struct BadSettingCase {
  std::string setting;  // what the message starts with
  std::string text;
};

TEST(Settings, EachRangeIsChecked) {
  const std::vector<BadSettingCase> cases = {
      {"threads", "threads: 0"},
      {"threads", "threads: -1"},
      {"threads", "threads: 257"},
      {"page_tokens", "page_tokens: 8"},
      {"page_tokens", "page_tokens: 0"},
      {"context_tokens", "context_tokens: 0"},
      {"context_tokens", "context_tokens: -5"},
      {"context_tokens", "context_tokens: 9223372036854775807"},
      {"kv_budget_bytes", "kv_budget_bytes: 0"},
      {"kv_budget_bytes", "kv_budget_bytes: -1"},
      {"kv_budget_bytes", "kv_budget_bytes: 9223372036854775807"},
      {"kv_memory_fraction", "kv_memory_fraction: 0"},
      {"kv_memory_fraction", "kv_memory_fraction: 1.1"},
      {"kv_memory_fraction", "kv_memory_fraction: nan"},
      {"kv_memory_fraction", "kv_memory_fraction: 0.5 kv_budget_bytes: 1000"},
      {"stream_priority", "stream_priority: \"low\""},
      {"max_running", "max_running: 0"},
      {"max_running", "max_running: 33"},
      {"max_batch_tokens", "max_batch_tokens: 31"},
      {"max_batch_tokens", "max_batch_tokens: 2147483647"},
      {"prefill_chunk_tokens", "prefill_chunk_tokens: -1"},
      {"prefill_chunk_tokens", "prefill_chunk_tokens: 2049"},
      {"step_time_target_ms", "step_time_target_ms: 0"},
      {"step_time_target_ms", "step_time_target_ms: 10001"},
      {"max_queued", "max_queued: 0"},
      {"max_queued", "max_queued: 65537"},
      {"stall_timeout_ms", "stall_timeout_ms: 99"},
      {"stall_timeout_ms", "stall_timeout_ms: 3600001"},
      {"drain_timeout_ms", "drain_timeout_ms: -1"},
      {"drain_timeout_ms", "drain_timeout_ms: 9223372036854775807"},
      {"detach_timeout_ms", "detach_timeout_ms: 1"},
      {"replay_window_ms", "replay_window_ms: -1"},
      {"max_sessions", "max_sessions: 0"},
      {"max_sessions", "max_sessions: 1000001"},
      {"max_versions", "max_versions: 0"},
      {"max_versions", "max_versions: 65537"},
      {"default_idle_ttl_ms", "default_idle_ttl_ms: 999"},
      {"default_idle_ttl_ms", "default_idle_ttl_ms: -9223372036854775808"},
      {"default_retention", "default_retention { }"},
      {"default_retention.layered.full_layers",
       "default_retention { layered { window { window_tokens: 1 } } }"},
      {"default_retention.layered.window.window_tokens",
       "default_retention { layered { full_layers: 1 } }"},
      {"default_retention.heavy_hitters.window_tokens", "default_retention { heavy_hitters { } }"},
      {"default_retention.sliding_window.window_tokens",
       "default_retention { sliding_window { sink_tokens: 4 } }"},
      {"default_retention.sliding_window.sink_tokens",
       "default_retention { sliding_window { sink_tokens: -4 window_tokens: 1 } }"},
      {"device", "device: \"cuda:\""},
      {"device", "device: \"cuda:-1\""},
      {"device", "device: \"cuda:1x\""},
      {"device", "device: \"cuda:99999999999\""},
      {"device", "device: \"tpu\""},
      {"activations", "activations: \"bf16\""},
      {"kv_dtype", "kv_dtype: \"F16\""},
      {"log_format", "log_format: \"xml\""},
      {"listen", "listen: \"nowhere\""},
      {"listen", "listen: \"0.0.0.0:1\""},
      {"listen", "listen: \"[::]:1\""},
      {"listen", "listen: \"box.example:1\""},
      {"listen", "listen: \"127.0.0.1:1\" listen: \"127.0.0.1:1\""},
      {"listen", "listen: \"unix:/a\" listen: \"unix:/a\""},
      {"metrics_listen", "metrics_listen: \"unix:/a\""},
      {"metrics_listen", "metrics_listen: \"0.0.0.0:1\""},
      {"metrics_listen", "metrics_listen: \"x\""},
      {"metrics_listen", "metrics_listen: \"[::1]:9551\""},
      {"tls_key_file", "tls_cert_file: \"c\""},
      {"tls_cert_file", "tls_key_file: \"k\""},
      {"principals[0].name", "principals { token_sha256: \"ab\" }"},
      {"principals[0].token_sha256", "principals { name: \"a\" token_sha256: \"ab\" }"},
      {"allow_anonymous", "allow_anonymous: true"},
  };
  for (const BadSettingCase& test : cases) {
    EXPECT_THAT(Problem(test.text), StartsWith(test.setting + ": ")) << test.text;
  }
}

TEST(Settings, PrincipalsAreUnique) {
  const std::string a(64, 'a');
  const std::string b(64, 'b');
  const auto principal = [](const std::string& name, const std::string& hash) {
    return absl::StrCat("principals { name: \"", name, "\" token_sha256: \"", hash, "\" }");
  };
  EXPECT_TRUE(Resolve(principal("x", a) + principal("y", b)).ok());
  EXPECT_THAT(Problem(principal("x", a) + principal("x", b)), StartsWith("principals[1]"));
  EXPECT_THAT(Problem(principal("x", a) + principal("y", a)), StartsWith("principals[1]"));
  EXPECT_THAT(Problem(principal("anonymous", a)), StartsWith("principals[0].name"));
}

TEST(Settings, PrincipalsMayHaveQuotas) {
  const auto principal = [](const std::string& quota) {
    return absl::StrCat("principals { name: \"x\" token_sha256: \"", std::string(64, 'a'), "\" ",
                        quota, " }");
  };
  EXPECT_EQ(Resolve(principal(""))->principals[0].quota_pages, std::nullopt);
  EXPECT_EQ(Resolve(principal("quota_pages: 0"))->principals[0].quota_pages, 0);
  EXPECT_EQ(Resolve(principal("quota_pages: 700"))->principals[0].quota_pages, 700);
  EXPECT_THAT(Problem(principal("quota_pages: -1")), StartsWith("principals[0].quota_pages"));
}

TEST(Settings, RemoteAddressesNeedConsentOrTls) {
  EXPECT_TRUE(Resolve("listen: \"0.0.0.0:1\" allow_insecure_remote: true").ok());
  EXPECT_TRUE(Resolve("listen: \"0.0.0.0:1\" tls_cert_file: \"c\" tls_key_file: \"k\"").ok());
  EXPECT_THAT(Problem("metrics_listen: \"0.0.0.0:1\" tls_cert_file: \"c\" tls_key_file: \"k\""),
              StartsWith("metrics_listen"));
}

TEST(Settings, ModelIsRequired) {
  EXPECT_THAT(std::string(ResolveSettings(v1::ServerConfig()).status().message()),
              StartsWith("model: "));
}

TEST(ConfigText, ErrorsNameFileLineAndSetting) {
  EXPECT_THAT(Problem("max_runing: 3"),
              AllOf(StartsWith("tokend.textproto:2:"), HasSubstr("max_runing")));
  EXPECT_THAT(Problem("\nmax_running: 99999999999"),
              AllOf(StartsWith("tokend.textproto:3:"), HasSubstr("max_running")));
  EXPECT_THAT(Problem("max_running: \"x\""), HasSubstr("max_running"));
  EXPECT_THAT(Problem("max_running: 1 max_running: 2"), HasSubstr("max_running"));
  EXPECT_THAT(Problem("max_running: nan"), HasSubstr("max_running"));
  EXPECT_THAT(Problem("default_retention {"), HasSubstr("tokend.textproto:"));
  EXPECT_THAT(Problem("principals { nam: \"x\" }"), HasSubstr("nam"));
}

// --- Flags. ---

absl::StatusOr<CommandLine> Parse(std::vector<const char*> args) {
  args.insert(args.begin(), "tokend");
  return ParseCommandLine(static_cast<int>(args.size()), args.data());
}

TEST(Flags, AreTheFieldsWithDashes) {
  const CommandLine line = Parse({"--model",
                                  "m.gguf",
                                  "--listen",
                                  "127.0.0.1:0",
                                  "--listen=unix:/tmp/x",
                                  "--metrics-listen",
                                  "off",
                                  "--kv-dtype",
                                  "int8",
                                  "--activations",
                                  "f32",
                                  "--threads",
                                  "2",
                                  "--page-tokens",
                                  "32",
                                  "--context",
                                  "512",
                                  "--kv-budget",
                                  "64MiB",
                                  "--max-running",
                                  "4",
                                  "--share-prefixes",
                                  "--log-format",
                                  "json",
                                  "--default-retention",
                                  "sliding_window {sink_tokens: 4 window_tokens: 8}",
                                  "--ports-file",
                                  "p"})
                               .value();
  EXPECT_EQ(line.settings.listen.size(), 2u);
  EXPECT_EQ(line.settings.kv_dtype, base::KvDtype::kInt8);
  EXPECT_EQ(line.settings.context_tokens, 512);
  EXPECT_EQ(line.settings.kv_budget_bytes, 64 << 20);
  EXPECT_TRUE(line.settings.share_prefixes);
  EXPECT_EQ(line.settings.default_retention.sink_tokens, 4);
  EXPECT_EQ(line.ports_file, "p");
}

TEST(Flags, WinOverTheFile) {
  const std::string path = ::testing::TempDir() + "/flags_test.textproto";
  FILE* file = fopen(path.c_str(), "w");
  fputs(
      "model: \"file.gguf\" listen: \"127.0.0.1:1\" listen: \"127.0.0.1:2\"\n"
      "max_running: 3 max_queued: 5 share_prefixes: true\n",
      file);
  fclose(file);
  const CommandLine line = Parse({"--config", path.c_str(), "--listen", "127.0.0.1:3",
                                  "--max-running", "4", "--share-prefixes=false"})
                               .value();
  EXPECT_EQ(line.settings.model, "file.gguf");
  ASSERT_EQ(line.settings.listen.size(), 1u);
  EXPECT_EQ(line.settings.listen[0].port, 3);
  EXPECT_EQ(line.settings.max_running, 4);
  EXPECT_EQ(line.settings.max_queued, 5);
  EXPECT_FALSE(line.settings.share_prefixes);
}

TEST(Flags, ErrorsNameTheFlag) {
  const auto problem = [](std::vector<const char*> args) {
    const auto line = Parse(std::move(args));
    EXPECT_EQ(line.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(line.status().message().data(), line.status().message().size());
  };
  EXPECT_THAT(problem({"--nonsense"}), HasSubstr("--nonsense"));
  EXPECT_THAT(problem({"--model", "m", "extra"}), HasSubstr("extra"));
  EXPECT_THAT(problem({"--max-running", "x"}), HasSubstr("max_running"));
  EXPECT_THAT(problem({"--max-running", "99999999999"}), HasSubstr("max_running"));
  EXPECT_THAT(problem({"--max-running", "1", "--max-running", "2"}), HasSubstr("--max-running"));
  EXPECT_THAT(problem({"--max-running"}), HasSubstr("--max-running"));
  EXPECT_THAT(problem({"--kv-budget", "12XB"}), HasSubstr("kv_budget_bytes"));
  EXPECT_THAT(problem({"--kv-budget", "99999999999GiB"}), HasSubstr("kv_budget_bytes"));
  EXPECT_THAT(problem({"--stall-timeout-ms", "5KiB"}), HasSubstr("stall_timeout_ms"));
  EXPECT_THAT(problem({"--share-prefixes=maybe"}), HasSubstr("share"));
  EXPECT_THAT(problem({"--default-retention", "nonsense {"}), HasSubstr("--default-retention"));
  // Neither is what it reads from; nothing of it may be taken for an empty file.
  for (const char* path : {"/does/not/exist", "/", "/dev/zero"}) {
    EXPECT_THAT(problem({"--config", path, "--model", "m"}),
                StartsWith(absl::StrCat("config: cannot read ", path, ": ")));
  }
  EXPECT_THAT(problem({}), HasSubstr("model"));
}

TEST(Flags, HelpListsEverySettingAndExitCodes) {
  const CommandLine line = Parse({"--help"}).value();
  EXPECT_TRUE(line.done);
  const auto* descriptor = v1::ServerConfig::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    EXPECT_THAT(line.text, HasSubstr(absl::StrCat("--", FlagName(descriptor->field(i)->name()))));
  }
  for (const char* code : {"  0 ", "  1 ", "  65 ", "  78 "}) {
    EXPECT_THAT(line.text, HasSubstr(code));
  }
  EXPECT_THAT(Parse({"--version"})->text, StartsWith("tokend "));
}

}  // namespace
}  // namespace tokend::service
