// The daemon's settings: tokend.v1.ServerConfig read, checked and resolved.
#ifndef TOKEND_SERVICE_SETTINGS_H_
#define TOKEND_SERVICE_SETTINGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "core/base/dtype.h"
#include "core/kv/policy.h"
#include "service/address.h"
#include "tokend/v1/config.pb.h"

namespace tokend::service {

struct PrincipalSettings {
  std::string name;
  std::string token_sha256;  // 64 lower-case hex digits
  std::optional<int64_t> quota_pages;
};

// "auto", "cpu", "cuda" (the first device) or "cuda:N".
struct DeviceSetting {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  int ordinal = 0;
};

// See config.proto for each. Defaults are resolved, but for those that wait for
// the model file or the device.
struct Settings {
  std::string model;
  std::vector<Address> listen;
  std::optional<Address> metrics_listen;  // absent: off
  DeviceSetting device;
  int threads = 1;
  std::optional<base::Activations> activations;  // absent: the device's default
  base::KvDtype kv_dtype = base::KvDtype::kF16;
  int page_tokens = 16;
  int64_t context_tokens = 0;                // 0: the file's
  std::optional<int64_t> kv_budget_bytes;    // absent: see memory_plan.h
  std::optional<double> kv_memory_fraction;  // CUDA
  std::optional<bool> high_stream_priority;  // CUDA
  int max_running = 8;
  int max_batch_tokens = 2048;
  int prefill_chunk_tokens = 0;
  absl::Duration step_time_target = absl::Milliseconds(50);
  int max_queued = 64;
  absl::Duration stall_timeout = absl::Seconds(30);
  absl::Duration drain_timeout = absl::Seconds(20);
  absl::Duration replay_window = absl::Minutes(2);
  int max_sessions = 1024;
  int max_versions = 16;
  kv::RetentionPolicy default_retention;
  std::optional<absl::Duration> default_idle_ttl;
  bool share_prefixes = false;
  bool allow_anonymous = false;
  std::string tls_cert_file;  // empty: no TLS
  std::string tls_key_file;
  std::vector<PrincipalSettings> principals;
  bool json_log = false;
};

// INVALID_ARGUMENT with `file_name`, line and column of what is wrong.
absl::StatusOr<v1::ServerConfig> ParseConfigText(const std::string& text,
                                                 absl::string_view file_name);

// Sets one field from a flag's values, replacing what it held. A message is given
// as its text format; kv_budget_bytes may end in KiB, MiB or GiB.
absl::Status SetFromFlag(absl::string_view field_name, absl::Span<const std::string> values,
                         v1::ServerConfig* config);

// INVALID_ARGUMENT naming the setting.
absl::StatusOr<Settings> ResolveSettings(const v1::ServerConfig& config);

// The field's flag, without the dashes in front: "kv-dtype".
std::string FlagName(absl::string_view field_name);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_SETTINGS_H_
