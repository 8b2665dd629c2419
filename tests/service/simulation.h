// Engine, session store, service adapter and clock under one scheduler: a program
// says which client calls, whose transport completes, stalls or breaks, when the
// engine steps, and where one of these interrupts another.
#ifndef TOKEND_TESTS_SERVICE_SIMULATION_H_
#define TOKEND_TESTS_SERVICE_SIMULATION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/engine/engine.h"
#include "service/auth.h"
#include "service/call_env.h"
#include "tests/core/engine/client_program.h"
#include "tests/core/engine/harness.h"
#include "tests/core/engine/session_model.h"
#include "tests/support/shrink.h"
#include "tokend/v1/generation.pb.h"

namespace tokend::testing {

class Simulation;

// The transport of a call without gRPC: what it has under way ends when the program
// says so. The client is `client` of the simulation's calls.
class SimTransport {
 public:
  SimTransport(Simulation* simulation, size_t client) : simulation_(simulation), client_(client) {}
  virtual ~SimTransport() = default;

  // Ends the operation under way, if there is one. Not ok: the connection is lost.
  void Complete(bool ok);
  // gRPC's OnCancel. Once; not after the end.
  void Gone();
  bool gone() const { return gone_; }

 protected:
  enum Operation { kIdle, kMetadata, kMessage, kEnd };
  void Begin(Operation operation);
  // A place where other threads may run.
  void Pause();

  Simulation* const simulation_;
  const size_t client_;

 private:
  // The call's.
  virtual void Done(bool ok) = 0;
  virtual void Receive() = 0;  // the client gets what was sent
  virtual void OnGone() = 0;
  virtual void OnEnd() = 0;

  Operation operation_ = kIdle;
  bool gone_ = false;
};

struct SimulationOptions {
  int64_t pages = 3 * 400;
};

// What programs came across.
struct SimulationCoverage {
  int64_t calls = 0, finished = 0, lost = 0, refused = 0, conflicts = 0, deleted = 0, busy = 0;
  int64_t forks = 0, partial = 0, interrupted = 0, nested = 0, parks = 0, undecided = 0;
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options);
  ~Simulation();

  // Runs the program, ends all calls, and looks for an order that explains what the
  // clients saw.
  ProgramEnd Run(const ClientProgram& program);
  const std::string& detail() const { return detail_; }
  const SimulationCoverage& coverage() const { return coverage_; }

  // --- For transports. ---
  void Pause();
  bool connected(size_t client) const { return !calls_[client].lost; }
  void Admitted(size_t client) { calls_[client].admitted = Tick(); }
  void Receive(size_t client, const v1::StreamResponse& response);
  void Receive(size_t client, const v1::GenerateResponse& response);
  void Return(size_t client, const absl::Status& status);
  void Lose(size_t client);
  void Open(size_t client, SimTransport* transport) { turns_[client] = transport; }
  void Ended(size_t client) { turns_[client] = nullptr; }

 private:
  void RunNext();
  void Act(const ClientOp& op);
  void CallSession(const ClientOp& op);
  void StartTurn(const ClientOp& op);
  void StopTurn(const ClientOp& op);
  void Complete(const ClientOp& op);
  void CompleteOne(const ClientOp& op, size_t client);
  void Step(int count);
  void EndAll();
  void ReadAll();
  std::vector<std::string> Names() const;
  // Of the turns whose transport is not done, the one that `a` picks; -1: none.
  int64_t Pick(int a) const;
  int64_t Tick() { return ++ticks_; }
  void Count();

  class Engine;

  Harness harness_;
  std::unique_ptr<Engine> engine_;
  const service::Authenticator auth_;
  service::CallEnv env_;
  service::Serving serving_;
  SessionModelOptions model_;

  const ClientProgram* program_ = nullptr;
  size_t next_ = 0;
  int64_t ticks_ = 0;
  bool stepping_ = false;
  int depth_ = 0;
  int pauses_left_ = -1;  // until others run; -1: they do not
  int others_ = 0;        // how many operations then

  std::vector<SessionCall> calls_;
  std::vector<SimTransport*> turns_;  // by call; nullptr: none, or it has ended
  std::string detail_;
  SimulationCoverage coverage_;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SERVICE_SIMULATION_H_
