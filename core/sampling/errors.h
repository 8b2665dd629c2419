#ifndef TOKEND_CORE_SAMPLING_ERRORS_H_
#define TOKEND_CORE_SAMPLING_ERRORS_H_

#include <cstdint>

#include "absl/status/status.h"

namespace tokend::sampling {

// INTERNAL, kRequestFailed: the model's logit of `token` is NaN or infinite.
absl::Status NonFiniteLogit(int32_t token);

// INVALID_ARGUMENT, kInvalidField: logit_bias forbids every token.
absl::Status EveryTokenForbidden();

}  // namespace tokend::sampling

#endif  // TOKEND_CORE_SAMPLING_ERRORS_H_
