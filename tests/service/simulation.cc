#include "tests/service/simulation.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "tests/service/sim_calls.h"
#include "tokend/v1/sessions.pb.h"

namespace tokend::testing {
namespace {

// Deeper than any two threads need.
constexpr int kMostDepth = 4;
constexpr int kMostSteps = 20000;
constexpr int kMostTurns = 6;

HarnessOptions Options(const SimulationOptions& options) {
  HarnessOptions out;
  out.engine.context_tokens = 256;
  out.engine.max_running = 3;
  out.engine.max_queued = 4;
  out.engine.prefill_chunk_tokens = 5;
  out.engine.stall_timeout = absl::Milliseconds(500);
  out.backend.page_tokens = 4;
  out.pages = options.pages;
  out.max_versions = SessionModelOptions{}.max_versions;
  return out;
}

}  // namespace

// The engine without its thread.
class Simulation::Engine : public engine::Engine {
 public:
  explicit Engine(engine::Scheduler* scheduler) : scheduler_(scheduler) {}
  void Start(std::function<void()>, std::function<void(const absl::Status&)>) override {}
  absl::Status Submit(engine::Request request, std::shared_ptr<engine::TurnSink> sink) override {
    return scheduler_->Submit(std::move(request), std::move(sink));
  }
  void Cancel(const engine::TurnSink* sink) override { scheduler_->Cancel(sink); }
  void Stop(absl::string_view principal, absl::string_view request_id, std::optional<int32_t> keep,
            engine::StopCallback done) override {
    scheduler_->Stop(principal, request_id, keep, std::move(done));
  }
  void Wake() override { scheduler_->Wake(); }
  void Drain(absl::Duration) override {}
  engine::EngineSnapshot Snapshot() override { return scheduler_->Snapshot(); }

