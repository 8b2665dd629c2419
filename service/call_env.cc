#include "service/call_env.h"

#include <chrono>

#include "core/base/status_macros.h"
#include "service/errors.h"
#include "service/names.h"
#include "service/status.h"
#include "service/unknown_fields.h"

namespace tokend::service {
namespace {

// Loading takes from a second to a minute.
constexpr absl::Duration kLoadingRetry = absl::Seconds(1);

}  // namespace

CallEnv::CallEnv(const Parts& parts)
    : parts_(parts), boot_id_(RandomUuid()), start_(parts.clock->Monotonic()) {}

CallInfo CallEnv::InfoOf(const grpc::CallbackServerContext& context) const {
  CallInfo info;
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("authorization");
  if (found != metadata.end()) {
    info.authorization.emplace(found->second.data(), found->second.size());
  }
  const auto deadline = context.deadline();
  if (deadline != std::chrono::system_clock::time_point::max()) {
    const auto left = deadline - std::chrono::system_clock::now();
    info.deadline = clock()->Monotonic() + absl::FromChrono(left);
  }
  return info;
}

absl::StatusOr<const Serving*> CallEnv::serving() const {
  const Serving* serving = serving_or_null();
  if (serving == nullptr) return ModelLoading(kLoadingRetry);
  return serving;
}

void CallEnv::SetModel(const v1::Model& model) {
  base::MutexLock lock(&mu_);
  model_ = model;
}

v1::Model CallEnv::model() const {
  base::MutexLock lock(&mu_);
  return model_;
}

absl::StatusOr<Caller> Enter(const CallEnv& env, const CallInfo& info,
                             const google::protobuf::Message& request) {
  Caller caller;
  TOKEND_ASSIGN_OR_RETURN(caller.principal, env.Principal(info));
  TOKEND_RETURN_IF_ERROR(CheckNoUnknownFields(request));
  TOKEND_ASSIGN_OR_RETURN(caller.serving, env.serving());
  return caller;
}

grpc::ServerUnaryReactor* AnswerNow(
    const CallEnv& env, grpc::CallbackServerContext* context,
    const google::protobuf::Message& request,
    const std::function<absl::Status(const Caller& caller)>& handle) {
  auto* reactor = context->DefaultReactor();
  const auto caller = Enter(env, env.InfoOf(*context), request);
  reactor->Finish(ToGrpcStatus(caller.ok() ? handle(*caller) : caller.status()));
  return reactor;
}

}  // namespace tokend::service
