#include "service/settings.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/base/status_macros.h"
#include "core/cpu/thread_pool.h"
#include "service/auth.h"
#include "service/convert_session.h"
#include "service/errors.h"
#include "service/limits.h"
#include "service/names.h"
#include "service/system_info.h"

namespace tokend::service {
namespace {

constexpr char kDefaultListen[] = "127.0.0.1:50551";
constexpr char kDefaultMetricsListen[] = "127.0.0.1:9551";
constexpr int64_t kMaxPages = INT32_MAX;
constexpr int64_t kHourMs = 3600 * 1000;

template <typename T>
absl::Status InRange(absl::string_view name, T value, T low, T high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return BadSetting(name, absl::StrCat(value, " is not in [", low, ", ", high, "]"));
}

// Leaves `out` at its default where the field is absent.
#define TOKEND_TAKE(field, low, high, out)                                     \
  if (config.has_##field()) {                                                  \
    using Value = decltype(config.field());                                    \
    TOKEND_RETURN_IF_ERROR(InRange<Value>(#field, config.field(), low, high)); \
    out = config.field();                                                      \
  }
#define TOKEND_TAKE_MS(field, low, high, out)                                    \
  if (config.has_##field()) {                                                    \
    TOKEND_RETURN_IF_ERROR(InRange<int64_t>(#field, config.field(), low, high)); \
    out = absl::Milliseconds(config.field());                                    \
  }

absl::Status ResolveAddresses(const v1::ServerConfig& config, Settings* out) {
  std::vector<std::string> listen(config.listen().begin(), config.listen().end());
  if (listen.empty()) listen = {kDefaultListen};
  const bool tls = !config.tls_cert_file().empty();
  std::set<std::string> seen;
  for (const std::string& text : listen) {
    const auto address = ParseAddress(text);
    if (!address.ok()) return BadSetting("listen", address.status().message());
    if (!address->is_unix() && !address->is_loopback() && !tls && !config.allow_insecure_remote()) {
      return BadSetting("listen", absl::StrCat(address->ToString(),
                                               " is reachable from other machines: set "
                                               "tls_cert_file, or allow_insecure_remote"));
    }
    if (address->port != 0 || address->is_unix()) {
      if (!seen.insert(address->ToString()).second) {
        return BadSetting("listen", absl::StrCat(address->ToString(), " is named twice"));
      }
    }
    out->listen.push_back(*address);
  }
  const std::string metrics =
      config.metrics_listen().empty() ? kDefaultMetricsListen : config.metrics_listen();
  if (metrics == "off") return absl::OkStatus();
  const auto address = ParseAddress(metrics);
  if (!address.ok()) return BadSetting("metrics_listen", address.status().message());
  if (address->is_unix()) return BadSetting("metrics_listen", "is HOST:PORT or \"off\"");
  if (absl::StrContains(address->host, ":")) {
    return BadSetting("metrics_listen",
                      absl::StrCat(address->ToString(),
                                   " is an IPv6 address, which the metrics server cannot serve"));
  }
  if (!address->is_loopback() && !config.allow_insecure_remote()) {
    return BadSetting("metrics_listen", absl::StrCat(address->ToString(),
                                                     " is reachable from other machines: "
                                                     "set allow_insecure_remote"));
  }
  out->metrics_listen = *address;
  return absl::OkStatus();
}

absl::StatusOr<DeviceSetting> ParseDevice(absl::string_view text) {
  using Kind = DeviceSetting::Kind;
  if (text.empty() || text == "auto") return DeviceSetting{Kind::kAuto, 0};
  if (text == "cpu") return DeviceSetting{Kind::kCpu, 0};
  if (text == "cuda") return DeviceSetting{Kind::kCuda, 0};
  DeviceSetting out = {Kind::kCuda, 0};
  absl::string_view number = text;
  const bool digits = absl::ConsumePrefix(&number, "cuda:") &&
                      std::all_of(number.begin(), number.end(), absl::ascii_isdigit);
  if (!digits || !absl::SimpleAtoi(number, &out.ordinal)) {
    return BadSetting("device", absl::StrCat(Echo(text), " is not auto, cpu, cuda or cuda:N"));
  }
  return out;
}

absl::Status ResolveCuda(const v1::ServerConfig& config, Settings* out) {
  if (config.has_kv_memory_fraction()) {
    const double fraction = config.kv_memory_fraction();
    if (!(fraction > 0 && fraction <= 1)) {
      return BadSetting("kv_memory_fraction", absl::StrCat(fraction, " is not in (0, 1]"));
    }
    if (config.has_kv_budget_bytes()) {
      return BadSetting("kv_memory_fraction", "is set beside kv_budget_bytes: one is enough");
    }
    out->kv_memory_fraction = fraction;
  }
  const std::string& priority = config.stream_priority();
  if (priority.empty()) return absl::OkStatus();
  if (priority != "normal" && priority != "high") {
    return BadSetting("stream_priority", absl::StrCat(Echo(priority), " is not normal or high"));
  }
  out->high_stream_priority = priority == "high";
  return absl::OkStatus();
}

absl::Status ResolveDevice(const v1::ServerConfig& config, Settings* out) {
  TOKEND_ASSIGN_OR_RETURN(out->device, ParseDevice(config.device()));
  TOKEND_RETURN_IF_ERROR(ResolveCuda(config, out));
  out->threads = std::min(PhysicalCores(), cpu::kMaxThreads);
  TOKEND_TAKE(threads, 1, cpu::kMaxThreads, out->threads);
  if (!config.activations().empty()) {
    const auto activations = base::ParseActivations(config.activations());
    if (!activations.has_value()) {
      return BadSetting("activations", absl::StrCat(Echo(config.activations()),
                                                    " is not int16, int8, f16 or f32"));
    }
    out->activations = *activations;
  }
  if (!config.kv_dtype().empty()) {
    const auto dtype = base::ParseKvDtype(config.kv_dtype());
    if (!dtype.has_value()) {
      return BadSetting("kv_dtype",
                        absl::StrCat(Echo(config.kv_dtype()), " is not f16, int8 or f32"));
    }
    out->kv_dtype = *dtype;
  }
  if (config.has_page_tokens()) {
    if (config.page_tokens() != 16 && config.page_tokens() != 32) {
      return BadSetting("page_tokens", absl::StrCat(config.page_tokens(), " is not 16 or 32"));
    }
    out->page_tokens = config.page_tokens();
  }
  TOKEND_TAKE(context_tokens, 1, int64_t{1} << 30, out->context_tokens);
  TOKEND_TAKE(kv_budget_bytes, 1, int64_t{1} << 50, out->kv_budget_bytes);
  return absl::OkStatus();
}

absl::Status ResolveScheduling(const v1::ServerConfig& config, Settings* out) {
  TOKEND_TAKE(max_running, 1, 32, out->max_running);
  TOKEND_TAKE(max_batch_tokens, 32, 65536, out->max_batch_tokens);
  TOKEND_TAKE(prefill_chunk_tokens, 0, out->max_batch_tokens, out->prefill_chunk_tokens);
  TOKEND_TAKE(max_queued, 1, 65536, out->max_queued);
  TOKEND_TAKE_MS(step_time_target_ms, 1, 10000, out->step_time_target);
  TOKEND_TAKE_MS(stall_timeout_ms, 100, kHourMs, out->stall_timeout);
  TOKEND_TAKE_MS(drain_timeout_ms, 0, kHourMs, out->drain_timeout);
  TOKEND_TAKE_MS(replay_window_ms, 0, 24 * kHourMs, out->replay_window);
  if (config.has_detach_timeout_ms()) {
    return BadSetting("detach_timeout_ms", "this build has no detachable turns");
  }
  return absl::OkStatus();
}

absl::Status ResolveSessions(const v1::ServerConfig& config, Settings* out) {
  TOKEND_TAKE(max_sessions, 1, 1000000, out->max_sessions);
  TOKEND_TAKE(max_versions, 1, 65536, out->max_versions);
  out->share_prefixes = config.share_prefixes();
  if (config.has_default_retention()) {
    // The model is not known yet; what it allows is checked when it is.
    const auto policy =
        ConvertRetention(config.default_retention(), "default_retention", {INT32_MAX, INT32_MAX});
    if (!policy.ok()) {
      return absl::InvalidArgumentError(policy.status().message());
    }
    out->default_retention = *policy;
  }
  if (config.has_default_idle_ttl_ms()) {
    TOKEND_RETURN_IF_ERROR(InRange<int64_t>("default_idle_ttl_ms", config.default_idle_ttl_ms(),
                                            absl::ToInt64Milliseconds(kMinIdleTtl),
                                            absl::ToInt64Milliseconds(kMaxIdleTtl)));
    out->default_idle_ttl = absl::Milliseconds(config.default_idle_ttl_ms());
  }
  return absl::OkStatus();
}

absl::Status ResolvePrincipals(const v1::ServerConfig& config, Settings* out) {
  std::set<std::string> names;
  std::set<std::string> tokens;
  for (int i = 0; i < config.principals_size(); ++i) {
    const v1::Principal& in = config.principals(i);
    const std::string path = absl::StrCat("principals[", i, "]");
    if (!IsRequestId(in.name()) || in.name().size() > kMaxSessionIdBytes) {
      return BadSetting(absl::StrCat(path, ".name"), "must be 1 to 63 of [A-Za-z0-9._-]");
    }
    const std::string hash = absl::AsciiStrToLower(in.token_sha256());
    const bool hex = std::all_of(hash.begin(), hash.end(), absl::ascii_isxdigit);
    if (hash.size() != 64 || !hex) {
      return BadSetting(absl::StrCat(path, ".token_sha256"), "must be 64 hex digits");
    }
    if (!names.insert(in.name()).second || !tokens.insert(hash).second) {
      return BadSetting(path, "its name or token is that of another principal");
    }
    if (in.name() == kAnonymous) {
      return BadSetting(absl::StrCat(path, ".name"), "is that of callers without a token");
    }
    std::optional<int64_t> quota;
    if (in.has_quota_pages()) {
      TOKEND_RETURN_IF_ERROR(
          InRange<int64_t>(absl::StrCat(path, ".quota_pages"), in.quota_pages(), 0, kMaxPages));
      quota = in.quota_pages();
    }
    out->principals.push_back({in.name(), hash, quota});
  }
  if (config.allow_anonymous() && out->principals.empty()) {
    return BadSetting("allow_anonymous", "has no effect without principals");
  }
  out->allow_anonymous = config.allow_anonymous();
  return absl::OkStatus();
}

absl::Status ResolveTlsAndLog(const v1::ServerConfig& config, Settings* out) {
  if (config.tls_cert_file().empty() != config.tls_key_file().empty()) {
    return BadSetting(config.tls_cert_file().empty() ? "tls_cert_file" : "tls_key_file",
                      "certificate and key go together");
  }
  out->tls_cert_file = config.tls_cert_file();
  out->tls_key_file = config.tls_key_file();
  if (!config.log_format().empty() && config.log_format() != "text" &&
      config.log_format() != "json") {
    return BadSetting("log_format",
                      absl::StrCat(Echo(config.log_format()), " is not text or json"));
  }
  out->json_log = config.log_format() == "json";
  return absl::OkStatus();
}

#undef TOKEND_TAKE
#undef TOKEND_TAKE_MS

}  // namespace

absl::StatusOr<Settings> ResolveSettings(const v1::ServerConfig& config) {
  Settings out;
  if (config.model().empty()) return BadSetting("model", "a GGUF file is required");
  out.model = config.model();
  TOKEND_RETURN_IF_ERROR(ResolveAddresses(config, &out));
  TOKEND_RETURN_IF_ERROR(ResolveDevice(config, &out));
  TOKEND_RETURN_IF_ERROR(ResolveScheduling(config, &out));
  TOKEND_RETURN_IF_ERROR(ResolveSessions(config, &out));
  TOKEND_RETURN_IF_ERROR(ResolvePrincipals(config, &out));
  TOKEND_RETURN_IF_ERROR(ResolveTlsAndLog(config, &out));
  return out;
}

}  // namespace tokend::service
