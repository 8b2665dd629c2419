#include "tests/core/engine/client_program.h"

#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "tests/core/engine/harness.h"

namespace tokend::testing {
namespace {

constexpr const char* kNames[] = {"kCreate", "kDelete",   "kFork",   "kRollback", "kGet",
                                  "kRead",   "kGenerate", "kStream", "kStop",     "kCancel",
                                  "kLose",   "kComplete", "kStep",   "kPreempt",  "kWait"};
static_assert(std::size(kNames) == ClientOp::kKinds);

// How often, of about 1,000.
constexpr int kWeights[] = {20, 25, 25, 30, 50, 60, 60, 140, 20, 12, 12, 250, 220, 120, 12};
static_assert(std::size(kWeights) == ClientOp::kKinds);

constexpr int kMostInput = 9;
constexpr int kMostOutput = 5;

// Takes digits off a number.
class Digits {
 public:
  explicit Digits(int number) : number_(number) {}
  int Below(int n) {
    const int digit = number_ % n;
    number_ /= n;
    return digit;
  }

 private:
  int number_;
};

void FillTurn(Digits b, Digits c, SessionCall* call) {
  constexpr engine::OnConflict kConflicts[] = {
      engine::OnConflict::kQueue, engine::OnConflict::kQueue, engine::OnConflict::kFork,
      engine::OnConflict::kAbort};
  constexpr engine::CommitMode kCommits[] = {
      engine::CommitMode::kOnFinish, engine::CommitMode::kOnFinish, engine::CommitMode::kPartial,
      engine::CommitMode::kOnFinish, engine::CommitMode::kNever};
  call->on_conflict = kConflicts[b.Below(4)];
  call->commit = kCommits[b.Below(5)];
  call->allow_missing = b.Below(4) != 3;
  if (b.Below(6) == 5) call->position = b.Below(20);
  call->max_output = kMostOutput - c.Below(kMostOutput + 1);
  // Long enough to be parked.
  if (c.Below(6) == 5) call->max_output += 40;
  // Few values, so that prefixes match.
  call->input.assign(static_cast<size_t>(1 + c.Below(kMostInput)), kFirstByte);
  for (int32_t& token : call->input) token += c.Below(3);
}

}  // namespace

ClientProgram MakeClientProgram(uint32_t seed, int operations) {
  std::mt19937 random(seed);
  std::vector<int> kinds;
  for (int kind = 0; kind < ClientOp::kKinds; ++kind) {
    kinds.insert(kinds.end(), static_cast<size_t>(kWeights[kind]), kind);
  }
  const auto operand = [&] { return static_cast<int>(random() % 1'000'000); };
  ClientProgram program;
  while (static_cast<int>(program.size()) < operations) {
    const auto kind = static_cast<ClientOp::Kind>(kinds[random() % kinds.size()]);
    program.push_back({.kind = kind, .a = operand(), .b = operand(), .c = operand()});
  }
  return program;
}

std::string AsCode(absl::Span<const ClientOp> program) {
  std::string code;
  for (const ClientOp& op : program) {
    absl::StrAppend(&code, code.empty() ? "" : ", ", "{ClientOp::", kNames[op.kind], ", ", op.a,
                    ", ", op.b, ", ", op.c, "}");
  }
  return code;
}

SessionCall MakeCall(const ClientOp& op, absl::Span<const std::string> names) {
  constexpr SessionCall::Kind kKinds[] = {
      SessionCall::kCreate, SessionCall::kDelete, SessionCall::kFork, SessionCall::kRollback,
      SessionCall::kGet,    SessionCall::kRead,   SessionCall::kTurn, SessionCall::kTurn};
  static_assert(std::size(kKinds) == ClientOp::kStream + 1);
  TOKEND_CHECK(op.kind < std::size(kKinds));
  SessionCall call = {.kind = kKinds[op.kind]};
  Digits a(op.a), b(op.b), c(op.c);
  const auto name = [&] {
    return names[static_cast<size_t>(a.Below(static_cast<int>(names.size())))];
  };
  call.session = name();
  const bool expects = call.kind == SessionCall::kDelete || call.kind == SessionCall::kRollback ||
                       call.kind == SessionCall::kTurn;
  if (expects && b.Below(5) == 4) call.expected_version = b.Below(4);
  switch (call.kind) {
    case SessionCall::kDelete:
      call.allow_missing = b.Below(2) == 1;
      break;
    case SessionCall::kFork:
      call.new_session = name();
      if (b.Below(2) == 1) call.version = 1 + b.Below(6);
      if (b.Below(3) == 2) call.position = b.Below(40);
      break;
    case SessionCall::kRollback:
      call.version = 1 + b.Below(6);
      break;
    case SessionCall::kRead:
      if (b.Below(3) == 2) call.version = 1 + b.Below(6);
      break;
    case SessionCall::kTurn:
      FillTurn(b, c, &call);
      break;
    case SessionCall::kCreate:
    case SessionCall::kGet:
      break;
  }
  // The reply of one in eight is lost. Not of forks: too many orders could be then.
  if (call.kind != SessionCall::kTurn && call.kind != SessionCall::kFork)
    call.lost = c.Below(8) == 7;
  return call;
}

engine::Request ToRequest(const SessionCall& call, std::string id) {
  engine::Request request = TokensRequest(call.input, call.max_output);
  request.id = std::move(id);
  engine::SessionTarget target;
  target.id = call.session;
  target.allow_missing = call.allow_missing;
  target.expected_version = call.expected_version;
  target.on_conflict = call.on_conflict;
  target.commit = call.commit;
  target.from_position = call.position;
  request.session = std::move(target);
  return request;
}

}  // namespace tokend::testing
