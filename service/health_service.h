#ifndef TOKEND_SERVICE_HEALTH_SERVICE_H_
#define TOKEND_SERVICE_HEALTH_SERVICE_H_

#include <memory>
#include <set>
#include <string>

#include "core/base/mutex.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace tokend::service {

// grpc.health.v1 for "" and each of our services, which are serving together or
// not at all. gRPC's own is not used: it says SERVING before the model is there.
// Thread-safe.
class HealthServiceImpl : public grpc::health::v1::Health::CallbackService {
 public:
  HealthServiceImpl();
  ~HealthServiceImpl() override;

  // NOT_SERVING until told. Watchers are told at once.
  void SetServing(bool serving);
  // NOT_SERVING for good, and every watch ends after it was told so.
  void Shutdown();

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  class Watcher;
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  bool IsKnown(const std::string& service) const { return services_.count(service) > 0; }
  Status StatusLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return serving_ ? grpc::health::v1::HealthCheckResponse::SERVING
                    : grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  }
  // `last`: for good.
  void Tell(bool serving, bool last);
  void Forget(Watcher* watcher);

  const std::set<std::string> services_;
  base::Mutex mu_;
  bool serving_ ABSL_GUARDED_BY(mu_) = false;
  bool shut_down_ ABSL_GUARDED_BY(mu_) = false;
  std::set<std::shared_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_HEALTH_SERVICE_H_
