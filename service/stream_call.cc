#include "service/stream_call.h"

#include <utility>

#include "core/base/error.h"
#include "service/errors.h"
#include "service/limits.h"

namespace tokend::service {

void StreamCall::Begin(const v1::StreamRequest& request) {
  absl::Status status = Admit(request, request.turn(), [&]() -> absl::Status {
    switch (request.call_case()) {
      case v1::StreamRequest::kTurn:
        return absl::OkStatus();
      case v1::StreamRequest::kResume:
        return base::FeatureUnavailable("resume", "resume: not available on this server");
      case v1::StreamRequest::CALL_NOT_SET:
        break;
    }
    return base::InvalidField("turn", "one of turn and resume is required");
  });
  if (!status.ok()) {
    End(status);
    return;
  }
  {
    base::MutexLock lock(&mu_);
    busy_since_ = Now();
  }
  SendMetadata();
}

void StreamCall::OperationDone(bool ok) {
  bool resumed = false;
  {
    base::MutexLock lock(&mu_);
    const bool was_writable = WritableLocked();
    busy_ = false;
    busy_since_ = absl::InfiniteDuration();
    if (ok) taken_tokens_ += writing_tokens_;
    writing_tokens_ = 0;
    if (!ok) broken_ = true;
    resumed = !was_writable;
  }
  Advance();
  if (resumed) Wake();
}

void StreamCall::Advance() {
  std::optional<engine::Started> started;
  std::optional<engine::Delta> delta;
  std::optional<engine::Finished> finished;
  std::optional<absl::Status> failed;
  {
    base::MutexLock lock(&mu_);
    if (busy_) return;
    if (broken_) {
      started_.reset();
      delta_.reset();
    }
    if (started_.has_value()) {
      started.swap(started_);
    } else if (delta_.has_value()) {
      delta.swap(delta_);
      writing_tokens_ = static_cast<int32_t>(delta->token_ids.size());
    } else if (finished_.has_value()) {
      finished.swap(finished_);
    } else if (failed_.has_value()) {
      failed.swap(failed_);
    } else {
      return;
    }
    busy_ = true;
    busy_since_ = Now();
  }
  if (failed.has_value()) {
    End(*failed);
    return;
  }
  if (started.has_value()) {
    *response_.mutable_started() = ToProto(*started, output());
  } else if (delta.has_value()) {
    *response_.mutable_delta() = ToProto(*std::move(delta), output());
  } else {
    *response_.mutable_finished() = ToProto(*finished);
    WriteAndEnd(&response_);
    return;
  }
  Write(&response_);
}

void StreamCall::OnStarted(const engine::Started& started) {
  {
    base::MutexLock lock(&mu_);
    started_ = started;
  }
  Advance();
}

void StreamCall::OnDelta(engine::Delta delta) {
  {
    base::MutexLock lock(&mu_);
    if (!delta_.has_value()) {
      delta_ = std::move(delta);
    } else {
      Merge(std::move(delta), &*delta_);
    }
  }
  Advance();
}

void StreamCall::OnFinished(const engine::Finished& finished) {
  TurnEnded(absl::OkStatus(), &finished);
  {
    base::MutexLock lock(&mu_);
    finished_ = finished;
  }
  Advance();
}

void StreamCall::OnFailed(const absl::Status& status) {
  TurnEnded(status, nullptr);
  {
    base::MutexLock lock(&mu_);
    failed_ = status;
  }
  Advance();
}

bool StreamCall::WritableLocked() const {
  return !delta_.has_value() ||
         (delta_->token_ids.size() < static_cast<size_t>(kMaxPendingTokens) &&
          delta_->raw.size() < kMaxPendingBytes);
}

bool StreamCall::Writable() {
  base::MutexLock lock(&mu_);
  return WritableLocked();
}

absl::Duration StreamCall::BlockedSince() {
  base::MutexLock lock(&mu_);
  return busy_since_;
}

int32_t StreamCall::TakenTokens() {
  base::MutexLock lock(&mu_);
  return taken_tokens_;
}

}  // namespace tokend::service
