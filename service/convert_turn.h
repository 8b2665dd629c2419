// A turn on the wire becomes an engine::Request: every field checked, every
// default resolved.
#ifndef TOKEND_SERVICE_CONVERT_TURN_H_
#define TOKEND_SERVICE_CONVERT_TURN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/engine/request.h"
#include "core/ops/sampling_params.h"
#include "tokend/v1/generation.pb.h"

namespace tokend::service {

// What the model and the settings say about a turn.
struct TurnRules {
  int64_t context_tokens = 0;
  int32_t layers = 0;
  int32_t vocabulary_size = 0;
  ops::SamplingParams default_sampling;
  kv::SessionSpec default_session;  // of a session made by allow_missing
};

// INVALID_ARGUMENT naming all bad fields; FAILED_PRECONDITION,
// FEATURE_UNAVAILABLE. Draws request id and seed where none is given. The caller
// adds the principal and the deadline. Unknown fields are not looked for.
absl::StatusOr<engine::Request> ConvertTurn(const v1::Turn& turn, const TurnRules& rules);

}  // namespace tokend::service

#endif  // TOKEND_SERVICE_CONVERT_TURN_H_
