// Interpreter: the frame of an operation, and the comparison with the model.
#include "tests/core/kv/interpreter.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "core/base/check.h"

namespace tokend::kv {
namespace {

constexpr absl::string_view kFault = "a planned fault";

StoreOptions OptionsOf(const ProgramOptions& program) {
  StoreOptions options = SmallOptions();
  options.pages = program.pages;
  options.digest_bits = program.digest_bits;
  options.local_windows = program.local_windows;
  options.share_prefixes = program.share_prefixes;
  if (program.quota > 0) options.quota_pages = {{"p", program.quota}, {"q", program.quota / 2}};
  options.max_versions = 4;
  options.max_sessions = 12;
  options.look_back_tokens = 5;
  return options;
}

int64_t Get(const std::map<base::EvictionCause, int64_t>& counts, base::EvictionCause cause) {
  const auto found = counts.find(cause);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

RetentionPolicy PolicyOf(int operand) {
  const int a = operand / 4 % 3;
  const int b = operand / 12;
  switch (operand % 4) {
    case 1:
      return {RetentionPolicy::Kind::kSlidingWindow, a * 3, 1 + b % 12};
    case 2:
      return {RetentionPolicy::Kind::kLayered, a % 2 * 5, 1 + b % 9, 1 + a / 2};
    case 3:
      return {RetentionPolicy::Kind::kHeavyHitters, a * 3, 1 + b % 12, 0, b % 3, 4 + b / 3 % 3 * 4};
    default:
      return {};
  }
}

Tokens InputOf(int operand) {
  Tokens input;
  uint32_t random = static_cast<uint32_t>(operand) / 4;
  for (int pieces = operand % 4; pieces >= 0; --pieces) {
    input = Concat(input, SomeTokens(1 + static_cast<int>(random % 9), random / 9 % 3));
    random = random * 1664525u + 1013904223u;
    random ^= random >> 16;
  }
  return input;
}

Interpreter::Interpreter(const ProgramOptions& options)
    : options_(options), harness_(OptionsOf(options)) {
  harness_.tags().on_fault = [this](FaultPoint point) { return OnFault(point); };
}

absl::Status Interpreter::OnFault(FaultPoint point) {
  if (point == FaultPoint::kPublish && options_.plant == ProgramOptions::kCrashOfFourthCommit) {
    TOKEND_CHECK(++publishes_ < 4);
  }
  if (point != point_ || countdown_ == 0 || --countdown_ > 0) return absl::OkStatus();
  ++coverage_.faults[static_cast<size_t>(point)];
  return base::MakeError(absl::StatusCode::kInternal, kFault,
                         {.reason = base::ErrorReason::kRequestFailed});
}

bool Interpreter::IsFault(const absl::Status& status) {
  return absl::StrContains(status.message(), kFault);
}

void Interpreter::Expect(bool ok, absl::string_view what, absl::string_view detail) {
  if (ok || !what_.empty()) return;
  what_ = std::string(what);
  detail_ = std::string(detail);
}

void Interpreter::ExpectOk(const absl::Status& status, absl::string_view what) {
  Expect(status.ok(), absl::StrCat(what, " fails"), status.ToString());
}

void Interpreter::ExpectReason(const absl::Status& status, base::ErrorReason reason,
                               absl::string_view what) {
  Expect(base::GetErrorReason(status) == reason,
         absl::StrCat(what, " has not reason ", static_cast<int>(reason)), status.ToString());
}

Name Interpreter::NameOf(int operand) const {
  const int i = operand % 14;
  if (i >= 10 && !forks_.empty()) return forks_[(i - 10) % forks_.size()];
  return {i % 10 < 5 ? "p" : "q", absl::StrCat("s", i % 5)};
}

ModelSession* Interpreter::FindModel(const Name& name) {
  const auto found = sessions_.find(name);
  return found == sessions_.end() ? nullptr : &found->second;
}

ModelSession* Interpreter::FindModel(const OpenWriter& writer) {
  ModelSession* const session = FindModel(writer.name);
  return session != nullptr && session->uid == writer.uid ? session : nullptr;
}

OpenTurn* Interpreter::TurnOf(int operand) {
  return turns_.empty() ? nullptr : &turns_[operand % turns_.size()];
}

int Interpreter::Active(const Name& name, const std::string& uid) const {
  std::set<const OpenWriter*> writers;
  for (const OpenTurn& turn : turns_) {
    const OpenWriter* writer = turn.writer.get();
    if (writer == nullptr || !writer->fork_id.empty()) continue;
    if (writer->name == name && writer->uid == uid) writers.insert(writer);
  }
  return static_cast<int>(writers.size());
}

bool Interpreter::InUse(const Name& name, const std::string& uid) const {
  return std::any_of(turns_.begin(), turns_.end(), [&](const OpenTurn& turn) {
    return turn.writer != nullptr && turn.writer->name == name && turn.writer->uid == uid;
  });
}

int Interpreter::Reserved() const {
  std::set<const OpenWriter*> writers;
  for (const OpenTurn& turn : turns_) {
    const OpenWriter* writer = turn.writer.get();
    if (writer == nullptr || writer->fork_id.empty() || !writer->fork_uid.empty()) continue;
    writers.insert(writer);
  }
  return static_cast<int>(writers.size());
}

bool Interpreter::AtLimit() const {
  return static_cast<int>(sessions_.size()) + Reserved() >= harness_.options().max_sessions;
}

bool Interpreter::OverQuota(const Name& name, int64_t pages) {
  const auto& quotas = harness_.options().quota_pages;
  const auto quota = quotas.find(name.first);
  if (quota == quotas.end()) return false;
  return harness_.audit().PinnedPages(name.first, name.second) + pages > quota->second;
}

void Interpreter::AddVersion(ModelSession* session, Tokens tokens, int64_t parent,
                             int64_t first_position) {
  session->head = session->next++;
  session->versions[session->head] = {std::move(tokens), parent, first_position};
  if (static_cast<int>(session->versions.size()) > harness_.options().max_versions) {
    session->versions.erase(session->versions.begin());
  }
  session->last_use = now();
}

bool Interpreter::Run(const Op& op) {
  // No two sessions are used at the same time: which is idle longest is certain.
  harness_.clock().Advance(absl::Milliseconds(1));
  if (Do(op)) ++coverage_.done[op.kind];
  if (what_.empty()) Plant();
  if (what_.empty()) {
    for (const std::string& broken : harness_.Broken()) Expect(false, "invariant", broken);
  }
  if (what_.empty()) CheckModel();
  ++operations_;
  return what_.empty();
}

bool Interpreter::Do(const Op& op) {
  switch (op.kind) {
    case Op::kCreate:
      return Create(op);
    case Op::kAdmit:
      return Admit(op);
    case Op::kCheckout:
      return Checkout(op);
    case Op::kBeside:
      return Beside(op);
    case Op::kEphemeral:
      return Ephemeral(op);
    case Op::kStep:
      return Step(op);
    case Op::kDraw:
      return Draw(op);
    case Op::kPark:
      return Park(op);
    case Op::kCommit:
      return Commit(op);
    case Op::kDrop:
      return Drop(op);
    case Op::kFork:
      return Fork(op);
    case Op::kRollback:
      return Rollback(op);
    case Op::kDelete:
      return Delete(op);
    case Op::kRead:
      return Read(op);
    case Op::kMaintain:
      Maintain();
      return true;
    case Op::kWait:
      harness_.clock().Advance(absl::Seconds(op.a % 8));
      return true;
    case Op::kFault:
      point_ = static_cast<FaultPoint>(op.a % 4);
      countdown_ = 1 + op.b % 4;
      return true;
    case Op::kFailCopy:
      harness_.backend().fail_copy_in = 1;
      return true;
    case Op::kFailStep:
      harness_.backend().fail_forward_in = 1;
      return true;
    case Op::kKinds:
      break;
  }
  return false;
}

void Interpreter::Plant() {
  if (options_.plant != ProgramOptions::kPageOfThirdNode) return;
  for (const Node* node : harness_.audit().ResidentNodes()) {
    if (node->index == 2) harness_.backend().Poison(node->pages[0].id());
  }
}

void Interpreter::CheckModel() {
  size_t versions = 0;
  size_t i = 0;
  for (const auto& [name, session] : sessions_) {
    CheckVersions(name, session);
    versions += session.versions.size();
    // All tokens of all sessions would take too long.
    if (i++ == static_cast<size_t>(operations_) % sessions_.size()) CheckTokens(name, session);
  }
  for (const OpenTurn& turn : turns_) {
    if (turn.branch != nullptr) HOLDS(turn.branch->first_position() == turn.first_position);
  }
  const StoreSnapshot snapshot = store().Snapshot();
  HOLDS(snapshot.sessions == static_cast<int64_t>(sessions_.size()));
  HOLDS(snapshot.versions == static_cast<int64_t>(versions));
}

void Interpreter::CheckVersions(const Name& name, const ModelSession& session) {
  auto info = store().GetSession(name.first, name.second);
  if (!info.ok()) return ExpectOk(info.status(), "GetSession");
  HOLDS(info->uid == session.uid);
  HOLDS(static_cast<int64_t>(info->head) == session.head);
  HOLDS(info->tokens == static_cast<int64_t>(session.tokens().size()));
  HOLDS(info->resident_tokens <= info->tokens);
  HOLDS(info->first_position == session.first_position());
  HOLDS(info->active_turns == Active(name, session.uid));
  auto versions = store().ListVersions(name.first, name.second, {}, 100);
  if (!versions.ok() || versions->size() != session.versions.size()) {
    return Expect(false, "ListVersions", versions.status().ToString());
  }
  size_t i = versions->size();
  for (const auto& [number, version] : session.versions) {
    const VersionInfo& got = (*versions)[--i];
    HOLDS(static_cast<int64_t>(got.number) == number);
    HOLDS(static_cast<int64_t>(got.parent) == version.parent);
    HOLDS(got.tokens == static_cast<int64_t>(version.tokens.size()));
  }
}

void Interpreter::CheckTokens(const Name& name, const ModelSession& session) {
  for (const auto& [number, version] : session.versions) {
    auto slice = store().ReadTokens(name.first, name.second, number, {}, 1 << 20);
    if (!slice.ok()) return ExpectOk(slice.status(), "ReadTokens");
    HOLDS(slice->start == version.first_position);
    HOLDS(slice->tokens == Tokens(version.tokens.begin() + slice->start, version.tokens.end()));
  }
}

void Interpreter::Finish() {
  turns_.clear();
  for (const auto& [name, session] : sessions_) {
    ExpectOk(store().DeleteSession(name.first, name.second, {}, true), "DeleteSession");
  }
  store().Maintain();
  const PageCounts pages = store().Snapshot().pages;
  HOLDS(pages.free + pages.cached == pages.total);
  for (const std::string& broken : harness_.Broken()) Expect(false, "invariant", broken);
}

Coverage Interpreter::coverage() {
  const CountingObserver& seen = harness_.observer();
  coverage_.hits = seen.hits;
  coverage_.copies = seen.copies;
  coverage_.recomputed = seen.recomputed;
  coverage_.conflicts = seen.conflicts;
  coverage_.evicted_window = Get(seen.evicted, base::EvictionCause::kWindow);
  coverage_.evicted_pressure = Get(seen.evicted, base::EvictionCause::kPressure);
  coverage_.evicted_idle = Get(seen.evicted, base::EvictionCause::kIdle) +
                           Get(seen.evicted, base::EvictionCause::kQuota);
  return coverage_;
}

}  // namespace tokend::kv
