#include "tests/service/sim_calls.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "core/base/status_macros.h"
#include "service/generate_call.h"
#include "service/limits.h"
#include "service/names.h"
#include "service/session_calls.h"
#include "service/stream_call.h"

namespace tokend::testing {
namespace {

void Note(const v1::Session& session, SessionCall* call) {
  call->uid = session.uid();
  call->head = session.version();
  call->total_tokens = session.tokens();
  call->active_turns = session.active_turns();
}

absl::Status AskRead(const service::Caller& caller, SessionCall* call) {
  v1::ReadTokensRequest request;
  request.set_name(call->version.has_value()
                       ? service::VersionResource(call->session, *call->version)
                       : service::SessionResource(call->session));
  v1::ReadTokensResponse response;
  TOKEND_RETURN_IF_ERROR(service::ReadTokens(caller, request, &response));
  call->tokens.assign(response.token_ids().begin(), response.token_ids().end());
  const auto name = service::ParseSessionName(response.version());
  if (name.has_value()) call->head = name->version.value_or(-1);
  return absl::OkStatus();
}

absl::Status AskFork(const service::Caller& caller, SessionCall* call) {
  v1::ForkSessionRequest request;
  request.set_source(call->version.has_value()
                         ? service::VersionResource(call->session, *call->version)
                         : service::SessionResource(call->session));
  request.set_session_id(call->new_session);
  if (call->position.has_value()) request.set_end_position(*call->position);
  v1::ForkSessionResponse response;
  TOKEND_RETURN_IF_ERROR(service::ForkSession(caller, request, &response));
  Note(response.session(), call);
  return absl::OkStatus();
}

absl::Status AskRollback(const service::Caller& caller, SessionCall* call) {
  v1::RollbackSessionRequest request;
  request.set_version(service::VersionResource(call->session, *call->version));
  if (call->expected_version.has_value()) request.set_expected_version(*call->expected_version);
  v1::RollbackSessionResponse response;
  TOKEND_RETURN_IF_ERROR(service::RollbackSession(caller, request, &response));
  Note(response.session(), call);
  return absl::OkStatus();
}

absl::Status AskDelete(const service::Caller& caller, SessionCall* call) {
  v1::DeleteSessionRequest request;
  request.set_name(service::SessionResource(call->session));
  request.set_allow_missing(call->allow_missing);
  if (call->expected_version.has_value()) request.set_expected_version(*call->expected_version);
  v1::DeleteSessionResponse response;
  return service::DeleteSession(caller, request, &response);
}

class SimStream : public service::StreamCall, public SimTransport {
 public:
  SimStream(Simulation* simulation, const service::CallEnv* env, service::CallInfo info,
            size_t client)
      : StreamCall(env, std::move(info)), SimTransport(simulation, client) {}

  void Start(const v1::StreamRequest& request) {
    KeepAlive();
    StreamCall::Begin(request);
  }

  // The engine's: others may come in before and after each.
  void OnStarted(const engine::Started& started) override {
    Pause();
    StreamCall::OnStarted(started);
  }
  void OnDelta(engine::Delta delta) override {
    Pause();
    StreamCall::OnDelta(std::move(delta));
  }
  void OnFinished(const engine::Finished& finished) override {
    Pause();
    StreamCall::OnFinished(finished);
  }
  void OnFailed(const absl::Status& status) override {
    Pause();
    StreamCall::OnFailed(status);
  }
  bool Writable() override {
    Pause();
    return StreamCall::Writable();
  }
  int32_t TakenTokens() override {
    Pause();
    return StreamCall::TakenTokens();
  }

 private:
  void SendMetadata() override { SimTransport::Begin(kMetadata); }
  void Write(const v1::StreamResponse* response) override {
    response_ = response;
    SimTransport::Begin(kMessage);
  }
  void WriteAndEnd(const v1::StreamResponse* response) override {
    response_ = response;
    SimTransport::Begin(kEnd);
  }
  void End(const absl::Status& status) override {
    response_ = nullptr;
    status_ = status;
    SimTransport::Begin(kEnd);
  }

  void Receive() override {
    if (response_ != nullptr) simulation_->Receive(client_, *response_);
    response_ = nullptr;
  }
  void Done(bool ok) override { OperationDone(ok); }
  void OnGone() override { ClientGone(); }
  void OnEnd() override {
    simulation_->Return(client_, status_);
    Release();
  }

  const v1::StreamResponse* response_ = nullptr;
  absl::Status status_;
};

class SimGenerate : public service::GenerateCall, public SimTransport {
 public:
  SimGenerate(Simulation* simulation, const service::CallEnv* env, service::CallInfo info,
              size_t client, std::unique_ptr<v1::GenerateResponse> response)
      : GenerateCall(env, std::move(info), response.get()),
        SimTransport(simulation, client),
        response_(std::move(response)) {}

