#include "service/daemon.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status_macros.h"
#include "core/gguf/errors.h"
#include "metrics/gauges_collectable.h"
#include "service/build_info.h"
#include "service/cuda_library.h"
#include "service/errors.h"
#include "service/flags.h"
#include "service/log.h"
#include "service/model_card.h"
#include "service/ports_file.h"

namespace tokend::service {
namespace {

// For calls other than turns, which are drained before; none of them waits.
constexpr absl::Duration kShutdownGrace = absl::Seconds(1);
constexpr absl::Duration kProgressInterval = absl::Seconds(2);

// A file that is not there or not readable is a wrong setting, one that is damaged
// is not.
absl::Status OpenError(const absl::Status& status) {
  if (gguf::IsBadModelFile(status) || status.code() == absl::StatusCode::kUnavailable) {
    return status;
  }
  return BadSetting("model", status.message());
}

// What is found in an open file is said without its path.
absl::Status ContentError(const std::string& path, const absl::Status& status) {
  if (!gguf::IsBadModelFile(status)) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

// Logs at most once in kProgressInterval, and each phase once.
class ProgressLog {
 public:
  explicit ProgressLog(base::Clock* clock) : clock_(clock) {}

  void Report(absl::string_view phase, double share) {
    const absl::Duration now = clock_->Monotonic();
    if (phase == phase_ && now < next_) return;
    phase_ = std::string(phase);
    next_ = now + kProgressInterval;
    const int percent = static_cast<int>(share * 100);
    Log(LogLevel::kInfo, "loading", {{"phase", phase}, {"percent", percent}});
    NotifyLoading(absl::StrCat("loading: ", phase, " ", percent, " %"));
  }

 private:
  base::Clock* const clock_;
  std::string phase_;
  absl::Duration next_ = absl::ZeroDuration();
};

}  // namespace

Daemon::Daemon(const Settings& settings)
    : settings_(settings),
      clock_(base::RealClock()),
      auth_(settings_.principals, settings_.allow_anonymous),
      watchdog_(clock_),
      env_({&auth_, clock_, &observer_, ServerVersion()}),
      generation_(&env_),
      sessions_(&env_),
      models_(&env_),
      admin_(&env_) {}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Create(const Settings& settings,
                                                       const std::string& ports_file) {
  std::unique_ptr<Daemon> out(new Daemon(settings));
  TOKEND_RETURN_IF_ERROR(out->Open());
  TOKEND_RETURN_IF_ERROR(out->Listen(ports_file));
  return out;
}

Daemon::~Daemon() {
  stopping_ = true;
  if (loader_.joinable()) loader_.join();
  // A scrape or a call sees the runtime: both end before it does.
  exposer_.reset();
  health_.Shutdown();
  if (server_ != nullptr) server_->Shutdown(kShutdownGrace);
}

absl::Status Daemon::Open() {
  auto file = gguf::File::Open(settings_.model);
  if (!file.ok()) return OpenError(file.status());
  file_ = *std::move(file);
  model::ModelOptions options;
  options.context_tokens = settings_.context_tokens;
  auto model = model::Model::Load(*file_, options);
  if (!model.ok()) return ContentError(settings_.model, model.status());
  model_ = *std::move(model);
  TOKEND_ASSIGN_OR_RETURN(device_, ChooseDevice(settings_, CudaLibraryPaths()));
  env_.SetModel(DescribeModel(*model_, settings_.model, settings_.kv_dtype));
  return absl::OkStatus();
}

absl::Status Daemon::Listen(const std::string& ports_file) {
  std::optional<Address> metrics_address = settings_.metrics_listen;
  if (metrics_address.has_value()) {
    TOKEND_ASSIGN_OR_RETURN(exposer_,
                            metrics::Exposer::Create(metrics_address->host, metrics_address->port));
    metrics_address->port = exposer_->port();
    const metrics::BuildInfo build = {kBuildVersion, kBuildType};
    exposer_->Add(observer_.registry());
    exposer_->Add(
        std::make_shared<metrics::GaugesCollectable>(build, [this] { return ReadGauges(); }));
  }
  const std::vector<grpc::Service*> services = {&health_, &generation_, &sessions_, &models_,
                                                &admin_};
  TOKEND_ASSIGN_OR_RETURN(server_, Server::Start(settings_, services));
  for (const Address& address : server_->addresses()) {
    Log(LogLevel::kInfo, "listening", {{"grpc", address.ToString()}});
  }
  if (metrics_address.has_value()) {
    Log(LogLevel::kInfo, "listening", {{"metrics", metrics_address->ToString()}});
  }
  if (ports_file.empty()) return absl::OkStatus();
  return WritePortsFile(ports_file, server_->addresses(), metrics_address);
}

void Daemon::Load() {
  const absl::Status status = LoadModel();
  if (!status.ok()) OnFatal(status);
}

absl::Status Daemon::LoadModel() {
  const absl::Duration start = clock_->Monotonic();
  ProgressLog progress(clock_);
  ModelRuntime::Inputs inputs;
  inputs.settings = &settings_;
  inputs.device = device_;
  inputs.file = file_.get();
  inputs.model = model_.get();
  inputs.clock = clock_;
  inputs.observer = &observer_;
  inputs.cancelled = &stopping_;
  inputs.progress = [&](absl::string_view phase, double share) { progress.Report(phase, share); };
  v1::Model card = env_.model();
  auto runtime = ModelRuntime::Load(inputs, &card);
  if (!runtime.ok()) return ContentError(settings_.model, runtime.status());
  runtime_ = *std::move(runtime);
  env_.SetModel(card);
  const auto on_step = [this] {
    watchdog_.Ping();
    // A page and its neighbours for each row of the embedding that the step read: it would
    // all be resident one day.
    file_->ReleaseMemory();
  };
  runtime_->engine()->Start(on_step, [this](const absl::Status& status) { OnFatal(status); });
  env_.Publish(&runtime_->serving());
  health_.SetServing(true);
  const engine::EngineSnapshot snapshot = runtime_->engine()->Snapshot();
  Log(LogLevel::kInfo, "ready",
      {{"model", card.name()},
       {"device", runtime_->backend_info().device},
       {"weight_bytes", runtime_->backend_info().weight_bytes},
       {"kv_bytes", snapshot.store.pages.total * snapshot.store.page_bytes},
       {"context_tokens", static_cast<int64_t>(card.context_length())},
       {"load_ms", absl::ToDoubleMilliseconds(clock_->Monotonic() - start)}});
  NotifyReady();
  return absl::OkStatus();
}

void Daemon::OnFatal(const absl::Status& status) {
  {
    base::MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = status;
  }
  health_.SetServing(false);
  signals_.Wake();
}

absl::Status Daemon::WaitForEnd() {
  while (true) {
    switch (signals_.Wait()) {
      case Signals::Event::kStop:
        return absl::OkStatus();
      case Signals::Event::kReload:
        Log(LogLevel::kWarning, "reload_refused",
            {{"message", "the configuration is read at start: restart to change it"}});
        break;
      case Signals::Event::kWake: {
        base::MutexLock lock(&mu_);
        if (!failure_.ok()) return failure_;
      }
    }
  }
}

void Daemon::Drain() {
  stopping_ = true;
  NotifyStopping(settings_.drain_timeout);
  health_.Shutdown();
  if (loader_.joinable()) loader_.join();
  if (env_.serving_or_null() == nullptr) return;
  Log(LogLevel::kInfo, "draining",
      {{"timeout_ms", absl::ToInt64Milliseconds(settings_.drain_timeout)}});
  // A second signal ends the patience.
  std::thread drain([this] {
    runtime_->engine()->Drain(settings_.drain_timeout);
    signals_.Wake();
  });
  while (true) {
    const Signals::Event event = signals_.Wait();
    if (event == Signals::Event::kWake) break;
    if (event == Signals::Event::kStop) runtime_->engine()->Drain(absl::ZeroDuration());
  }
  drain.join();
}

absl::Status Daemon::Run() {
  loader_ = std::thread([this] { Load(); });
  absl::Status ended = WaitForEnd();
  if (!ended.ok()) return ended;
  Drain();
  Log(LogLevel::kInfo, "stopped");
  return absl::OkStatus();
}

metrics::Gauges Daemon::ReadGauges() const {
  metrics::Gauges out;
  const Serving* serving = env_.serving_or_null();
  const Device& device = serving == nullptr ? device_ : runtime_->device();
  out.device = std::string(device.kind());
  if (serving == nullptr) return out;
  const engine::EngineSnapshot snapshot = serving->engine->Snapshot();
  const kv::PageCounts& pages = snapshot.store.pages;
  out.ready = true;
  out.pages = {pages.total,  pages.free,   pages.cached,     pages.private_pages,
               pages.shared, pages.pinned, pages.quarantined};
  out.page_bytes = snapshot.store.page_bytes;
  out.sessions = snapshot.store.sessions;
  out.versions = snapshot.store.versions;
  out.running = snapshot.running;
  out.waiting = snapshot.waiting;
  out.saturated_activations = snapshot.saturated_activations;
  const ops::BackendInfo& info = runtime_->backend_info();
  out.weight_bytes = info.weight_bytes;
  out.workspace_bytes = info.workspace_bytes;
  out.huge_page_bytes = info.huge_page_bytes;
  return out;
}

}  // namespace tokend::service
