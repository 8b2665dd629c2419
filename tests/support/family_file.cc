#include "tests/support/family_file.h"

#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/ops/dequantize.h"

namespace tokend::testing {
namespace {

constexpr int64_t kWindow = 20;
constexpr int64_t kOriginalContext = 64;

bool IsIn(const std::string& family, const std::set<std::string>& families) {
  return families.contains(family);
}

RandomModelOptions Options(const FamilyRecipe& recipe, const FamilyShape& shape) {
  RandomModelOptions options = recipe.options;
  const bool grouped = options.kv_heads != options.heads;
  const bool partial = options.rope_dims != options.head_dim;
  options.heads = shape.heads;
  options.kv_heads = grouped ? shape.kv_heads : shape.heads;
  options.head_dim = shape.head_dim;
  if (!partial) options.rope_dims = shape.head_dim;
  options.tied = shape.tied && !options.output_bias;
  options.fused = options.fused && shape.fused;
  if (recipe.family == "smollm3") {
    options.layers = 5;
    options.plain_period = 4;
  }
  return options;
}

double LongFactor(size_t pair) { return 1 + 0.25 * static_cast<double>(pair); }

}  // namespace

FamilyFile::FamilyFile(const FamilyRecipe& recipe, const FamilyShape& shape)
    : recipe_{recipe.family, Options(recipe, shape)},
      model_(std::make_unique<RandomModel>(recipe_.options)),
      plan_(model_->plan()),
      global_period_(shape.global_period) {
  Adapt(shape);
}

// Of what a recipe leaves open or has at another value.
void FamilyFile::Adapt(const FamilyShape& shape) {
  const std::string& family = recipe_.family;
  plan_.norm_epsilon = shape.epsilon;
  for (size_t table = 0; table < plan_.ropes.size(); ++table) {
    ops::Rope& rope = plan_.ropes[table];
    rope_bases_.push_back(static_cast<float>(table == 0 ? shape.rope_base : shape.rope_base / 20));
    rope.magnitude = static_cast<float>(rope.magnitude);
    for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
      rope.inverse_frequencies[i] =
          std::pow(rope_bases_.back(), -2.0 * static_cast<double>(i) / rope.dims);
      if (family == "phi3") rope.inverse_frequencies[i] /= LongFactor(i);
    }
  }
  if (IsIn(family, {"gemma2", "gemma3"})) plan_.embedding_scale = std::sqrt(96.0f);
  if (family == "granite") plan_.attention_scale = 0.3f;
  for (size_t i = 0; i < plan_.layers.size(); ++i) {
    ops::LayerPlan& layer = plan_.layers[i];
    if (family == "phi3" || (family == "gemma2" && i % 2 == 0)) layer.local_tokens = kWindow;
    if (family == "gemma3") {
      const bool local = global_period_ > 0 ? (i + 1) % global_period_ != 0 : i % 2 == 1;
      layer.local_tokens = local ? kWindow : 0;
      layer.rope = local ? 1 : 0;
    }
    if (IsIn(family, {"gpt2", "starcoder2", "gptneox", "phi2"})) continue;
    layer.attention_output.bias = layer.gate.bias = layer.up.bias = layer.down.bias = nullptr;
  }
}

void FamilyFile::AddRopeKeys(GgufWriter* writer) const {
  if (plan_.ropes.empty()) return;
  const ops::Rope& rope = plan_.ropes[0];
  if (rope.dims != plan_.head_dim) {
    writer->U32(Key("rope.dimension_count"), static_cast<uint32_t>(rope.dims));
  }
  if (rope_bases_[0] != 10000) writer->F32(Key("rope.freq_base"), rope_bases_[0]);
  if (plan_.ropes.size() > 1) writer->F32(Key("rope.freq_base_swa"), rope_bases_[1]);
  if (recipe_.family == "phi3") {
    writer->U32(Key("rope.scaling.original_context_length"), kOriginalContext);
    writer->F32(Key("rope.scaling.attn_factor"), static_cast<float>(rope.magnitude));
  }
}

void FamilyFile::AddScaleKeys(GgufWriter* writer) const {
  if (plan_.attention_soft_cap != 0) {
    writer->F32(Key("attn_logit_softcapping"), plan_.attention_soft_cap);
  }
  if (plan_.logit_soft_cap != 0) writer->F32(Key("final_logit_softcapping"), plan_.logit_soft_cap);
  if (recipe_.family == "granite") {
    writer->F32(Key("attention.scale"), plan_.attention_scale)
        .F32(Key("embedding_scale"), plan_.embedding_scale)
        .F32(Key("residual_scale"), plan_.residual_scale)
        .F32(Key("logit_scale"), 1 / plan_.logit_scale);
  }
  if (IsIn(recipe_.family, {"phi3", "gemma2", "gemma3"})) {
    writer->U32(Key("attention.sliding_window"), kWindow);
  }
  if (recipe_.family == "gemma3" && global_period_ > 0) {
    writer->U32(Key("attention.sliding_window_pattern"), static_cast<uint32_t>(global_period_));
  } else if (recipe_.family == "gemma3") {
    std::string local;
    for (const ops::LayerPlan& layer : plan_.layers) local.push_back(layer.local_tokens > 0);
    writer->Raw(Key("attention.sliding_window_pattern"),
                static_cast<uint32_t>(gguf::ValueType::kArray),
                absl::StrCat(Bytes(static_cast<uint32_t>(gguf::ValueType::kBool)),
                             Bytes<uint64_t>(local.size()), local));
  }
}

