// What an architecture builds its plan with: the keys and tensors that families
// share, with their defaults and checks.
#ifndef TOKEND_CORE_MODEL_PLAN_READER_H_
#define TOKEND_CORE_MODEL_PLAN_READER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/gguf/file.h"
#include "core/model/tensor_reader.h"
#include "core/ops/plan.h"

namespace tokend::model {

class BlockReader;

struct RopeOptions {
  ops::RopePairing pairing = ops::RopePairing::kInterleaved;
  absl::string_view base_key = "rope.freq_base";  // 10000 where the file has none
  bool scaled = true;  // by the file's rope.scaling keys and tensors of factors
};

// Keys are given without the architecture's name in front. Errors: those of
// gguf/errors.h.
class PlanReader {
 public:
  // `served_tokens`: the context that the operator asks for; 0: the file's own. All
  // that is pointed to outlives the reader.
  PlanReader(const gguf::File& file, absl::string_view architecture, int64_t served_tokens,
             TensorReader* tensors, ops::ModelPlan* plan,
             std::map<std::string, std::string>* attributes)
      : file_(file),
        architecture_(architecture),
        served_tokens_(served_tokens),
        tensors_(tensors),
        plan_(plan),
        attributes_(attributes) {}

  const gguf::File& file() const { return file_; }
  TensorReader& tensors() const { return *tensors_; }
  ops::ModelPlan& plan() const { return *plan_; }
  std::string Key(absl::string_view name) const;  // "llama.block_count"
  bool Has(absl::string_view name) const { return file_.Has(Key(name)); }

  // A count from the file that sizes something: at least 1, and small enough that
  // products of two stay far from overflow.
  absl::StatusOr<int64_t> GetCount(absl::string_view name) const;
  absl::StatusOr<int64_t> GetCountOr(absl::string_view name, int64_t fallback) const;
  // Above 0.
  absl::StatusOr<float> GetPositive(absl::string_view name) const;
  absl::StatusOr<float> GetPositiveOr(absl::string_view name, float fallback) const;
  // "attention.sliding_window"; 0: none.
  absl::StatusOr<int64_t> GetWindow() const;
  absl::Status Damaged(absl::string_view name, absl::string_view problem) const;

  // Sizes, the norms' epsilon, 1 / sqrt(head_dim); as many empty layers as blocks.
  absl::Status ReadShapes(ops::NormKind norm_kind);
  // One more table of plan().ropes. After ReadShapes, as all that follows.
  absl::Status AddRope(const RopeOptions& options);
  absl::Status ReadEmbedding();  // "token_embd", which also tells the vocabulary's size
  absl::Status ForBlocks(absl::FunctionRef<absl::Status(const BlockReader& block)> read);
  // "output_norm" and "output"; where the file has no "output", the embedding's matrix.
  absl::Status ReadOutput(Bias bias = Bias::kNone);
  // Weight and, of a layer norm, bias.
  absl::Status ReadNorm(absl::string_view prefix, ops::Norm* norm);

 private:
  absl::Status ReadHeads();
  absl::Status CheckPositive(absl::string_view name, float value) const;
  // Divisors of the frequencies [dims / 2].
  absl::StatusOr<ops::Vector> GetRopeFactors(absl::string_view tensor, int64_t dims);
  // Those that the file has, or nullptr.
  absl::StatusOr<ops::Vector> ReadRopeFactors(int64_t dims, ops::Rope* rope);
  absl::Status ScaleRope(double base, ops::Rope* rope);
  absl::Status ScaleYarn(double base, double factor, ops::Rope* rope);

  const gguf::File& file_;
  const absl::string_view architecture_;
  const int64_t served_tokens_;
  TensorReader* const tensors_;
  ops::ModelPlan* const plan_;
  std::map<std::string, std::string>* const attributes_;
};

// The tensors of one block, "blk.N.".
class BlockReader {
 public:
  BlockReader(PlanReader* reader, size_t index) : reader_(*reader), index_(index) {}

  size_t index() const { return index_; }
  const ops::ModelPlan& plan() const { return reader_.plan(); }
  ops::LayerPlan& layer() const { return reader_.plan().layers[index_]; }
  bool Has(absl::string_view tensor) const;

  absl::Status ReadNorm(absl::string_view name, ops::Norm* norm) const;
  // "attn_norm" and "ffn_norm".
  absl::Status ReadInputNorms() const;
  // "post_attention_norm" and "post_ffw_norm".
  absl::Status ReadPostNorms() const;
  // "attn_q_norm" and "attn_k_norm", of the sizes that plan().qk_norm says.
  absl::Status ReadQkNorms() const;
  // "attn_q", "attn_k", "attn_v", or one "attn_qkv" with their rows in that order where
  // the file has that; "attn_output".
  absl::Status ReadAttention(Bias qkv_bias, Bias output_bias) const;
  // "ffn_gate", "ffn_up", "ffn_down".
  absl::Status ReadGatedFfn(Bias bias) const;
  // The same, or without "ffn_gate" an "ffn_up" with the gate's rows before its own.
  absl::Status ReadFusedFfn() const;
  // "ffn_up", "ffn_down".
  absl::Status ReadPlainFfn(Bias bias) const;

 private:
  std::string Name(absl::string_view tensor) const;
  absl::Status ReadLinear(absl::string_view name, int64_t rows, int64_t cols, Bias bias,
                          ops::Linear* linear) const;

  PlanReader& reader_;
  const size_t index_;
};

}  // namespace tokend::model

#endif  // TOKEND_CORE_MODEL_PLAN_READER_H_
