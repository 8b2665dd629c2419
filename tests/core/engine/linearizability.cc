#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/check.h"
#include "tests/core/engine/session_model.h"

namespace tokend::testing {
namespace {

// Sets of sessions, by name.
using Names = uint64_t;

class Search {
 public:
  Search(const SessionModelOptions& options, const std::vector<SessionCall>& calls, int64_t most)
      : calls_(calls), pool_(options), most_(most) {
    for (size_t i = 0; i < calls.size(); ++i) {
      touched_.push_back(Touched(calls[i]));
    }
  }

  // Empty: an order was found.
  std::string Run() {
    if (!Stuck(SessionModel(&pool_, calls_.size()), 0).has_value()) return "";
    std::string text = absl::StrCat(tired_ ? kGaveUp : "no order explains this:", "\n");
    for (size_t i = 0; i < calls_.size(); ++i) {
      absl::StrAppend(&text, stuck_ == static_cast<int>(i) ? "> " : "  ", i, " ",
                      calls_[i].ToString(), "\n");
    }
    return text;
  }

 private:
  const SessionCall& Call(int index) const { return calls_[static_cast<size_t>(index)]; }
  Names TouchedBy(int index) const { return touched_[static_cast<size_t>(index)]; }
  Names Bit(const std::string& name) {
    if (name.empty()) return 0;
    const size_t index = bits_.try_emplace(name, bits_.size()).first->second;
    TOKEND_CHECK(index < 64);
    return Names{1} << index;
  }

  // The sessions that a call may see or change.
  Names Touched(const SessionCall& call) {
    const bool lost_read = call.kind == SessionCall::kGet || call.kind == SessionCall::kRead;
    if (call.lost && lost_read) return 0;
    Names names = Bit(call.session) | Bit(call.fork_name());
    // A fork that its source refuses never looks at the other.
    const bool both = call.lost || call.status.ok() || absl::IsAlreadyExists(call.status);
    return both ? names | Bit(call.new_session) : names;
  }

  // Absent: from this state an order was found. Else the sessions that stand in its
  // way, whatever happens to all others.
  std::optional<Names> Stuck(const SessionModel& model, int steps) {
    const int count = static_cast<int>(calls_.size());
    int first = 0;
    for (int i = 1; i < count; ++i) {
      if (model.Deadline(i, Call(i)) < model.Deadline(first, Call(first))) first = i;
    }
    if (count == 0 || model.Deadline(first, Call(first)) == SessionCall::kNever) {
      return std::nullopt;
    }
    if (steps >= deepest_) {
      deepest_ = steps;
      stuck_ = first;
    }
    const size_t key = std::hash<std::string>()(model.Key());
    if (const auto found = seen_.find(key); found != seen_.end()) return found->second;
    tired_ = tired_ || static_cast<int64_t>(seen_.size()) >= most_;
    if (tired_) return ~Names{0};
    const std::vector<int> candidates = Before(model, first);
    Names conflict = 0;
    for (const int index : candidates) conflict |= TouchedBy(index);
    for (const int index : candidates) {
      for (const SessionModel& next : model.Step(index, Call(index))) {
        const std::optional<Names> others = Stuck(next, steps + 1);
        if (!others.has_value()) return std::nullopt;
        // Another step here would not help.
        if ((*others & TouchedBy(index)) == 0) return seen_[key] = *others;
        conflict |= *others;
      }
    }
    return seen_[key] = conflict;
  }

  // The call whose step is due next, and those that may matter to it: invoked before
  // that, and on its session, or on one that such a call ties to it. What others do
  // can wait until it has taken its step.
  std::vector<int> Before(const SessionModel& model, int first) const {
    const int64_t end = model.Deadline(first, Call(first));
    std::vector<int> left;
    for (int i = 0; i < static_cast<int>(calls_.size()); ++i) {
      if (Call(i).invoked < end && !model.IsDone(i)) left.push_back(i);
    }
    Names names = TouchedBy(first);
    for (Names before = 0; before != names;) {
      before = names;
      for (const int index : left) {
        if ((TouchedBy(index) & names) != 0) names |= TouchedBy(index);
      }
    }
    std::erase_if(left, [&](int index) { return (TouchedBy(index) & names) == 0; });
    std::stable_sort(left.begin(), left.end(), [&](int a, int b) {
      return model.Guess(a, Call(a)) < model.Guess(b, Call(b));
    });
    return left;
  }

  const std::vector<SessionCall>& calls_;
  TokenPool pool_;
  const int64_t most_;
  std::map<std::string, size_t> bits_;
  std::vector<Names> touched_;              // by call
  std::unordered_map<size_t, Names> seen_;  // by state: what stands in the way
  bool tired_ = false;
  int deepest_ = 0;
  int stuck_ = 0;
};

template <typename Value>
void AddIf(const char* name, const std::optional<Value>& value, std::string* text) {
  if (value.has_value()) absl::StrAppend(text, " ", name, "=", *value);
}

std::string TurnText(const SessionCall& call) {
  constexpr const char* kConflicts[] = {"queue", "abort", "fork"};
  constexpr const char* kCommits[] = {"on finish", "partial", "never"};
  std::string text = absl::StrCat(" ", kConflicts[static_cast<int>(call.on_conflict)], ", ",
                                  kCommits[static_cast<int>(call.commit)], ", input ",
                                  absl::StrJoin(call.input, " "), " output ", call.max_output);
  if (!call.keeps.empty()) absl::StrAppend(&text, " stop at ", absl::StrJoin(call.keeps, " "));
  if (call.started.has_value()) {
    absl::StrAppend(&text, " | started on \"", call.started->base_version, "\" at ",
                    call.started->output_position, " ", call.started->fork_name);
  }
  absl::StrAppend(&text, " | said ", absl::StrJoin(call.tokens, " "));
  if (call.finished.has_value()) {
    absl::StrAppend(&text, " | finished ", static_cast<int>(call.finished->reason), " \"",
                    call.finished->version, "\"");
  }
  return text;
}

}  // namespace

std::string SessionCall::ToString() const {
  constexpr const char* kKinds[] = {"create", "delete", "fork", "rollback", "get", "read", "turn"};
  std::string text =
      absl::StrCat("[", invoked, ", ", returned == kNever ? "..." : absl::StrCat(returned), "] ",
                   kKinds[kind], " ", session);
  AddIf("version", version, &text);
  AddIf("expected", expected_version, &text);
  AddIf("position", position, &text);
  if (allow_missing) absl::StrAppend(&text, " allow_missing");
  if (!new_session.empty()) absl::StrAppend(&text, " to ", new_session);
  if (kind == kTurn) absl::StrAppend(&text, TurnText(*this));
  if (lost) return absl::StrCat(text, " -> lost");
  if (!status.ok()) return absl::StrCat(text, " -> ", std::string(status.message()));
  absl::StrAppend(&text, " -> version ", head, ", ", total_tokens, " tokens, ", active_turns,
                  " turns ", uid.substr(0, 4));
  if (kind == kRead) absl::StrAppend(&text, ": ", absl::StrJoin(tokens, " "));
  return text;
}

std::string CheckLinearizable(const SessionModelOptions& options,
                              const std::vector<SessionCall>& calls, int64_t most) {
  return Search(options, calls, most).Run();
}

}  // namespace tokend::testing
