#include "cuda_kernels/backend/forward_pass.h"

#include "core/base/status_macros.h"
#include "cuda_kernels/kernels/embedding.h"
#include "cuda_kernels/kernels/norm.h"
#include "cuda_kernels/kernels/sampling.h"

namespace tokend::cuda {
namespace {

MatmulSegment Segment(const DeviceLinear& linear, int output_offset = 0) {
  MatmulSegment segment;
  segment.matrix = linear.weight;
  segment.bias = linear.bias;
  segment.up_bias = linear.up_bias;
  segment.output_offset = output_offset;
  return segment;
}

}  // namespace

absl::Status ForwardPass::Multiply(const Matmul& matmul) const {
  return RunMatmul(matmul, parts_.device, parts_.stream->get());
}

absl::StatusOr<MatmulInput> ForwardPass::Normed(const RowNorm& norm, int rows, bool own_kernel,
                                                Pending* pending) const {
  const Workspace& work = *parts_.workspace;
  MatmulInput input;
  if (!own_kernel && pending->y == nullptr && norm.weight != nullptr && rows <= kMaxNormedRows &&
      plan().width % 4 == 0) {
    input.residual = work.x;
    input.residual_stride = plan().width;
    input.norm = norm;
    input.pair = pair();
    return input;
  }
  NormRowsParams params;
  params.rows = rows;
  params.width = static_cast<int>(plan().width);
  params.x = work.x;
  params.x_stride = plan().width;
  params.y = pending->y;
  params.y_stride = plan().width;
  params.post = pending->post;
  params.scale = pending->scale;
  params.norm = norm;
  params.out = work.normed;
  params.saturations = work.saturations;
  TOKEND_RETURN_IF_ERROR(NormRows(params, parts_.stream->get()));
  *pending = {};
  input.half = work.normed;
  return input;
}

absl::Status ForwardPass::AddToStream(const DeviceLinear& linear, const HalfRows& input,
                                      const RowNorm& post, int rows, Pending* pending) const {
  const Workspace& work = *parts_.workspace;
  Matmul matmul;
  matmul.rows = rows;
  matmul.input.half = input;
  matmul.segments[0] = Segment(linear);
  matmul.saturations = work.saturations;
  matmul.output.out_stride = plan().width;
  if (post.weight != nullptr) {
    matmul.output.epilogue = MatmulEpilogue::kStore;
    matmul.output.out = work.y;
    *pending = {work.y, post, plan().residual_scale};
  } else {
    matmul.output.epilogue = MatmulEpilogue::kAdd;
    matmul.output.out = work.x;
    matmul.output.scale = plan().residual_scale;
  }
  return Multiply(matmul);
}

absl::Status ForwardPass::RunStart(const PassShape& shape) const {
  const Workspace& work = *parts_.workspace;
  EmbeddingParams embedding;
  embedding.rows = shape.rows;
  embedding.tokens = parts_.step.tokens;
  embedding.drawn = work.tokens;
  embedding.table = parts_.model->embedding();
  embedding.scale = plan().embedding_scale;
  embedding.positions = parts_.model->position_embedding();
  embedding.row_positions = parts_.step.angle_positions;
  embedding.x = work.x;
  embedding.x_stride = plan().width;
  TOKEND_RETURN_IF_ERROR(Embed(embedding, parts_.stream->get()));
  for (size_t i = 0; i < work.ropes.size(); ++i) {
    RopeAnglesParams angles;
    angles.counts = parts_.step.counts;
    angles.positions = parts_.step.angle_positions;
    angles.inverse_frequencies = parts_.model->inverse_frequencies()[i];
    angles.magnitude = plan().ropes[i].magnitude;
    angles.table = work.ropes[i];
    angles.max_angle_rows = parts_.max_angle_rows;
    TOKEND_RETURN_IF_ERROR(RopeAngles(angles, parts_.stream->get()));
  }
  return Mark("start");
}

absl::Status ForwardPass::Attend(size_t index, const PassShape& shape) const {
  const Workspace& work = *parts_.workspace;
  const DeviceLayer& layer = parts_.model->layers()[index];
  const int64_t heads_width = int64_t{plan().heads} * plan().head_dim;
  const int64_t kv_width = int64_t{plan().kv_heads} * plan().head_dim;
  AttentionParams params;
  params.step = parts_.step;
  params.layer = static_cast<int>(index);
  params.kv = parts_.kv;
  params.arena = parts_.arena;
  params.heads = plan().heads;
  params.qkv = work.qkv;
  params.qkv_stride = heads_width + 2 * kv_width;
  if (plan().qk_norm == ops::QkNorm::kHead) {
    params.query_norm = layer.query_norm;
    params.key_norm = layer.key_norm;
  }
  const int rope = plan().layers[index].rope;
  if (rope != ops::kNoRope) params.rope = work.ropes[static_cast<size_t>(rope)];
  params.scale = plan().attention_scale;
  params.soft_cap = plan().attention_soft_cap;
  params.out = work.attended;
  params.workspace = work.attention;
  params.workspace_bytes = work.attention_bytes;
  params.saturations = work.saturations;
  const cudaStream_t stream = parts_.stream->get();
  if (shape.append_tiles > 0) {
    TOKEND_RETURN_IF_ERROR(AppendKv(params, shape.append_tiles, stream));
  }
  if (shape.attention_tiles > 0) {
    TOKEND_RETURN_IF_ERROR(PrefillAttention(params, parts_.device, shape.attention_tiles, stream));
  }
  if (!shape.decode) return absl::OkStatus();
  return DecodeAttention(params, parts_.device, parts_.max_decode_items, stream);
}

absl::Status ForwardPass::RunAttention(size_t index, const PassShape& shape,
                                       Pending* pending) const {
  const Workspace& work = *parts_.workspace;
  const DeviceLayer& layer = parts_.model->layers()[index];
  const int heads_width = plan().heads * plan().head_dim;
  const int kv_width = plan().kv_heads * plan().head_dim;
  Matmul matmul;
  matmul.rows = shape.rows;
  // The feed forward of a parallel block without a norm of its own reads it, too.
  const bool shared = plan().parallel_residual && layer.ffn_norm.weight == nullptr;
  TOKEND_ASSIGN_OR_RETURN(matmul.input, Normed(layer.attention_norm, shape.rows, shared, pending));
  matmul.segment_count = 3;
  matmul.segments[0] = Segment(layer.query);
  matmul.segments[1] = Segment(layer.key, heads_width);
  matmul.segments[2] = Segment(layer.value, heads_width + kv_width);
  matmul.output.epilogue = MatmulEpilogue::kStore;
  matmul.output.out = work.qkv;
  matmul.output.out_stride = heads_width + 2 * kv_width;
  matmul.saturations = work.saturations;
  TOKEND_RETURN_IF_ERROR(Multiply(matmul));
  if (plan().qk_norm == ops::QkNorm::kVector) {
    NormInPlaceParams query = {shape.rows, heads_width, work.qkv, matmul.output.out_stride,
                               layer.query_norm};
    NormInPlaceParams key = {shape.rows, kv_width, work.qkv + heads_width, matmul.output.out_stride,
                             layer.key_norm};
    TOKEND_RETURN_IF_ERROR(NormInPlace(query, parts_.stream->get()));
    TOKEND_RETURN_IF_ERROR(NormInPlace(key, parts_.stream->get()));
  }
  TOKEND_RETURN_IF_ERROR(Mark("qkv"));
  TOKEND_RETURN_IF_ERROR(Attend(index, shape));
  TOKEND_RETURN_IF_ERROR(Mark("attention"));
  if (plan().parallel_residual && !shared) {
    // x is still the block's input.
    TOKEND_RETURN_IF_ERROR(Normed(layer.ffn_norm, shape.rows, true, pending).status());
  }
  TOKEND_RETURN_IF_ERROR(AddToStream(layer.attention_output, work.attended,
                                     layer.post_attention_norm, shape.rows, pending));
  return Mark("attention_output");
}

absl::Status ForwardPass::RunFeedForward(const DeviceLayer& layer, const PassShape& shape,
                                         Pending* pending) const {
  const Workspace& work = *parts_.workspace;
  Matmul matmul;
  matmul.rows = shape.rows;
  if (plan().parallel_residual) {
    matmul.input.half = work.normed;
  } else {
    TOKEND_ASSIGN_OR_RETURN(matmul.input, Normed(layer.ffn_norm, shape.rows, false, pending));
  }
  matmul.segments[0] = Segment(layer.up);
  matmul.output.epilogue =
      layer.up.weight.gated ? MatmulEpilogue::kGate : MatmulEpilogue::kActivate;
  matmul.output.activation = plan().activation;
  matmul.output.half = work.activated;
  matmul.saturations = work.saturations;
  TOKEND_RETURN_IF_ERROR(Multiply(matmul));
  TOKEND_RETURN_IF_ERROR(Mark("up"));
  TOKEND_RETURN_IF_ERROR(
      AddToStream(layer.down, work.activated, layer.post_ffn_norm, shape.rows, pending));
  return Mark("down");
}

absl::Status ForwardPass::RunBlocks(const PassShape& shape) const {
  TOKEND_RETURN_IF_ERROR(RunStart(shape));
  Pending pending;
  for (size_t i = 0; i < parts_.model->layers().size(); ++i) {
    TOKEND_RETURN_IF_ERROR(RunAttention(i, shape, &pending));
    TOKEND_RETURN_IF_ERROR(RunFeedForward(parts_.model->layers()[i], shape, &pending));
  }
  if (pending.y == nullptr) return absl::OkStatus();
  NormRowsParams last;
  last.rows = shape.rows;
  last.width = static_cast<int>(plan().width);
  last.x = parts_.workspace->x;
  last.x_stride = plan().width;
  last.y = pending.y;
  last.y_stride = plan().width;
  last.post = pending.post;
  last.scale = pending.scale;
  return NormRows(last, parts_.stream->get());
}

absl::Status ForwardPass::RunHead(int first, int count, bool all_rows) const {
  const Workspace& work = *parts_.workspace;
  Matmul matmul;
  matmul.rows = count;
  if (all_rows && first == 0 && count <= kMaxNormedRows) {
    Pending none;
    TOKEND_ASSIGN_OR_RETURN(matmul.input, Normed(parts_.model->output_norm(), count, false, &none));
  } else {
    NormRowsParams norm;
    norm.rows = count;
    norm.width = static_cast<int>(plan().width);
    norm.x = all_rows ? work.x + first * plan().width : work.x;
    norm.x_stride = plan().width;
    if (!all_rows) norm.row_index = parts_.step.logit_rows + first;
    norm.norm = parts_.model->output_norm();
    norm.out = work.normed;
    norm.saturations = work.saturations;
    TOKEND_RETURN_IF_ERROR(NormRows(norm, parts_.stream->get()));
    matmul.input.half = work.normed;
  }
  matmul.segments[0] = Segment(parts_.model->output());
  matmul.output.epilogue = MatmulEpilogue::kStore;
  matmul.output.out = work.logits;
  matmul.output.out_stride = plan().vocabulary_size;
  matmul.output.scale = plan().logit_scale;
  matmul.output.soft_cap = plan().logit_soft_cap;
  matmul.saturations = work.saturations;
  TOKEND_RETURN_IF_ERROR(Multiply(matmul));
  return Mark("head");
}

absl::Status ForwardPass::RunDraws(int count) const {
  const Workspace& work = *parts_.workspace;
  SampleParams sample;
  sample.rows = count;
  sample.vocabulary = static_cast<int>(plan().vocabulary_size);
  sample.logits = work.logits;
  sample.stride = plan().vocabulary_size;
  sample.row_params = work.draws;
  sample.tokens = work.tokens;
  sample.workspace = work.sampling;
  TOKEND_RETURN_IF_ERROR(SampleRows(sample, parts_.stream->get()));
  return Mark("draw");
}

}  // namespace tokend::cuda
