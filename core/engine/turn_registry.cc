#include "core/engine/turn_registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/engine/errors.h"

namespace tokend::engine {
namespace {

// Some 300 bytes each.
constexpr size_t kMaxEnded = 65536;

}  // namespace

std::string TurnKey(absl::string_view principal, absl::string_view request_id) {
  return absl::StrCat(principal.size(), ":", principal, request_id);
}

absl::Status TurnRegistry::Reserve(const std::string& key, absl::string_view request_id,
                                   const TurnSink* sink) {
  base::MutexLock lock(&mu_);
  if (drain_deadline_.has_value()) return Draining();
  if (active_.contains(key)) return RequestIdRuns(request_id);
  // Turns that wait for their readers may be beside max_running others.
  if (counts_.waiting + counts_.running >= limits_.max_queued + limits_.max_running) {
    return QueueFull(counts_.waiting, RetryAfter());
  }
  Active active;
  active.sink = sink;
  active_.emplace(key, std::move(active));
  by_sink_.emplace(sink, key);
  ++counts_.waiting;
  ++open_;
  return absl::OkStatus();
}

void TurnRegistry::Abandon(const std::string& key) {
  std::vector<Command> deferred;
  {
    base::MutexLock lock(&mu_);
    deferred = std::move(active_.at(key).deferred);
    Erase(key);
  }
  OnToldEnd();
  for (Command& command : deferred) {
    auto* stop = std::get_if<StopCommand>(&command);
    if (stop != nullptr) stop->done(NoSuchTurn(stop->request_id));
  }
}

absl::Status TurnRegistry::Push(std::unique_ptr<Turn> turn) {
  const std::string key = turn->key;
  {
    base::MutexLock lock(&mu_);
    if (!drain_deadline_.has_value()) {
      Active& active = active_.at(key);
      active.pushed = true;
      ended_.erase(key);  // the name is another turn's now
      commands_.push_back(SubmitCommand{std::move(turn)});
      for (Command& command : active.deferred) commands_.push_back(std::move(command));
      active.deferred.clear();
      changed_.Signal();
      return absl::OkStatus();
    }
  }
  turn.reset();
  Abandon(key);
  return Draining();
}

void TurnRegistry::AddCommand(const std::string& key, Command command) {
  Active& active = active_.at(key);
  if (!active.pushed) {
    active.deferred.push_back(std::move(command));
    return;
  }
  commands_.push_back(std::move(command));
  changed_.Signal();
}

void TurnRegistry::Cancel(const TurnSink* sink) {
  base::MutexLock lock(&mu_);
  const auto found = by_sink_.find(sink);
  if (found == by_sink_.end()) return;
  AddCommand(found->second, CancelCommand{found->second});
}

void TurnRegistry::Stop(StopCommand command, absl::Duration now) {
  {
    base::MutexLock lock(&mu_);
    if (active_.contains(command.key)) {
      const std::string key = command.key;
      AddCommand(key, std::move(command));
      return;
    }
  }
  const std::optional<Finished> ended = FindEnded(command.key, now);
  if (ended.has_value()) {
    command.done(*ended);
  } else {
    command.done(NoSuchTurn(command.request_id));
  }
}

void TurnRegistry::BeginDrain(absl::Duration deadline) {
  base::MutexLock lock(&mu_);
  drain_deadline_ = std::min(deadline, drain_deadline_.value_or(deadline));
  woken_ = true;
  changed_.Signal();
}

std::optional<absl::Duration> TurnRegistry::drain_deadline() {
  base::MutexLock lock(&mu_);
  return drain_deadline_;
}

void TurnRegistry::WaitUntilEmpty() {
  base::MutexLock lock(&mu_);
  while (open_ > 0) emptied_.Wait(&mu_);
}

TurnRegistry::Counts TurnRegistry::counts() {
  base::MutexLock lock(&mu_);
  return counts_;
}

void TurnRegistry::Wake() {
  base::MutexLock lock(&mu_);
  woken_ = true;
  changed_.Signal();
}

std::vector<Command> TurnRegistry::TakeCommands() {
  base::MutexLock lock(&mu_);
  return std::exchange(commands_, {});
}

void TurnRegistry::Wait(absl::Duration timeout) {
  base::MutexLock lock(&mu_);
  if (commands_.empty() && !woken_ && timeout > absl::ZeroDuration()) {
    changed_.WaitFor(&mu_, timeout);
  }
  woken_ = false;
}

void TurnRegistry::OnStarted(const std::string& key) {
  base::MutexLock lock(&mu_);
  active_.at(key).running = true;
  --counts_.waiting;
  ++counts_.running;
}

void TurnRegistry::OnEnded(const std::string& key, const std::optional<Finished>& finished,
                           absl::Duration ran, absl::Duration now) {
  base::MutexLock lock(&mu_);
  if (active_.at(key).running) typical_run_ += (ran - typical_run_) / 8;
  Erase(key);
  ForgetOld(now);
  if (!finished.has_value()) return;
  ended_[key] = {*finished, now};
  ended_order_.emplace_back(now, key);
}

void TurnRegistry::Erase(const std::string& key) {
  const auto found = active_.find(key);
  TOKEND_CHECK(found != active_.end());
  --(found->second.running ? counts_.running : counts_.waiting);
  by_sink_.erase(found->second.sink);
  active_.erase(found);
}

void TurnRegistry::OnToldEnd() {
  base::MutexLock lock(&mu_);
  if (--open_ == 0) emptied_.SignalAll();
}

std::optional<Finished> TurnRegistry::FindEnded(const std::string& key, absl::Duration now) {
  base::MutexLock lock(&mu_);
  ForgetOld(now);
  const auto found = ended_.find(key);
  if (found == ended_.end()) return std::nullopt;
  return found->second.finished;
}

void TurnRegistry::ForgetOld(absl::Duration now) {
  while (!ended_order_.empty() && (ended_order_.front().first + limits_.replay_window < now ||
                                   ended_order_.size() > kMaxEnded)) {
    const auto& [at, key] = ended_order_.front();
    const auto found = ended_.find(key);
    if (found != ended_.end() && found->second.at == at) ended_.erase(found);
    ended_order_.pop_front();
  }
}

absl::Duration TurnRegistry::RetryAfter() const {
  const absl::Duration wait =
      typical_run_ * (counts_.waiting + 1) / std::max(1, limits_.max_running);
  return std::clamp(wait, absl::Milliseconds(100), absl::Minutes(1));
}

}  // namespace tokend::engine
