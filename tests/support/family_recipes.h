#ifndef TOKEND_TESTS_SUPPORT_FAMILY_RECIPES_H_
#define TOKEND_TESTS_SUPPORT_FAMILY_RECIPES_H_

#include <string>
#include <vector>

#include "tests/support/random_model.h"

namespace tokend::testing {

struct FamilyRecipe {
  std::string family;  // the file format's name of the architecture
  RandomModelOptions options;
};

// The recipe of every model family with attention and dense feed-forward networks, at
// the sizes of RandomModelOptions: what a backend has to run or to refuse.
std::vector<FamilyRecipe> FamilyRecipes();

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_FAMILY_RECIPES_H_