  void Start(const v1::GenerateRequest& request) {
    KeepAlive();
    GenerateCall::Begin(request);
  }

 private:
  void SendMetadata() override { SimTransport::Begin(kMetadata); }
  void End(const absl::Status& status) override {
    ended_ = true;
    status_ = status;
    SimTransport::Begin(kEnd);
  }

  void Receive() override {
    if (ended_ && status_.ok()) simulation_->Receive(client_, *response_);
  }
  void Done(bool) override { MetadataSent(); }
  void OnGone() override { ClientGone(); }
  void OnEnd() override {
    simulation_->Return(client_, status_);
    Release();
  }

  const std::unique_ptr<v1::GenerateResponse> response_;
  bool ended_ = false;
  absl::Status status_;
};

}  // namespace

absl::Status AskSession(const service::Caller& caller, SessionCall* call) {
  switch (call->kind) {
    case SessionCall::kCreate: {
      v1::CreateSessionRequest request;
      request.set_session_id(call->session);
      v1::CreateSessionResponse response;
      TOKEND_RETURN_IF_ERROR(service::CreateSession(caller, request, &response));
      Note(response.session(), call);
      return absl::OkStatus();
    }
    case SessionCall::kGet: {
      v1::GetSessionRequest request;
      request.set_name(service::SessionResource(call->session));
      v1::GetSessionResponse response;
      TOKEND_RETURN_IF_ERROR(service::GetSession(caller, request, &response));
      Note(response.session(), call);
      return absl::OkStatus();
    }
    case SessionCall::kDelete:
      return AskDelete(caller, call);
    case SessionCall::kFork:
      return AskFork(caller, call);
    case SessionCall::kRollback:
      return AskRollback(caller, call);
    case SessionCall::kRead:
      return AskRead(caller, call);
    case SessionCall::kTurn:
      break;
  }
  return absl::OkStatus();
}

v1::Turn ToTurn(const SessionCall& call, const std::string& request_id) {
  v1::Turn turn;
  turn.mutable_tokens()->mutable_token_ids()->Assign(call.input.begin(), call.input.end());
  turn.mutable_sampling()->set_temperature(0);
  turn.mutable_stop()->set_max_output_tokens(call.max_output);
  turn.mutable_stop()->set_ignore_end_of_text(true);
  turn.set_request_id(request_id);
  v1::SessionTarget& target = *turn.mutable_session();
  target.set_name(service::SessionResource(call.session));
  target.set_allow_missing(call.allow_missing);
  if (call.expected_version.has_value()) target.set_expected_version(*call.expected_version);
  if (call.position.has_value()) target.set_from_position(*call.position);
  target.set_on_conflict(static_cast<v1::ConflictPolicy>(1 + static_cast<int>(call.on_conflict)));
  target.set_commit(static_cast<v1::CommitMode>(1 + static_cast<int>(call.commit)));
  return turn;
}

engine::Started FromProto(const v1::Started& started) {
  engine::Started out;
  out.base_version = started.base_version();
  out.fork_name = started.fork_name();
  out.output_position = started.output_position();
  return out;
}

engine::Finished FromProto(const v1::Finished& finished) {
  engine::Finished out;
  out.reason = static_cast<kv::FinishReason>(finished.reason());
  out.version = finished.version();
  return out;
}

void SimTransport::Begin(Operation operation) {
  EXPECT_EQ(operation_, kIdle) << "two operations are under way";
  operation_ = operation;
  Pause();
}

void SimTransport::Pause() { simulation_->Pause(); }

void SimTransport::Complete(bool ok) {
  const Operation operation = operation_;
  if (operation == kIdle) return;
  if (ok && simulation_->connected(client_)) {
    if (operation == kMetadata) simulation_->Admitted(client_);
    Receive();
  }
  if (operation == kEnd) {
    simulation_->Ended(client_);
    OnEnd();
    return;
  }
  operation_ = kIdle;
  Done(ok);
}

void SimTransport::Gone() {
  gone_ = true;
  OnGone();
}

void StartSimStream(Simulation* simulation, const service::CallEnv* env, service::CallInfo info,
                    size_t client, const v1::Turn& turn) {
  const auto call = std::make_shared<SimStream>(simulation, env, std::move(info), client);
  simulation->Open(client, call.get());
  v1::StreamRequest request;
  *request.mutable_turn() = turn;
  call->Start(request);
}

void StartSimGenerate(Simulation* simulation, const service::CallEnv* env, service::CallInfo info,
                      size_t client, const v1::Turn& turn) {
  const auto call = std::make_shared<SimGenerate>(simulation, env, std::move(info), client,
                                                  std::make_unique<v1::GenerateResponse>());
  simulation->Open(client, call.get());
  v1::GenerateRequest request;
  *request.mutable_turn() = turn;
  call->Start(request);
}

}  // namespace tokend::testing
