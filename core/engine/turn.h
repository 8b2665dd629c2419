#ifndef TOKEND_CORE_ENGINE_TURN_H_
#define TOKEND_CORE_ENGINE_TURN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"
#include "core/engine/input.h"
#include "core/engine/output_pipeline.h"
#include "core/engine/phase_timer.h"
#include "core/engine/request.h"
#include "core/kv/branch.h"
#include "core/kv/session_store.h"
#include "core/sampling/penalty_state.h"

namespace tokend::engine {

// Names a turn among those of all callers.
std::string TurnKey(absl::string_view principal, absl::string_view request_id);

// What the base and the input leave for the output.
struct OutputLimit {
  int64_t tokens = 0;
  kv::FinishReason reason = kv::FinishReason::kLength;  // when so many were drawn
};

// A turn from Submit to its end. Belongs to the engine thread once pushed.
struct Turn {
  Turn(Request given, std::shared_ptr<TurnSink> to, const tokenizer::Tokenizer* tokenizer,
       absl::Duration admitted)
      : key(TurnKey(given.principal, given.id)),
        sink(std::move(to)),
        timer(admitted),
        penalties(given.sampling),
        output(tokenizer, given.stop.strings),
        request(std::move(given)) {}

  const std::string key;
  const std::shared_ptr<TurnSink> sink;
  PhaseTimer timer;
  sampling::PenaltyState penalties;
  OutputPipeline output;
  Request request;                     // its input is empty once it is in `prepared`
  PreparedInput prepared;              // until the turn is opened
  std::unique_ptr<kv::Writer> writer;  // nullptr: no session

  // --- From when it was opened: the base is fixed, the input appended. ---
  std::unique_ptr<kv::Branch> branch;         // nullptr before, and after the end
  std::vector<kv::ChatMessage> conversation;  // of a chat, the open reply last
  bool is_chat = false;
  bool reply_opened = false;
  Usage usage;
  OutputLimit limit;

  // --- From when it was started. ---
  std::vector<int32_t> output_tokens;
  int64_t prefilled = 0;     // positions below it are in `usage`, computed or cached
  bool prompt_told = false;  // Observer::OnPrompt
  int64_t safe_until = 0;    // tokens of the branch; it is not parked before
  int64_t pages_to_fit = 0;  // while parked: obtainable pages below which it cannot resume
  // One of max_running turns that steps are made of; not while its reader is slow, and
  // until there is a place again.
  bool has_place = false;
  bool ended = false;

  // Position of the first output token.
  int64_t output_position() const { return usage.base_tokens + usage.input_tokens; }
  bool decoding() const { return !output_tokens.empty(); }
  // Its branch was parked: it waits for memory.
  bool parked() const { return branch != nullptr && branch->parked(); }
  // It waits for its reader, or then for its place, and keeps its pages.
  bool paused() const { return !parked() && timer.phase() == PhaseTimer::kParked; }
  // Holds pages and may run, or would if its reader let it.
  bool awake() const { return !ended && !parked(); }
  int64_t rows_left() const { return branch->tokens() - branch->computed(); }
  int32_t written() const { return output.sent_tokens(); }
};

}  // namespace tokend::engine

#endif  // TOKEND_CORE_ENGINE_TURN_H_