 private:
  engine::Scheduler* const scheduler_;
};

Simulation::Simulation(const SimulationOptions& options)
    : harness_(Options(options)),
      engine_(std::make_unique<Engine>(&harness_.scheduler())),
      auth_({}, true),
      env_({&auth_, &harness_.clock(), base::NullObserver(), "0.0.0 (test, simulated)"}) {
  model_.vocabulary_size = kVocabulary;
  harness_.SetStepTime(absl::Milliseconds(3), absl::Microseconds(50));
  serving_.engine = engine_.get();
  serving_.store = &harness_.store();
  serving_.tokenizer = &TinyTokenizer();
  serving_.rules.context_tokens = 256;
  serving_.rules.layers = 3;
  serving_.rules.vocabulary_size = kVocabulary;
  env_.Publish(&serving_);
  harness_.backend().on_forward =
      [this, step = harness_.backend().on_forward](const ops::StepBatch& batch) {
        Pause();
        return step(batch);
      };
}

Simulation::~Simulation() = default;

ProgramEnd Simulation::Run(const ClientProgram& program) {
  program_ = &program;
  while (next_ < program.size()) RunNext();
  const int last = static_cast<int>(program.size()) - 1;
  EndAll();
  if (!detail_.empty()) return {"a call has no end", last};
  ReadAll();
  Count();
  detail_ = CheckLinearizable(model_, calls_);
  if (absl::StartsWith(detail_, kGaveUp)) {
    ++coverage_.undecided;
    return {};
  }
  if (!detail_.empty()) return {"no order explains what the clients saw", last};
  return {};
}

void Simulation::RunNext() {
  const ClientOp op = (*program_)[next_++];
  if (op.kind == ClientOp::kPreempt) {
    pauses_left_ = op.a % 6;
    others_ = 1 + op.b % 3;
    return;
  }
  harness_.clock().Advance(absl::Microseconds(1));
  Act(op);
  pauses_left_ = -1;
}

void Simulation::Pause() {
  if (pauses_left_ < 0 || pauses_left_-- > 0 || depth_ >= kMostDepth) return;
  ++depth_;
  const int count = others_;
  for (int i = 0; i < count && next_ < program_->size(); ++i) {
    ++coverage_.nested;
    RunNext();
  }
  --depth_;
}

void Simulation::Act(const ClientOp& op) {
  switch (op.kind) {
    case ClientOp::kCreate:
    case ClientOp::kDelete:
    case ClientOp::kFork:
    case ClientOp::kRollback:
    case ClientOp::kGet:
    case ClientOp::kRead:
      CallSession(op);
      break;
    case ClientOp::kGenerate:
    case ClientOp::kStream:
      StartTurn(op);
      break;
    case ClientOp::kStop:
      StopTurn(op);
      break;
    case ClientOp::kCancel:
      if (const int64_t turn = Pick(op.a); turn >= 0) {
        const auto client = static_cast<size_t>(turn);
        Lose(client);
        if (!turns_[client]->gone()) turns_[client]->Gone();
      }
      break;
    case ClientOp::kLose:
      if (const int64_t turn = Pick(op.a); turn >= 0) Lose(static_cast<size_t>(turn));
      break;
    case ClientOp::kComplete:
      Complete(op);
      break;
    case ClientOp::kStep:
      Step(1 + op.a % 3);
      break;
    case ClientOp::kWait:
      harness_.clock().Advance(absl::Milliseconds(op.a % 300));
      break;
    case ClientOp::kPreempt:
    case ClientOp::kKinds:
      break;
  }
}

std::vector<std::string> Simulation::Names() const {
  std::vector<std::string> names = {"s0", "s1", "s2"};
  for (const SessionCall& call : calls_) {
    if (!call.fork_name().empty()) names.push_back(call.fork_name());
  }
  return names;
}

int64_t Simulation::Pick(int a) const {
  std::vector<int64_t> open;
  for (size_t i = 0; i < turns_.size(); ++i) {
    if (turns_[i] != nullptr) open.push_back(static_cast<int64_t>(i));
  }
  return open.empty() ? -1 : open[static_cast<size_t>(a) % open.size()];
}

void Simulation::CallSession(const ClientOp& op) {
  SessionCall call = MakeCall(op, Names());
  call.invoked = Tick();
  const auto caller = service::Enter(env_, {}, v1::GetSessionRequest());
  call.status = AskSession(caller.value(), &call);
  call.returned = Tick();
  calls_.push_back(std::move(call));
  turns_.push_back(nullptr);
}

void Simulation::StartTurn(const ClientOp& op) {
  const auto busy = [](const SimTransport* turn) { return turn != nullptr; };
  if (std::count_if(turns_.begin(), turns_.end(), busy) >= kMostTurns) return;
  const size_t client = calls_.size();
  calls_.push_back(MakeCall(op, Names()));
  turns_.push_back(nullptr);
  calls_[client].invoked = Tick();
  const v1::Turn turn = ToTurn(calls_[client], absl::StrCat("r", client));
  service::CallInfo info;
  if (op.b % 13 == 12) {
    info.deadline = harness_.clock().Monotonic() + absl::Milliseconds(op.c % 200);
  }
  if (op.kind == ClientOp::kStream) {
    StartSimStream(this, &env_, std::move(info), client, turn);
  } else {
    StartSimGenerate(this, &env_, std::move(info), client, turn);
  }
}

void Simulation::StopTurn(const ClientOp& op) {
  const int64_t turn = Pick(op.a);
  if (turn < 0) return;
  std::optional<int32_t> keep;
  if (op.b % 3 != 0) {
    keep = op.c % 4;
    calls_[static_cast<size_t>(turn)].keeps.push_back(*keep);
  }
  engine_->Stop(service::kAnonymous, absl::StrCat("r", turn), keep,
                [](const absl::StatusOr<engine::Finished>&) {});
}

void Simulation::Complete(const ClientOp& op) {
  // Mostly everybody's.
  if (op.c % 4 != 0) {
    for (size_t client = 0; client < turns_.size(); ++client) CompleteOne(op, client);
  } else if (const int64_t turn = Pick(op.a); turn >= 0) {
    CompleteOne(op, static_cast<size_t>(turn));
  }
}

void Simulation::CompleteOne(const ClientOp& op, size_t client) {
  if (turns_[client] == nullptr) return;
  const bool was_connected = connected(client);
  const int luck = op.b % 1024 + static_cast<int>(client);
  const bool ok = was_connected ? luck % 32 != 31 : luck % 4 == 3;
  // The server hears of a loss now or later.
  if (!was_connected && !turns_[client]->gone() && op.c % 3 == 0) turns_[client]->Gone();
  if (was_connected && !ok) Lose(client);
  if (turns_[client] != nullptr) turns_[client]->Complete(ok);
}

void Simulation::Step(int count) {
  if (stepping_) return;
  stepping_ = true;
  for (int i = 0; i < count; ++i) (void)harness_.scheduler().StepOnce();
  stepping_ = false;
}

void Simulation::EndAll() {
  const auto open = [](const SimTransport* turn) { return turn != nullptr; };
  for (int i = 0; i < kMostSteps; ++i) {
    if (std::none_of(turns_.begin(), turns_.end(), open)) return;
    for (size_t client = 0; client < turns_.size(); ++client) {
      if (turns_[client] != nullptr && !connected(client) && !turns_[client]->gone()) {
        turns_[client]->Gone();
      }
      if (turns_[client] != nullptr) turns_[client]->Complete(connected(client));
    }
    Step(1);
  }
  for (size_t client = 0; client < turns_.size(); ++client) {
    if (turns_[client] != nullptr) absl::StrAppend(&detail_, calls_[client].ToString(), "\n");
  }
}

void Simulation::ReadAll() {
  for (const std::string& name : Names()) {
    for (const SessionCall::Kind kind : {SessionCall::kGet, SessionCall::kRead}) {
      SessionCall call = {.kind = kind, .session = name, .invoked = Tick()};
      call.status = AskSession({std::string(service::kAnonymous), &serving_}, &call);
      call.returned = Tick();
      calls_.push_back(std::move(call));
    }
  }
}

void Simulation::Receive(size_t client, const v1::StreamResponse& response) {
  SessionCall& call = calls_[client];
  switch (response.event_case()) {
    case v1::StreamResponse::kStarted:
      call.started = FromProto(response.started());
      call.began = Tick();
      break;
    case v1::StreamResponse::kDelta:
      call.tokens.insert(call.tokens.end(), response.delta().token_ids().begin(),
                         response.delta().token_ids().end());
      break;
    case v1::StreamResponse::kFinished:
      call.finished = FromProto(response.finished());
      break;
    case v1::StreamResponse::EVENT_NOT_SET:
      break;
  }
}

void Simulation::Receive(size_t client, const v1::GenerateResponse& response) {
  SessionCall& call = calls_[client];
  if (response.has_started()) call.started = FromProto(response.started());
  call.tokens.assign(response.token_ids().begin(), response.token_ids().end());
  if (response.has_finished()) call.finished = FromProto(response.finished());
}

void Simulation::Return(size_t client, const absl::Status& status) {
  calls_[client].status = status;
  calls_[client].returned = Tick();
}

void Simulation::Lose(size_t client) { calls_[client].lost = true; }

void Simulation::Count() {
  using base::ErrorReason;
  coverage_.calls += static_cast<int64_t>(calls_.size());
  coverage_.parks += harness_.scheduler().parks();
  for (const SessionCall& call : calls_) {
    const ErrorReason reason = base::GetErrorReason(call.status);
    coverage_.lost += call.lost ? 1 : 0;
    coverage_.refused += reason == ErrorReason::kQueueFull ? 1 : 0;
    coverage_.conflicts += reason == ErrorReason::kVersionMismatch ? 1 : 0;
    coverage_.deleted += reason == ErrorReason::kSessionDeleted ? 1 : 0;
    coverage_.busy += reason == ErrorReason::kSessionBusy ? 1 : 0;
    coverage_.partial += call.lost && call.commit == engine::CommitMode::kPartial ? 1 : 0;
    if (!call.finished.has_value() || call.lost) continue;
    const bool stopped = call.finished->reason == kv::FinishReason::kInterrupted;
    ++(stopped ? coverage_.interrupted : coverage_.finished);
    coverage_.forks += call.fork_name().empty() ? 0 : 1;
  }
}

}  // namespace tokend::testing
