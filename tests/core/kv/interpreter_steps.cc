// Interpreter: steps.
#include <algorithm>
#include <utility>

#include "tests/core/kv/interpreter.h"

namespace tokend::kv {

using base::ErrorReason;
using base::GetErrorReason;

bool Interpreter::Draw(const Op& op) {
  OpenTurn* const turn = TurnOf(op.a);
  if (turn == nullptr || turn->branch == nullptr ||
      turn->tokens.size() > (turn->history > 0 ? 240 : 110)) {
    return false;
  }
  if (turn->branch->computed() < turn->branch->tokens()) return false;
  const Tokens drawn = SomeTokens(1, op.b % 3);
  turn->branch->Append(drawn);
  turn->tokens = Concat(turn->tokens, drawn);
  return true;
}

bool Interpreter::Park(const Op& op) {
  OpenTurn* const turn = TurnOf(op.a);
  if (turn == nullptr || turn->branch == nullptr) return false;
  turn->branch->Park();
  HOLDS(turn->branch->parked());
  HOLDS(turn->branch->computed() == 0);
  HOLDS(turn->branch->tokens() == static_cast<int64_t>(turn->tokens.size()));
  turn->matched = false;
  turn->prepared_end = 0;
  return true;
}

bool Interpreter::Step(const Op& op) {
  std::vector<OpenTurn*> chosen;
  std::vector<ops::StepSequence> sequences;
  Tokens rows;
  std::vector<int32_t> last_rows;
  uint32_t random = static_cast<uint32_t>(op.b);
  for (size_t i = 0; i < turns_.size(); ++i) {
    OpenTurn* const turn = &turns_[i];
    if (turn->branch == nullptr || (op.a >> i & 1) == 0) continue;
    const int64_t at = turn->branch->computed();
    const int64_t left = turn->branch->tokens() - at;
    if (left == 0) continue;
    int64_t count = op.b == 0 ? left : 1 + random % left;
    random = random * 1664525u + 1013904223u;
    random ^= random >> 16;
    const Room room = Prepare(turn, count);
    if (room == Room::kNo && op.c % 2 == 1) continue;
    if (room != Room::kYes) {
      Leave(Take(static_cast<int>(i)));
      return true;
    }
    // A first Prepare may have found rows that need no computing.
    const int64_t start = turn->branch->computed();
    count = std::min(count, turn->branch->step_rows());
    turn->prepared_end = std::max(turn->prepared_end, start + count);
    CheckBound(*turn, turn->prepared_end - start);
    sequences.push_back({.first_row = static_cast<int32_t>(rows.size()),
                         .rows = static_cast<int32_t>(count),
                         .position = start,
                         .layers = turn->branch->layers()});
    turn->branch->ReadTokens(start, start + count, &rows);
    if (start + count > turn->branch->layers().back().attend_begin) {
      last_rows.push_back(static_cast<int32_t>(rows.size()) - 1);
    }
    chosen.push_back(turn);
  }
  if (chosen.empty()) return false;
  const bool told_to_fail = harness_.backend().fail_forward_in == 1;
  auto output =
      harness_.tags().Forward({.tokens = rows, .sequences = sequences, .logit_rows = last_rows});
  if (told_to_fail && GetErrorReason(output.status()) == ErrorReason::kBackendFailed) return true;
  ExpectOk(output.status(), "Forward");
  if (!output.ok()) return true;
  size_t next = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    OpenTurn* const turn = chosen[i];
    const int64_t end = sequences[i].position + sequences[i].rows;
    if (end > sequences[i].layers.back().attend_begin) {
      const std::vector<float> want =
          harness_.Reference(turn->policy, turn->tokens).Logits(end - 1);
      HOLDS(output->logits.subspan(next++ * kVocabulary, kVocabulary) == absl::MakeConstSpan(want));
    }
    turn->branch->Advance(sequences[i].rows);
    HOLDS(turn->branch->computed() >= end);
  }
  return true;
}

Interpreter::Room Interpreter::Prepare(OpenTurn* turn, int64_t count) {
  const int64_t needed = turn->branch->PagesNeeded(turn->branch->computed() + count, count);
  const int64_t obtainable = store().ObtainablePages(turn->principal);
  const bool matched = std::exchange(turn->matched, true);
  const absl::Status status = turn->branch->Prepare(count);
  if (status.ok()) return Room::kYes;
  if (IsFault(status)) return Room::kNo;
  if (GetErrorReason(status) == ErrorReason::kBackendFailed) {
    HOLDS(harness_.tags().problems().empty());
    return Room::kBroken;
  }
  ExpectReason(status, ErrorReason::kKvPoolFull, "Prepare");
  Expect(!matched || needed > obtainable, "a refusal although there is room",
         absl::StrCat(needed, " pages needed, ", obtainable, " obtainable"));
  ++coverage_.refused;
  return Room::kNo;
}

// Pages of a windowed layer during a step: sinks, window, the step's own, and one
// more for where each of them starts within a page.
void Interpreter::CheckBound(const OpenTurn& turn, int64_t count) {
  const int page = harness_.options().page_tokens;
  const auto pages = [&](int64_t tokens) { return (tokens + page - 1) / page; };
  const RetentionPolicy& policy = turn.branch->retention();
  const bool heavy = policy.kind == RetentionPolicy::Kind::kHeavyHitters;
  const int64_t heavy_most = heavy ? policy.heavy_hitters().MostPages(page) : 0;
  for (const ops::LayerKv& layer : turn.branch->layers()) {
    if (heavy) HOLDS(layer.page_count <= heavy_most);
    if (layer.mask.window_tokens == 0) continue;
    const int64_t most =
        pages(layer.mask.sink_tokens) + pages(layer.mask.window_tokens) + 1 + pages(count) + 1;
    Expect(layer.page_count <= most, "a window's pages exceed their bound",
           absl::StrCat(layer.page_count, " > ", most));
  }
}

}  // namespace tokend::kv