void FamilyFile::AddKeys(GgufWriter* writer) const {
  const auto count = [&](const std::string& name, int64_t value) {
    writer->U32(Key(name), static_cast<uint32_t>(value));
  };
  writer->String("general.architecture", recipe_.family);
  count("block_count", static_cast<int64_t>(plan_.layers.size()));
  count("context_length", plan_.context_tokens);
  count("embedding_length", plan_.width);
  count("feed_forward_length", plan_.ffn_width);
  count("attention.head_count", plan_.heads);
  if (plan_.kv_heads != plan_.heads) count("attention.head_count_kv", plan_.kv_heads);
  if (plan_.head_dim * plan_.heads != plan_.width) {
    count("attention.key_length", plan_.head_dim);
    count("attention.value_length", plan_.head_dim);
  }
  const bool rms = plan_.norm_kind == ops::NormKind::kRms;
  writer->F32(Key(rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"),
              plan_.norm_epsilon);
  AddRopeKeys(writer);
  AddScaleKeys(writer);
}

void FamilyFile::AddTensor(const std::string& name, const ops::Matrix& matrix, GgufWriter* writer) {
  tensors_.push_back(name);
  if (name == left_out_) return;
  const std::vector<uint64_t> shape = {static_cast<uint64_t>(matrix.cols),
                                       static_cast<uint64_t>(matrix.rows)};
  writer->Tensor(name, shape, matrix.type,
                 absl::string_view(reinterpret_cast<const char*>(matrix.data),
                                   static_cast<size_t>(ops::RowBytes(matrix) * matrix.rows)));
}

void FamilyFile::AddVector(const std::string& name, ops::Vector vector, int64_t size,
                           GgufWriter* writer) {
  if (vector == nullptr) return;
  tensors_.push_back(name);
  if (name == left_out_) return;
  const std::vector<uint64_t> shape = {static_cast<uint64_t>(size)};
  writer->Tensor(name, shape, base::WeightType::kF32,
                 absl::string_view(reinterpret_cast<const char*>(vector),
                                   static_cast<size_t>(size) * sizeof(float)));
}

// `rows`: of all that is fused, and lies behind the linear's own rows.
void FamilyFile::AddLinear(const std::string& name, const ops::Linear& linear, int64_t rows,
                           GgufWriter* writer) {
  ops::Matrix matrix = linear.weight;
  matrix.rows = rows;
  AddTensor(name + ".weight", matrix, writer);
  AddVector(name + ".bias", linear.bias, rows, writer);
}

void FamilyFile::AddNorm(const std::string& name, const ops::Norm& norm, GgufWriter* writer) {
  AddVector(name + ".weight", norm.weight, plan_.width, writer);
  AddVector(name + ".bias", norm.bias, plan_.width, writer);
}

void FamilyFile::AddBlock(size_t index, GgufWriter* writer) {
  const ops::LayerPlan& layer = plan_.layers[index];
  const auto name = [&](const char* tensor) { return absl::StrCat("blk.", index, ".", tensor); };
  const int64_t query = layer.query.weight.rows, kv = layer.key.weight.rows;
  const int64_t ffn = plan_.ffn_width;
  const bool fused = recipe_.options.fused;
  const bool whole = plan_.qk_norm == ops::QkNorm::kVector;
  AddNorm(name("attn_norm"), layer.attention_norm, writer);
  AddLinear(name(fused ? "attn_qkv" : "attn_q"), layer.query, fused ? query + 2 * kv : query,
            writer);
  if (!fused) AddLinear(name("attn_k"), layer.key, kv, writer);
  if (!fused) AddLinear(name("attn_v"), layer.value, kv, writer);
  AddVector(name("attn_q_norm.weight"), layer.query_norm, whole ? query : plan_.head_dim, writer);
  AddVector(name("attn_k_norm.weight"), layer.key_norm, whole ? kv : plan_.head_dim, writer);
  AddLinear(name("attn_output"), layer.attention_output, plan_.width, writer);
  AddNorm(name("post_attention_norm"), layer.post_attention_norm, writer);
  AddNorm(name("ffn_norm"), layer.ffn_norm, writer);
  const bool fused_gate = fused && layer.gate.present();
  if (layer.gate.present() && !fused) AddLinear(name("ffn_gate"), layer.gate, ffn, writer);
  AddLinear(name("ffn_up"), fused_gate ? layer.gate : layer.up, fused_gate ? 2 * ffn : ffn, writer);
  AddLinear(name("ffn_down"), layer.down, plan_.width, writer);
  AddNorm(name("post_ffw_norm"), layer.post_ffn_norm, writer);
}

std::string FamilyFile::Build(const std::string& left_out) {
  left_out_ = left_out;
  tensors_.clear();
  GgufWriter writer;
  AddKeys(&writer);
  AddTensor("token_embd.weight", plan_.embedding, &writer);
  if (plan_.position_embedding.present()) {
    AddTensor("position_embd.weight", plan_.position_embedding, &writer);
  }
  if (recipe_.family == "phi3") {
    std::vector<float> above, below;
    for (size_t i = 0; i < plan_.ropes[0].inverse_frequencies.size(); ++i) {
      above.push_back(static_cast<float>(LongFactor(i)));
      below.push_back(1.5f);
    }
    const auto pairs = static_cast<int64_t>(above.size());
    AddVector("rope_factors_long.weight", above.data(), pairs, &writer);
    AddVector("rope_factors_short.weight", below.data(), pairs, &writer);
  }
  for (size_t i = 0; i < plan_.layers.size(); ++i) AddBlock(i, &writer);
  AddNorm("output_norm", plan_.output_norm, &writer);
  if (!recipe_.options.tied) {
    AddLinear("output", plan_.output, plan_.vocabulary_size, &writer);
  }
  return writer.Build();
}

}  // namespace tokend::testing
