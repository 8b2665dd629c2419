#include "service/turn_call.h"

#include <utility>

#include "core/base/status_macros.h"
#include "service/errors.h"
#include "service/log.h"
#include "service/status.h"

namespace tokend::service {

TurnCall::TurnCall(const CallEnv* env, CallInfo info, const char* method)
    : env_(env), info_(std::move(info)), method_(method), start_(env->clock()->Monotonic()) {}

TurnCall::~TurnCall() { base::MutexLock lock(&mu_); }

absl::StatusOr<engine::Request> TurnCall::Prepare(const google::protobuf::Message& request,
                                                  const v1::Turn& turn,
                                                  const std::function<absl::Status()>& check) {
  TOKEND_ASSIGN_OR_RETURN(caller_, Enter(*env_, info_, request));
  TOKEND_RETURN_IF_ERROR(check());
  TOKEND_ASSIGN_OR_RETURN(engine::Request out, ConvertTurn(turn, caller_.serving->rules));
  out.principal = caller_.principal;
  out.deadline = info_.deadline;
  output_.request_id = out.id;
  output_.boot_id = env_->boot_id();
  output_.always_raw = turn.output().always_raw();
  if (out.session.has_value()) session_ = out.session->id;
  return out;
}

absl::Status TurnCall::Admit(const google::protobuf::Message& request, const v1::Turn& turn,
                             const std::function<absl::Status()>& check) {
  auto prepared = Prepare(request, turn, check);
  if (!prepared.ok()) {
    // The engine counts what it is given, and only that.
    env_->observer()->OnRequestEnd(OutcomeName(prepared.status()), Now() - start_);
    TurnEnded(prepared.status(), nullptr);
    return prepared.status();
  }
  absl::Status status = caller_.serving->engine->Submit(*std::move(prepared), shared_from_this());
  // The tokenizer names its own inputs.
  status = RenameField(RenameField(status, "text", "turn.prompt.text"), "messages",
                       "turn.chat.messages");
  if (!status.ok()) {
    TurnEnded(status, nullptr);
    return status;
  }
  bool gone = false;
  {
    base::MutexLock lock(&mu_);
    admitted_ = true;
    gone = client_gone_;
  }
  if (gone) caller_.serving->engine->Cancel(this);
  return absl::OkStatus();
}

void TurnCall::ClientGone() {
  {
    base::MutexLock lock(&mu_);
    client_gone_ = true;
    if (!admitted_) return;
  }
  caller_.serving->engine->Cancel(this);
}

void TurnCall::TurnEnded(const absl::Status& status, const engine::Finished* finished) {
  TurnLogLine line;
  line.method = method_;
  line.principal = caller_.principal;
  line.request_id = output_.request_id;
  line.session = session_;
  line.total = Now() - start_;
  LogTurn(line, status, finished);
}

}  // namespace tokend::service
