#ifndef TOKEND_CORE_OPS_SOFT_CAP_H_
#define TOKEND_CORE_OPS_SOFT_CAP_H_

#include <cmath>

namespace tokend::ops {

// cap * tanh(x / cap): x where it is small, never beyond +-cap (Gemma Team 2024,
// "Gemma 2"). cap 0: x itself.
inline double SoftCap(double cap, double x) { return cap == 0 ? x : cap * std::tanh(x / cap); }

}  // namespace tokend::ops

#endif  // TOKEND_CORE_OPS_SOFT_CAP_H_
