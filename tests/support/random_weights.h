#ifndef TOKEND_TESTS_SUPPORT_RANDOM_WEIGHTS_H_
#define TOKEND_TESTS_SUPPORT_RANDOM_WEIGHTS_H_

#include <cstdint>
#include <random>
#include <string>

#include "core/base/dtype.h"

namespace tokend::testing {

// Random weights as on disk: any code in each block, with scales such that the values are finite
// and their standard deviation is about `scale`. `elements` is a multiple of the type's block.
std::string RandomWeights(base::WeightType type, uint64_t elements, float scale,
                          std::mt19937_64& rng);

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_RANDOM_WEIGHTS_H_
