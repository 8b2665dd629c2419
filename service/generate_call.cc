#include "service/generate_call.h"

#include <utility>

#include "core/base/error.h"
#include "service/errors.h"

namespace tokend::service {

void GenerateCall::Begin(const v1::GenerateRequest& request) {
  const absl::Status status = Admit(request, request.turn(), [&]() -> absl::Status {
    return request.has_turn() ? absl::OkStatus() : base::InvalidField("turn", "required");
  });
  if (!status.ok()) {
    End(status);
    return;
  }
  SendMetadata();
}

void GenerateCall::MetadataSent() {
  std::optional<absl::Status> ended;
  {
    base::MutexLock lock(&mu_);
    metadata_sent_ = true;
    ended = ended_;
  }
  if (ended.has_value()) End(*ended);
}

void GenerateCall::TurnDone(const absl::Status& status) {
  {
    base::MutexLock lock(&mu_);
    ended_ = status;
    if (!metadata_sent_) return;
  }
  End(status);
}

void GenerateCall::OnStarted(const engine::Started& started) {
  *response_->mutable_started() = ToProto(started, output());
}

void GenerateCall::OnDelta(engine::Delta delta) { Merge(std::move(delta), &collected_); }

void GenerateCall::OnFinished(const engine::Finished& finished) {
  TurnEnded(absl::OkStatus(), &finished);
  v1::Delta all = ToProto(std::move(collected_), output());
  response_->mutable_text()->swap(*all.mutable_text());
  response_->mutable_raw()->swap(*all.mutable_raw());
  response_->mutable_token_ids()->Swap(all.mutable_token_ids());
  response_->mutable_logprobs()->Swap(all.mutable_logprobs());
  *response_->mutable_finished() = ToProto(finished);
  TurnDone(absl::OkStatus());
}

void GenerateCall::OnFailed(const absl::Status& status) {
  TurnEnded(status, nullptr);
  TurnDone(status);
}

}  // namespace tokend::service
