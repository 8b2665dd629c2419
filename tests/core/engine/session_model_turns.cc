// How a turn takes effect: it enters its session's line, starts, commits, leaves.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/kv/errors.h"
#include "tests/core/engine/session_model.h"

namespace tokend::testing {
namespace {

using base::ErrorReason;
using engine::CommitMode;
using engine::OnConflict;

std::string VersionName(const std::string& session, int64_t number) {
  return number == 0 ? "" : absl::StrCat("sessions/", session, "/versions/", number);
}

bool StartsWith(const Tokens& tokens, const Tokens& start) {
  return start.size() <= tokens.size() && std::equal(start.begin(), start.end(), tokens.begin());
}

// Refused before the store was asked, or by the input alone.
bool HadNoEffect(const absl::Status& status) {
  switch (base::GetErrorReason(status)) {
    case ErrorReason::kQueueFull:
    case ErrorReason::kRequestIdReused:
    case ErrorReason::kInvalidField:
    case ErrorReason::kDraining:
    case ErrorReason::kDeadlinePassed:
      return true;
    default:
      return false;
  }
}

// How many output tokens the turn's version may hold.
std::vector<int32_t> Keeps(const SessionCall& call) {
  if (call.commit == CommitMode::kNever) return {};
  const bool stopped =
      call.finished.has_value() && call.finished->reason == kv::FinishReason::kInterrupted;
  const bool full =
      call.finished.has_value() && call.finished->reason == kv::FinishReason::kContextFull;
  if (full) return {static_cast<int32_t>(call.tokens.size())};
  std::vector<int32_t> keeps;
  if (!stopped && (call.lost || call.finished.has_value())) keeps.push_back(call.max_output);
  if (stopped || call.lost) keeps.insert(keeps.end(), call.keeps.begin(), call.keeps.end());
  // Cancelled, late, or too slow a reader.
  if (call.commit == CommitMode::kPartial && !call.finished.has_value()) {
    for (int32_t keep = 1; keep <= call.max_output; ++keep) keeps.push_back(keep);
  }
  std::sort(keeps.begin(), keeps.end());
  keeps.erase(std::unique(keeps.begin(), keeps.end()), keeps.end());
  return keeps;
}

// The session's head when the turn started, if the client was told.
std::optional<int64_t> HeadAtStart(const SessionCall& call) {
  std::string number;
  if (call.started.has_value()) {
    number = call.started->base_version;
    if (number.empty()) return 0;
    number = number.substr(number.rfind('/') + 1);
  } else if (base::GetErrorReason(call.status) == ErrorReason::kVersionMismatch) {
    number = base::GetErrorInfo(call.status)->metadata[0].second;
  }
  int64_t head = 0;
  return absl::SimpleAtoi(number, &head) ? std::optional(head) : std::nullopt;
}

}  // namespace

SessionModel::States SessionModel::Enter(int index, const SessionCall& call) const {
  States states;
  SessionModel next = *this;
  const absl::Status status = next.EnterLine(index, call);
  if (status.ok()) {
    next.phase(index) = kWaiting;
    if (next.MayStartThere(index, call)) states.push_back(std::move(next));
  } else if (call.lost || status == call.status) {
    next.phase(index) = kDone;
    states.push_back(std::move(next));
  }
  if (!call.lost && HadNoEffect(call.status)) {
    states.push_back(*this);
    states.back().phase(index) = kDone;
  }
  return states;
}

// Whether those in front of it can leave it the head that it saw. Or this would show
// only once it starts.
bool SessionModel::MayStartThere(int index, const SessionCall& call) const {
  const Turn& turn = turns_.at(index);
  const std::optional<int64_t> head = HeadAtStart(call);
  if (!head.has_value() || !turn.fork.empty()) return true;
  const Session& session = sessions_.at(call.session);
  int64_t least = session.head(), most = session.head();
  for (const int other : session.line) {
    if (other == index) break;
    if (phases_[static_cast<size_t>(other)] == kCommitted) continue;
    least += turns_.at(other).must_commit ? 1 : 0;
    most += turns_.at(other).may_commit ? 1 : 0;
  }
  return least <= *head && *head <= most;
}

absl::Status SessionModel::EnterLine(int index, const SessionCall& call) {
  Session* session = Find(call.session);
  if (session == nullptr) {
    if (!call.allow_missing) return kv::SessionNotFound(call.session);
    TOKEND_RETURN_IF_ERROR(CanAdd(call.session));
    session = &Add(call.session);
    session->provisional = true;
  }
  const bool behind = !session->line.empty();
  if (behind && call.on_conflict == OnConflict::kAbort) return kv::SessionBusy(call.session);
  Turn turn = {.incarnation = session->incarnation};
  turn.must_commit = call.finished.has_value() && !call.finished->version.empty();
  turn.may_commit = turn.must_commit || !call.finished.has_value();
  if (behind && call.on_conflict == OnConflict::kFork) {
    // Until the client is told nobody knows its name.
    turn.fork = call.fork_name().empty() ? absl::StrCat("?", index) : call.fork_name();
    TOKEND_RETURN_IF_ERROR(CanAdd(turn.fork));
    Session& fork = Add(turn.fork);
    fork.reserved = true;
    turn.fork_incarnation = fork.incarnation;
  } else {
    session->line.push_back(index);
  }
  turns_[index] = std::move(turn);
  return absl::OkStatus();
}

// Whether the client saw this start and what the fake backend says then.
bool SessionModel::StartFits(const Turn& turn, const SessionCall& call, const Session& source,
                             int64_t base) {
  const std::string fork = turn.fork.empty() ? "" : absl::StrCat("sessions/", turn.fork);
  if (call.started.has_value() &&
      (call.started->base_version != VersionName(call.session, source.head()) ||
       call.started->output_position != base + static_cast<int64_t>(call.input.size()) ||
       call.started->fork_name != fork)) {
    return false;
  }
  const Tokens reply = pool_->Reply(*turn.prompt, call.max_output);
  const bool whole =
      call.finished.has_value() && call.finished->reason == kv::FinishReason::kLength;
  return whole ? call.tokens == reply : StartsWith(reply, call.tokens);
}

void SessionModel::Start(int index, const SessionCall& call, States* states) const {
  SessionModel next = *this;
  Turn& turn = next.turns_.at(index);
  const Session* const source = next.Alive(call.session, turn.incarnation);
  if (source == nullptr) return;
  if (turn.fork.empty() && source->line.front() != index) return;
  const Tokens* const all = next.TokensOf(*source);
  const auto size = static_cast<int64_t>(all->size());
  const int64_t base = call.position.value_or(size);
  absl::Status status;
  if (call.expected_version.value_or(source->head()) != source->head()) {
    status = kv::VersionMismatch(*call.expected_version, kv::Version{source->head()});
  } else if (base < 0 || base > size) {
    status = kv::BadPosition(base, 0, size);
  }
  if (!status.ok()) {
    next.phase(index) = kRefused;
    if (call.lost || call.status == status) states->push_back(std::move(next));
    return;
  }
  turn.base_number = source->head();
  Tokens prompt(all->begin(), all->begin() + base);
  prompt.insert(prompt.end(), call.input.begin(), call.input.end());
  turn.prompt = pool_->Get(std::move(prompt));
  next.phase(index) = kRunning;
  if (next.StartFits(turn, call, *source, base)) states->push_back(std::move(next));
}

void SessionModel::Commit(int index, const SessionCall& call, States* states) const {
  for (const int32_t keep : Keeps(call)) {
    SessionModel next = *this;
    const Turn& turn = next.turns_.at(index);
    const bool forks = !turn.fork.empty();
    const std::string& name = forks ? turn.fork : call.session;
    Session* const session = next.Alive(name, forks ? turn.fork_incarnation : turn.incarnation);
    if (session == nullptr || session->head() != (forks ? 0 : turn.base_number)) return;
    Tokens tokens = *turn.prompt;
    const Tokens reply = pool_->Reply(tokens, keep);
    tokens.insert(tokens.end(), reply.begin(), reply.end());
    next.AddVersion(session, pool_->Get(std::move(tokens)));
    session->reserved = session->provisional = false;
    next.phase(index) = kCommitted;
    if (!call.finished.has_value() ||
        call.finished->version == VersionName(name, session->head())) {
      states->push_back(std::move(next));
    }
  }
}

bool SessionModel::MayLeave(int index, const SessionCall& call) {
  const Turn& turn = turns_.at(index);
  const bool committed = phase(index) == kCommitted;
  if (call.lost) return !call.started.has_value() || phase(index) != kWaiting;
  if (call.finished.has_value()) {
    if (call.started.has_value() == (phase(index) == kWaiting)) return false;
    const bool must = call.finished->reason != kv::FinishReason::kInterrupted &&
                      call.commit != CommitMode::kNever;
    return committed ? !call.finished->version.empty() : call.finished->version.empty() && !must;
  }
  switch (base::GetErrorReason(call.status)) {
    case ErrorReason::kVersionMismatch:
    case ErrorReason::kBadPosition:
      return phase(index) == kRefused;
    case ErrorReason::kSessionDeleted: {
      const bool needs_source = turn.fork.empty() || phase(index) == kWaiting;
      return !committed && needs_source && Alive(call.session, turn.incarnation) == nullptr;
    }
    case ErrorReason::kDeadlinePassed:
    case ErrorReason::kReaderTooSlow:
    case ErrorReason::kKvPoolFull:
    case ErrorReason::kContextFull:
      return phase(index) != kRefused;
    default:
      return false;
  }
}

void SessionModel::Leave(int index, const SessionCall& call, States* states) const {
  SessionModel next = *this;
  if (!next.MayLeave(index, call)) return;
  const Turn& turn = next.turns_.at(index);
  Session* const session = next.Alive(call.session, turn.incarnation);
  if (session != nullptr) {
    std::erase(session->line, index);
    const bool last = std::none_of(next.turns_.begin(), next.turns_.end(), [&](const auto& other) {
      return other.first != index && other.second.incarnation == turn.incarnation;
    });
    if (session->provisional && last) next.sessions_.erase(call.session);
  }
  if (!turn.fork.empty()) {
    const Session* const fork = next.Alive(turn.fork, turn.fork_incarnation);
    if (fork != nullptr && fork->reserved) next.sessions_.erase(turn.fork);
  }
  next.turns_.erase(index);
  next.phase(index) = kDone;
  states->push_back(std::move(next));
}

}  // namespace tokend::testing
