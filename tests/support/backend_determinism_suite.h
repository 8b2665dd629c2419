// What every backend promises of determinism, as one typed suite. A Setup has
//   using Rig: a BackendRig, made of (const RandomModel&, Options(), pages)
//   static Options(), RandomModelOptions Shape(), std::string Name()
//   static std::vector<std::vector<int64_t>> Cuts() of kTokens tokens
//   kTokens, kNeighbourTokens
#ifndef TOKEND_TESTS_SUPPORT_BACKEND_DETERMINISM_SUITE_H_
#define TOKEND_TESTS_SUPPORT_BACKEND_DETERMINISM_SUITE_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/dtype.h"
#include "gtest/gtest.h"
#include "tests/support/backend_checks.h"
#include "tests/support/random_model.h"

namespace tokend::testing {

template <typename Setup>
class BackendDeterminismTest : public ::testing::Test {
 protected:
  using Rig = typename Setup::Rig;
  const RandomModel model_{Setup::Shape()};
};
TYPED_TEST_SUITE_P(BackendDeterminismTest);

TYPED_TEST_P(BackendDeterminismTest, ChunksDoNotChangeABit) {
  typename TypeParam::Rig rig(this->model_, TypeParam::Options(), 800);
  CheckChunks(&rig, this->model_, TypeParam::kTokens, TypeParam::Cuts());
}

TYPED_TEST_P(BackendDeterminismTest, NeighboursDoNotChangeABit) {
  typename TypeParam::Rig rig(this->model_, TypeParam::Options(), 3000);
  for (const int others : {1, 3, 31}) {
    CheckNeighbours(&rig, this->model_, TypeParam::kNeighbourTokens, others);
  }
}

TYPED_TEST_P(BackendDeterminismTest, CopiedPagesDoNotChangeABit) {
  typename TypeParam::Rig rig(this->model_, TypeParam::Options(), 800);
  CheckCopiedPages(&rig, this->model_);
}

REGISTER_TYPED_TEST_SUITE_P(BackendDeterminismTest, ChunksDoNotChangeABit,
                            NeighboursDoNotChangeABit, CopiedPagesDoNotChangeABit);

// Names of types are Setup::Name().
struct SetupNames {
  template <typename Setup>
  static std::string GetName(int) {
    return Setup::Name();
  }
};

inline std::string SetupName(base::Activations activations, base::KvDtype kv_dtype,
                             int page_tokens) {
  return absl::StrCat(base::ActivationsName(activations), "_kv_", base::KvDtypeName(kv_dtype),
                      "_pages_of_", page_tokens);
}

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_BACKEND_DETERMINISM_SUITE_H_
