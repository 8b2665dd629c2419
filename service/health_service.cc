#include "service/health_service.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "service/errors.h"
#include "service/limits.h"
#include "service/status.h"
#include "tokend/v1/admin.grpc.pb.h"
#include "tokend/v1/generation.grpc.pb.h"
#include "tokend/v1/model.grpc.pb.h"
#include "tokend/v1/sessions.grpc.pb.h"

namespace tokend::service {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// One Watch. Writes the newest status; those that changed back meanwhile are left
// out. Held by the service until OnDone.
class HealthServiceImpl::Watcher : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  // `refused`: nothing is written, its maker finishes it.
  Watcher(HealthServiceImpl* service, bool known, bool refused)
      : service_(service), known_(known), finished_(refused) {}

  // What Advance is to write. `last`: the watch ends after this one.
  void Want(Status status, bool last) {
    base::MutexLock lock(&mu_);
    wanted_ = known_ ? status : HealthCheckResponse::SERVICE_UNKNOWN;
    last_ = last_ || last;
  }

  void Advance() {
    bool finish = false;
    {
      base::MutexLock lock(&mu_);
      if (busy_ || finished_) return;
      if (wanted_ != sent_) {
        sent_ = wanted_;
        response_.set_status(*sent_);
        busy_ = true;
      } else if (last_) {
        finished_ = finish = true;
      } else {
        return;
      }
    }
    if (finish) {
      Finish(ToGrpcStatus(Draining()));
    } else {
      StartWrite(&response_);
    }
  }

  void OnWriteDone(bool ok) override {
    {
      base::MutexLock lock(&mu_);
      busy_ = false;
      if (!ok) last_ = true;
      if (!ok) sent_ = wanted_;
    }
    Advance();
  }
  void OnCancel() override {
    {
      base::MutexLock lock(&mu_);
      last_ = true;
      sent_ = wanted_;
    }
    Advance();
  }
  void OnDone() override { service_->Forget(this); }

 private:
  HealthServiceImpl* const service_;
  const bool known_;
  HealthCheckResponse response_;  // belongs to the write under way
  base::Mutex mu_;
  bool busy_ ABSL_GUARDED_BY(mu_) = false;
  bool last_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_);
  std::optional<Status> wanted_ ABSL_GUARDED_BY(mu_);
  std::optional<Status> sent_ ABSL_GUARDED_BY(mu_);
};

HealthServiceImpl::HealthServiceImpl()
    : services_({"", v1::GenerationService::service_full_name(),
                 v1::SessionService::service_full_name(), v1::ModelService::service_full_name(),
                 v1::AdminService::service_full_name()}) {}

HealthServiceImpl::~HealthServiceImpl() {
  base::MutexLock lock(&mu_);
  TOKEND_CHECK(watchers_.empty());
}

void HealthServiceImpl::SetServing(bool serving) { Tell(serving, /*last=*/false); }

void HealthServiceImpl::Shutdown() { Tell(/*serving=*/false, /*last=*/true); }

void HealthServiceImpl::Tell(bool serving, bool last) {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    base::MutexLock lock(&mu_);
    if (shut_down_) return;
    serving_ = serving;
    shut_down_ = last;
    watchers.assign(watchers_.begin(), watchers_.end());
    // In here, so that what is wanted last is the newest.
    for (const auto& watcher : watchers) watcher->Want(StatusLocked(), last);
  }
  for (const auto& watcher : watchers) watcher->Advance();
}

grpc::ServerUnaryReactor* HealthServiceImpl::Check(grpc::CallbackServerContext* context,
                                                   const HealthCheckRequest* request,
                                                   HealthCheckResponse* response) {
  auto* reactor = context->DefaultReactor();
  if (!IsKnown(request->service())) {
    reactor->Finish(ToGrpcStatus(NoSuchResource("service", request->service())));
    return reactor;
  }
  {
    base::MutexLock lock(&mu_);
    response->set_status(StatusLocked());
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthServiceImpl::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  std::shared_ptr<Watcher> watcher;
  bool full = false;
  {
    base::MutexLock lock(&mu_);
    full = watchers_.size() >= static_cast<size_t>(kMaxHealthWatchers);
    watcher = std::make_shared<Watcher>(this, IsKnown(request->service()), full);
    watcher->Want(StatusLocked(), shut_down_);
    watchers_.insert(watcher);
  }
  if (full) {
    watcher->Finish(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                                 absl::StrCat("more than ", kMaxHealthWatchers, " watchers")));
  } else {
    watcher->Advance();
  }
  return watcher.get();
}

void HealthServiceImpl::Forget(Watcher* watcher) {
  std::shared_ptr<Watcher> keep;  // outlives the lock
  base::MutexLock lock(&mu_);
  const auto found = std::find_if(watchers_.begin(), watchers_.end(),
                                  [&](const auto& held) { return held.get() == watcher; });
  TOKEND_CHECK(found != watchers_.end());
  keep = *found;
  watchers_.erase(found);
}

}  // namespace tokend::service
