// Interpreter: admission, checkout, commit and drop.
#include <algorithm>
#include <utility>

#include "tests/core/kv/interpreter.h"

namespace tokend::kv {
namespace {

constexpr size_t kMaxTurns = 6;

}  // namespace

using base::ErrorReason;
using base::GetErrorReason;

bool Interpreter::Admit(const Op& op) {
  if (turns_.size() >= kMaxTurns) return false;
  const Name name = NameOf(op.a);
  const WriteIntent intent = {.principal = name.first,
                              .session_id = name.second,
                              .allow_missing = op.b / 3 % 4 == 0,
                              .expected_version = Maybe(op.c % 5),
                              .on_conflict = static_cast<WriteIntent::OnConflict>(op.b % 3)};
  ModelSession* session = FindModel(name);
  const bool behind = session != nullptr && Active(name, session->uid) > 0;
  const bool fork = behind && intent.on_conflict == WriteIntent::OnConflict::kFork;
  const bool limited = (session == nullptr || fork) && AtLimit();
  auto writer = store().Admit(intent);
  if (session == nullptr && !intent.allow_missing) {
    ExpectReason(writer.status(), ErrorReason::kNoSuchResource, "Admit");
  } else if (behind && intent.on_conflict == WriteIntent::OnConflict::kAbort) {
    ExpectReason(writer.status(), ErrorReason::kSessionBusy, "Admit");
  } else if (limited) {
    ExpectReason(writer.status(), ErrorReason::kSessionLimit, "Admit");
  } else if (!writer.ok()) {
    Expect(IsFault(writer.status()), "Admit fails", writer.status().ToString());
  }
  if (!writer.ok()) return true;
  HOLDS((*writer)->fork_id().empty() == !fork);
  if (session == nullptr) {
    auto info = store().GetSession(name.first, name.second);
    ExpectOk(info.status(), "GetSession");
    if (!info.ok()) return true;
    session = &(sessions_[name] = {.uid = info->uid, .provisional = true, .last_use = now()});
  }
  OpenWriter open = {
      .order = admitted_++, .name = name, .uid = session->uid, .fork_id = (*writer)->fork_id()};
  open.writer = *std::move(writer);
  turns_.push_back({.writer = std::make_shared<OpenWriter>(std::move(open))});
  return true;
}

bool Interpreter::Ready(const OpenWriter& writer) {
  if (FindModel(writer) == nullptr || !writer.fork_id.empty()) return true;
  return std::none_of(turns_.begin(), turns_.end(), [&](const OpenTurn& turn) {
    const OpenWriter* const other = turn.writer.get();
    return other != nullptr && other->uid == writer.uid && other->fork_id.empty() &&
           other->order < writer.order;
  });
}

bool Interpreter::Checkout(const Op& op) {
  // The next one that waits, so that operands seldom miss.
  for (size_t i = 0; i < turns_.size(); ++i) {
    OpenTurn& turn = turns_[(op.a + i) % turns_.size()];
    if (turn.writer == nullptr || turn.branch != nullptr) continue;
    HOLDS(turn.writer->writer->ready() == Ready(*turn.writer));
    if (!Ready(*turn.writer)) continue;
    OpenTurn opened = {.writer = turn.writer};
    turns_.erase(turns_.begin() + static_cast<int64_t>((op.a + i) % turns_.size()));
    Open(op, std::move(opened));
    return true;
  }
  return false;
}

bool Interpreter::Beside(const Op& op) {
  const OpenTurn* const turn = TurnOf(op.a);
  if (turn == nullptr || turns_.size() >= kMaxTurns) return false;
  if (turn->branch == nullptr || turn->writer == nullptr) return false;
  Open(op, {.writer = turn->writer});
  return true;
}

// Puts the turn back with its branch; one that gets none leaves.
void Interpreter::Open(const Op& op, OpenTurn turn) {
  const ModelSession* const session = FindModel(*turn.writer);
  std::optional<int64_t> from = Maybe(op.b % 40);
  const int64_t first = session == nullptr ? 0 : session->first_position();
  // Sessions that forget grow longer: edits about where their memory begins, or ends.
  if (from && session != nullptr && session->history > 0) {
    const auto size = static_cast<int64_t>(session->tokens().size());
    *from += std::max<int64_t>(0, first > 0 && op.c % 2 == 0 ? first - 4 : size - 30);
  }
  auto branch = store().Checkout(turn.writer->writer.get(), from);
  const std::optional<int64_t> expected = turn.writer->writer->intent().expected_version;
  if (session == nullptr) {
    ExpectReason(branch.status(), ErrorReason::kSessionDeleted, "Checkout");
  } else if (expected && *expected != session->head) {
    ExpectReason(branch.status(), ErrorReason::kVersionMismatch, "Checkout");
  } else if (from && (*from < first || *from > static_cast<int64_t>(session->tokens().size()))) {
    ExpectReason(branch.status(), ErrorReason::kBadPosition, "Checkout");
    if (*from < first) ++coverage_.not_kept;
  } else {
    ExpectOk(branch.status(), "Checkout");
  }
  if (branch.ok() && session != nullptr) {
    turn.tokens = session->tokens();
    if (from) turn.tokens.resize(*from);
    turn.base = session->head;
    turn.principal = turn.writer->name.first;
    turn.policy = session->policy;
    turn.history = session->history;
    turn.first_position = first;
    turn.branch = *std::move(branch);
    Begin(op, &turn);
  }
  if (turn.branch != nullptr) {
    turns_.push_back(std::move(turn));
  } else {
    Leave(std::move(turn));
  }
}

bool Interpreter::Ephemeral(const Op& op) {
  if (turns_.size() >= kMaxTurns) return false;
  OpenTurn turn;
  turn.principal.assign(1, op.a % 4 == 3 ? 'q' : 'p');
  turn.branch = store().CheckoutEphemeral(turn.principal);
  Begin(op, &turn);
  turns_.push_back(std::move(turn));
  return true;
}

void Interpreter::Begin(const Op& op, OpenTurn* turn) {
  const bool full = turn->tokens.size() > (turn->history > 0 ? 200 : 70);
  Tokens input = full ? Tokens() : InputOf(op.c);
  if (!full && turn->history > 0) input = Concat(input, InputOf(op.c / 3));
  turn->branch->Append(input);
  turn->tokens = Concat(turn->tokens, input);
  turn->matched = op.c % 11 != 10;
  if (turn->matched) turn->branch->MatchPrefix();
  HOLDS(turn->branch->tokens() == static_cast<int64_t>(turn->tokens.size()));
  HOLDS(turn->branch->computed() <= std::max<int64_t>(0, turn->branch->tokens() - 1));
}

OpenTurn Interpreter::Take(int operand) {
  const auto at = turns_.begin() + static_cast<int64_t>(operand % turns_.size());
  OpenTurn turn = std::move(*at);
  turns_.erase(at);
  return turn;
}

bool Interpreter::Drop(const Op& op) {
  if (turns_.empty()) return false;
  Leave(Take(op.a));
  return true;
}

void Interpreter::Leave(OpenTurn turn) {
  turn.branch.reset();
  if (turn.writer == nullptr || turn.writer.use_count() > 1) return;
  const OpenWriter writer = std::move(*turn.writer);
  turn.writer.reset();
  ModelSession* const session = FindModel(writer);
  if (session == nullptr) return;
  session->last_use = now();
  if (session->provisional && !InUse(writer.name, writer.uid)) sessions_.erase(writer.name);
}

bool Interpreter::Commit(const Op& op) {
  const OpenTurn* const chosen = TurnOf(op.a);
  if (chosen == nullptr || chosen->writer == nullptr || chosen->branch == nullptr) return false;
  OpenTurn turn = Take(op.a);
  if (const auto cut = Maybe(op.b)) {
    const size_t size = turn.tokens.size() + 1;
    const bool little = turn.history > 0 && op.b % 8 != 0;
    turn.tokens.resize(little ? size - 1 - *cut % std::min<size_t>(size, 9) : *cut % size);
  }
  OpenWriter& writer = *turn.writer;
  auto version =
      store().Commit(writer.writer.get(), std::move(turn.branch),
                     {.tokens = static_cast<int64_t>(turn.tokens.size()), .request_id = "r"});
  ModelSession* const session = FindModel(writer);
  if (!writer.fork_id.empty()) {
    CommitFork(&turn, version);
  } else if (session == nullptr) {
    ExpectReason(version.status(), ErrorReason::kSessionDeleted, "Commit");
  } else if (session->head != turn.base) {
    ExpectReason(version.status(), ErrorReason::kVersionMismatch, "Commit");
  } else if (static_cast<int64_t>(turn.tokens.size()) < turn.first_position) {
    ExpectReason(version.status(), ErrorReason::kBadPosition, "Commit");
    ++coverage_.not_kept;
  } else if (!version.ok()) {
    Expect(IsFault(version.status()), "Commit fails", version.status().ToString());
  } else {
    AddVersion(session, turn.tokens, turn.base, turn.first_position);
    session->provisional = false;
    HOLDS(static_cast<int64_t>(version->number) == session->head);
  }
  Leave(std::move(turn));
  return true;
}

void Interpreter::CommitFork(OpenTurn* turn, const absl::StatusOr<VersionInfo>& version) {
  OpenWriter& writer = *turn->writer;
  const Name name = {writer.name.first, writer.fork_id};
  if (!writer.fork_uid.empty()) {
    const ModelSession* const fork = FindModel(name);
    const bool gone = fork == nullptr || fork->uid != writer.fork_uid;
    ExpectReason(version.status(),
                 gone ? ErrorReason::kSessionDeleted : ErrorReason::kVersionMismatch, "Commit");
    return;
  }
  if (static_cast<int64_t>(turn->tokens.size()) < turn->first_position) {
    return ExpectReason(version.status(), ErrorReason::kBadPosition, "Commit");
  }
  if (!version.ok()) {
    return Expect(IsFault(version.status()), "Commit of a fork fails", version.status().ToString());
  }
  HOLDS(version->session_id == writer.fork_id);
  auto info = store().GetSession(name.first, name.second);
  if (!info.ok()) return ExpectOk(info.status(), "GetSession");
  writer.fork_uid = info->uid;
  ModelSession fork = {.policy = turn->policy,
                       .idle_ttl = info->spec.idle_ttl,
                       .history = turn->history,
                       .uid = info->uid};
  AddVersion(&fork, turn->tokens, 0, turn->first_position);
  sessions_[name] = std::move(fork);
  forks_.push_back(name);
}

}  // namespace tokend::kv
