#ifndef TOKEND_SERVICE_DAEMON_H_
#define TOKEND_SERVICE_DAEMON_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "metrics/exposer.h"
#include "metrics/gauges.h"
#include "metrics/metrics_observer.h"
#include "service/admin_service.h"
#include "service/auth.h"
#include "service/call_env.h"
#include "service/device.h"
#include "service/exit_code.h"
#include "service/generation_service.h"
#include "service/health_service.h"
#include "service/model_runtime.h"
#include "service/model_service.h"
#include "service/notify.h"
#include "service/server.h"
#include "service/session_service.h"
#include "service/settings.h"
#include "service/signals.h"

namespace tokend::service {

// The whole process: owns everything, in the order of need. It listens before the
// model is loaded and answers MODEL_LOADING until it is.
class Daemon {
 public:
  // Opens the model file and every address. Signals must be blocked in the calling
  // thread already (see signals.h).
  static absl::StatusOr<std::unique_ptr<Daemon>> Create(const Settings& settings,
                                                        const std::string& ports_file);
  ~Daemon();

  // Loads, serves, and drains on SIGTERM or SIGINT. OK if told to stop; else what
  // ended it.
  absl::Status Run();

 private:
  explicit Daemon(const Settings& settings);

  absl::Status Open();
  absl::Status Listen(const std::string& ports_file);
  // On the loader's thread.
  void Load();
  absl::Status LoadModel();
  void OnFatal(const absl::Status& status);
  // Waits for a signal or a failure.
  absl::Status WaitForEnd();
  void Drain();
  metrics::Gauges ReadGauges() const;

  const Settings settings_;
  base::Clock* const clock_;
  const Authenticator auth_;
  metrics::MetricsObserver observer_;
  Watchdog watchdog_;
  CallEnv env_;
  Signals signals_;

  std::unique_ptr<gguf::File> file_;
  std::unique_ptr<model::Model> model_;
  Device device_;  // as chosen

  base::Mutex mu_;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> stopping_ = false;
  // Set on the loader's thread before env_ publishes it.
  std::unique_ptr<ModelRuntime> runtime_;

  HealthServiceImpl health_;
  GenerationServiceImpl generation_;
  SessionServiceImpl sessions_;
  ModelServiceImpl models_;
  AdminServiceImpl admin_;
  std::unique_ptr<metrics::Exposer> exposer_;
  std::unique_ptr<Server> server_;
  std::thread loader_;
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_DAEMON_H_
