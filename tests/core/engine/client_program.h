// Random programs of clients, as data.
#ifndef TOKEND_TESTS_CORE_ENGINE_CLIENT_PROGRAM_H_
#define TOKEND_TESTS_CORE_ENGINE_CLIENT_PROGRAM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/engine/request.h"
#include "tests/core/engine/session_model.h"

namespace tokend::testing {

// Operands pick among what exists, modulo its number, so that each subsequence of
// a program is a program too.
struct ClientOp {
  enum Kind : uint8_t {
    // Calls; see MakeCall.
    kCreate,
    kDelete,
    kFork,
    kRollback,
    kGet,
    kRead,
    kGenerate,
    kStream,
    // What becomes of them.
    kStop,      // turn, what to keep
    kCancel,    // turn
    kLose,      // turn: its connection
    kComplete,  // call, success: what its transport has under way
    kStep,      // steps of the engine
    kPreempt,   // the next operation, where, by how many that follow
    kWait,      // milliseconds
    kKinds,
  };
  Kind kind = kStep;
  int a = 0;
  int b = 0;
  int c = 0;

  bool operator==(const ClientOp&) const = default;
};
using ClientProgram = std::vector<ClientOp>;

ClientProgram MakeClientProgram(uint32_t seed, int operations);

// "{ClientOp::kStep, 0, 0, 0}, ..."
std::string AsCode(absl::Span<const ClientOp> program);

// The call that an operation of the first eight kinds makes. a: session, and the
// fork's name; b: what it expects and allows; c: the turn's input and output.
SessionCall MakeCall(const ClientOp& op, absl::Span<const std::string> names);

// A turn of principal "p".
engine::Request ToRequest(const SessionCall& call, std::string id);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_CORE_ENGINE_CLIENT_PROGRAM_H_
