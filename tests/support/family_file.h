#ifndef TOKEND_TESTS_SUPPORT_FAMILY_FILE_H_
#define TOKEND_TESTS_SUPPORT_FAMILY_FILE_H_

#include <memory>
#include <string>
#include <vector>

#include "core/ops/plan.h"
#include "core/ops/step.h"
#include "tests/support/family_recipes.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/random_model.h"

namespace tokend::testing {

// What families' members differ in.
struct FamilyShape {
  int heads = 6;
  int kv_heads = 2;   // as many as heads where the family has no groups
  int head_dim = 16;  // the width is 96
  double rope_base = 10000;
  float epsilon = 1e-5f;
  bool tied = true;   // where the family allows it
  bool fused = true;  // where its recipe says so
  // Of gemma3: each so manieth layer is global, and the file says the period; 0: every
  // other one is local, and the file says it of each.
  size_t global_period = 0;
};

// A random model of a family, as its files hold it, and the plan that such a file means:
// said by the recipe, not by what reads files.
class FamilyFile {
 public:
  FamilyFile(const FamilyRecipe& recipe, const FamilyShape& shape);

  const ops::ModelPlan& plan() const { return plan_; }
  const std::vector<std::string>& tensors() const { return tensors_; }
  // The file without one of its tensors; "": whole.
  std::string Build(const std::string& left_out = "");

 private:
  void Adapt(const FamilyShape& shape);
  void AddKeys(GgufWriter* writer) const;
  void AddRopeKeys(GgufWriter* writer) const;
  void AddScaleKeys(GgufWriter* writer) const;
  void AddTensor(const std::string& name, const ops::Matrix& matrix, GgufWriter* writer);
  void AddVector(const std::string& name, ops::Vector vector, int64_t size, GgufWriter* writer);
  void AddLinear(const std::string& name, const ops::Linear& linear, int64_t rows,
                 GgufWriter* writer);
  void AddNorm(const std::string& name, const ops::Norm& norm, GgufWriter* writer);
  void AddBlock(size_t index, GgufWriter* writer);
  std::string Key(const std::string& name) const { return recipe_.family + "." + name; }

  FamilyRecipe recipe_;
  std::unique_ptr<const RandomModel> model_;
  ops::ModelPlan plan_;
  std::vector<float> rope_bases_;
  const size_t global_period_;
  std::vector<std::string> tensors_;  // as of the latest Build
  std::string left_out_;
};

}  // namespace tokend::testing

#endif  // TOKEND_TESTS_SUPPORT_FAMILY_FILE_H_
