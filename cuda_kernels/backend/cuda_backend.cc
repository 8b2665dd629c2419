#include "cuda_kernels/backend/cuda_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "cuda_kernels/backend/errors.h"
#include "cuda_kernels/backend/self_test.h"
#include "cuda_kernels/kernels/copy_pages.h"

namespace tokend::cuda {
namespace {

absl::Status CheckOptions(const CudaBackendOptions& options) {
  if (options.page_tokens != 16 && options.page_tokens != 32) {
    return base::InvalidField("page_tokens", "must be 16 or 32");
  }
  if (options.max_batch_tokens < 1) {
    return base::InvalidField("max_batch_tokens", "must be at least 1");
  }
  if (options.max_sequences < 1 || options.max_sequences > kMaxCudaSequences) {
    return base::InvalidField("max_running",
                              absl::StrCat("must be in [1, ", kMaxCudaSequences, "] on cuda"));
  }
  if (options.activations != base::Activations::kF16 &&
      options.activations != base::Activations::kF32) {
    return base::InvalidField("activations", "must be f16 or f32 on cuda");
  }
  if (options.kv_dtype != base::KvDtype::kF16 && options.kv_dtype != base::KvDtype::kInt8) {
    return base::InvalidField("kv_dtype", "must be f16 or int8 on cuda");
  }
  return absl::OkStatus();
}

absl::Status CheckPlan(const ops::ModelPlan& plan, const KvLayout& kv) {
  if (plan.kv_heads < 1 || plan.heads % plan.kv_heads != 0) {
    return UnsupportedPlan(absl::StrCat(plan.heads, " heads over ", plan.kv_heads, " KV heads"));
  }
  const absl::Status shape = CheckAttentionShape(kv, plan.heads);
  if (!shape.ok()) return UnsupportedPlan(shape.message());
  if (plan.width % 8 != 0 || plan.ffn_width % 8 != 0) {
    return UnsupportedPlan(absl::StrCat("widths ", plan.width, " and ", plan.ffn_width,
                                        ", which are no multiples of 8"));
  }
  return absl::OkStatus();
}

KvLayout Layout(const ops::ModelPlan& plan, const CudaBackendOptions& options) {
  KvLayout kv;
  kv.int8 = options.kv_dtype == base::KvDtype::kInt8;
  kv.page_tokens = options.page_tokens;
  kv.kv_heads = plan.kv_heads;
  kv.head_dim = plan.head_dim;
  return kv;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ops::Backend>> CreateCudaBackend(const ops::ModelPlan& plan,
                                                                const CudaBackendOptions& options) {
  return CudaBackend::Create(plan, options);
}

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(
    const ops::ModelPlan& plan, const CudaBackendOptions& options) {
  TOKEND_RETURN_IF_ERROR(CheckOptions(options));
  const KvLayout kv = Layout(plan, options);
  TOKEND_RETURN_IF_ERROR(CheckPlan(plan, kv));
  TOKEND_RETURN_IF_ERROR(UseDevice(options.device.ordinal));
  StepLimits limits;
  limits.rows = static_cast<int>(options.max_batch_tokens);
  limits.sequences = static_cast<int>(options.max_sequences);
  limits.layers = static_cast<int>(plan.layers.size());
  limits.context_tokens = plan.context_tokens;
  limits.page_tokens = options.page_tokens;
  limits.tile_tokens =
      AttentionTileTokens(kv, plan.heads, options.activations == base::Activations::kF32);
  limits.decode = options.activations != base::Activations::kF32;
  auto backend = std::unique_ptr<CudaBackend>(new CudaBackend(options, kv, limits));
  TOKEND_RETURN_IF_ERROR(backend->Load(plan));
  return backend;
}

absl::Status CudaBackend::Load(const ops::ModelPlan& plan) {
  TOKEND_ASSIGN_OR_RETURN(stream_, Stream::Create(options_.priority));
  TOKEND_RETURN_IF_ERROR(CheckRowInvariance(options_.device, stream_));
  TOKEND_ASSIGN_OR_RETURN(model_, DeviceModel::Create(plan, pair(), stream_, options_.progress));
  WorkspaceShape shape;
  // A graph computes a whole batch class.
  shape.rows = std::max(static_cast<int>(options_.max_batch_tokens), kBatchClasses.back());
  shape.sequences = static_cast<int>(options_.max_sequences);
  shape.logit_rows = kBatchClasses.back();
  shape.angle_rows = std::max(writer_.max_angle_rows(), kBatchClasses.back());
  shape.decode_items = writer_.max_decode_items();
  shape.step_bytes = writer_.block_bytes();
  shape.kv = kv_;
  shape.pair = pair();
  TOKEND_ASSIGN_OR_RETURN(workspace_, Workspace::Create(model_->plan(), shape));
  TOKEND_RETURN_IF_ERROR(stream_.Zero(workspace_->data(), workspace_->bytes(), "workspace"));
  for (Slot& slot : slots_) TOKEND_RETURN_IF_ERROR(MakeSlot(&slot));
  const int64_t copy_bytes = 2 * kCopyBatch * static_cast<int64_t>(sizeof(int32_t));
  TOKEND_ASSIGN_OR_RETURN(host_copies_, PinnedBuffer::Allocate(copy_bytes, "page copies"));
  TOKEND_ASSIGN_OR_RETURN(copies_, DeviceBuffer::Allocate(copy_bytes, "page copies"));
  TOKEND_RETURN_IF_ERROR(stream_.Synchronize("workspace"));
  return options_.device.integrated ? absl::OkStatus() : MeasureFreeMemory();
}

ops::BackendInfo CudaBackend::info() const {
  ops::BackendInfo info;
  info.device = options_.device.ToString();
  info.page_bytes = kv_.page_bytes();
  info.weight_bytes = model_->weight_bytes();
  info.workspace_bytes = workspace_->bytes() + copies_.bytes();
  info.free_bytes = free_bytes_;
  info.draws_tokens = true;
  info.steps_in_flight = kStepsInFlight;
  info.fills_scores = false;
  return info;
}

absl::Status CudaBackend::AllocateArena(int64_t pages) {
  if (pages_ > 0) return ops::BadStep("the arena is there already");
  TOKEND_RETURN_IF_ERROR(UseDevice(options_.device.ordinal));
  return UseArena(pages);
}

absl::Status CudaBackend::UseArena(int64_t pages) {
  TOKEND_ASSIGN_OR_RETURN(arena_, DeviceBuffer::Allocate(pages * kv_.page_bytes(), "KV cache"));
  pass_ = std::make_unique<ForwardPass>(Parts());
  TOKEND_RETURN_IF_ERROR(CaptureGraphs());
  pages_ = pages;
  return absl::OkStatus();
}

ForwardPass::Parts CudaBackend::Parts() const {
  ForwardPass::Parts parts;
  parts.model = model_.get();
  parts.workspace = workspace_.get();
  parts.stream = &stream_;
  parts.device = options_.device;
  parts.kv = kv_;
  parts.step = writer_.View(workspace_->step);
  parts.max_angle_rows = writer_.max_angle_rows();
  parts.max_decode_items = writer_.max_decode_items();
  parts.arena = arena_.as<unsigned char>();
  return parts;
}

absl::StatusOr<Graph> CudaBackend::CaptureGraph(int rows, bool draw) {
  PassShape shape;
  shape.rows = rows;
  shape.decode = !pair();
  // Mode f32 has a tile for each row.
  if (pair()) shape.append_tiles = shape.attention_tiles = rows;
  ForwardPass::Parts parts = Parts();
  if (options_.profile && rows == 1 && draw) parts.timer = &timer_;
  const ForwardPass pass(parts);
  return Graph::Capture(stream_, absl::StrCat("decode of ", rows), [&] {
    if (parts.timer != nullptr) TOKEND_RETURN_IF_ERROR(timer_.Start(stream_));
    TOKEND_RETURN_IF_ERROR(pass.RunBlocks(shape));
    TOKEND_RETURN_IF_ERROR(pass.RunHead(0, rows, true));
    return draw ? pass.RunDraws(rows) : absl::OkStatus();
  });
}

absl::Status CudaBackend::CaptureGraphs() {
  for (size_t i = 0; i < kBatchClasses.size(); ++i) {
    if (i > 0 && kBatchClasses[i - 1] >= options_.max_sequences) break;
    TOKEND_ASSIGN_OR_RETURN(logit_graphs_[i], CaptureGraph(kBatchClasses[i], false));
    TOKEND_ASSIGN_OR_RETURN(draw_graphs_[i], CaptureGraph(kBatchClasses[i], true));
  }
  return absl::OkStatus();
}

ops::StepLimits CudaBackend::Limits() const {
  return {model_->plan().vocabulary_size,
          static_cast<int64_t>(model_->layers().size()),
          options_.max_batch_tokens,
          options_.max_sequences,
          pages_,
          kv_.page_tokens,
          model_->plan().position_embedding.rows,
          draws_before_};
}

absl::Status CudaBackend::MakeSlot(Slot* slot) {
  TOKEND_ASSIGN_OR_RETURN(slot->tables,
                          PinnedBuffer::Allocate(writer_.block_bytes(), "step tables"));
  // A graph's rows behind those of its step have the tokens and positions of steps
  // before, or these.
  std::memset(slot->tables.data(), 0, static_cast<size_t>(slot->tables.bytes()));
  TOKEND_ASSIGN_OR_RETURN(
      slot->draws, PinnedBuffer::Allocate(
                       kMaxCudaSequences * static_cast<int64_t>(sizeof(SamplingRow)), "draws"));
  TOKEND_ASSIGN_OR_RETURN(slot->counter, PinnedBuffer::Allocate(sizeof(unsigned), "counters"));
  TOKEND_ASSIGN_OR_RETURN(slot->done, Event::Create());
  return absl::OkStatus();
}

absl::Status CudaBackend::ReserveOutput(const ops::StepBatch& batch, Slot* slot) {
  const auto rows = static_cast<int64_t>(batch.logit_rows.size());
  const int64_t width = batch.draws.empty() ? model_->plan().vocabulary_size : 1;
  PinnedBuffer* const buffer = batch.draws.empty() ? &slot->logits : &slot->tokens;
  static_assert(sizeof(float) == sizeof(int32_t));
  const int64_t bytes = rows * width * static_cast<int64_t>(sizeof(float));
  if (bytes > buffer->bytes()) {
    TOKEND_ASSIGN_OR_RETURN(*buffer, PinnedBuffer::Allocate(bytes, "a step's output"));
  }
  slot->output = {};
  if (batch.draws.empty()) {
    slot->output.logits = {slot->logits.as<float>(), static_cast<size_t>(rows * width)};
  } else {
    slot->output.tokens = {slot->tokens.as<int32_t>(), batch.draws.size()};
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::Submit(const ops::StepBatch& batch) {
  if (submitted_ - collected_ >= kStepsInFlight) {
    return ops::BadStep(absl::StrCat(submitted_ - collected_, " steps are in flight"));
  }
  TOKEND_RETURN_IF_ERROR(ops::CheckStep(batch, Limits()));
  TOKEND_RETURN_IF_ERROR(UseDevice(options_.device.ordinal));
  // Whoever had it before was collected.
  Slot& slot = slots_[static_cast<size_t>(submitted_ % kStepsInFlight)];
  TOKEND_RETURN_IF_ERROR(ReserveOutput(batch, &slot));
  TOKEND_ASSIGN_OR_RETURN(
      const StepShape shape,
      writer_.Write(batch, {slot.tables.data(), static_cast<size_t>(slot.tables.bytes())}));
  TOKEND_RETURN_IF_ERROR(RunStep(shape, batch, slot));
  TOKEND_RETURN_IF_ERROR(stream_.CopyToHost(slot.counter.data(), workspace_->saturations,
                                            sizeof(unsigned), "counters"));
  TOKEND_RETURN_IF_ERROR(stream_.Record(slot.done));
  ++submitted_;
  const auto draws = static_cast<int64_t>(batch.draws.size());
  draws_before_ = draws <= kBatchClasses.back() ? draws : 0;
  return absl::OkStatus();
}

absl::StatusOr<ops::StepOutput> CudaBackend::Collect() {
  if (submitted_ == collected_) return ops::BadStep("no step is in flight");
  TOKEND_RETURN_IF_ERROR(UseDevice(options_.device.ordinal));
  Slot& slot = slots_[static_cast<size_t>(collected_ % kStepsInFlight)];
  TOKEND_RETURN_IF_ERROR(slot.done.Synchronize("step"));
  ++collected_;
  slot.output.saturated_activations = *slot.counter.as<unsigned>();
  return slot.output;
}

absl::Status CudaBackend::RunStep(const StepShape& shape, const ops::StepBatch& batch,
                                  const Slot& slot) {
  TOKEND_RETURN_IF_ERROR(
      stream_.CopyToDevice(workspace_->step, slot.tables.data(), shape.used_bytes, "step tables"));
  const auto rows = static_cast<int>(batch.tokens.size());
  const bool every_row = batch.logit_rows.size() == batch.tokens.size();
  if (every_row && batch.sequences.size() == batch.tokens.size()) {
    const auto found = std::lower_bound(kBatchClasses.begin(), kBatchClasses.end(), rows);
    const auto index = static_cast<size_t>(found - kBatchClasses.begin());
    TOKEND_RETURN_IF_ERROR(SendDraws(batch, 0, rows, slot));
    const auto& graphs = batch.draws.empty() ? logit_graphs_ : draw_graphs_;
    TOKEND_RETURN_IF_ERROR(graphs[index].Launch(stream_));
    return ReadRows(batch, 0, rows, slot);
  }
  PassShape pass;
  pass.rows = rows;
  pass.append_tiles = shape.counts.append_tile_count;
  pass.attention_tiles = shape.counts.attention_tile_count;
  for (const ops::StepSequence& sequence : batch.sequences) {
    pass.decode = pass.decode || (sequence.rows == 1 && !pair());
  }
  TOKEND_RETURN_IF_ERROR(pass_->RunBlocks(pass));
  const auto count = static_cast<int>(batch.logit_rows.size());
  for (int first = 0; first < count; first += kBatchClasses.back()) {
    const int part = std::min(count - first, kBatchClasses.back());
    TOKEND_RETURN_IF_ERROR(pass_->RunHead(first, part, every_row));
    TOKEND_RETURN_IF_ERROR(SendDraws(batch, first, part, slot));
    if (!batch.draws.empty()) TOKEND_RETURN_IF_ERROR(pass_->RunDraws(part));
    TOKEND_RETURN_IF_ERROR(ReadRows(batch, first, part, slot));
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::SendDraws(const ops::StepBatch& batch, int first, int count,
                                    const Slot& slot) {
  if (batch.draws.empty()) return absl::OkStatus();
  // The rows sent before may still be on their way.
  if (first > 0) TOKEND_RETURN_IF_ERROR(stream_.Synchronize("draws"));
  auto* const rows = slot.draws.as<SamplingRow>();
  for (int i = 0; i < count; ++i) {
    const ops::TokenDraw& draw = batch.draws[static_cast<size_t>(first + i)];
    rows[i] = MakeSamplingRow(*draw.params, draw.position);
  }
  return stream_.CopyToDevice(workspace_->draws, rows,
                              count * static_cast<int64_t>(sizeof(SamplingRow)), "draws");
}

absl::Status CudaBackend::ReadRows(const ops::StepBatch& batch, int first, int count,
                                   const Slot& slot) {
  constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
  if (!batch.draws.empty()) {
    return stream_.CopyToHost(slot.tokens.as<int32_t>() + first, workspace_->tokens, count * kBytes,
                              "tokens");
  }
  const int64_t vocabulary = model_->plan().vocabulary_size;
  return stream_.CopyToHost(slot.logits.as<float>() + first * vocabulary, workspace_->logits,
                            count * vocabulary * kBytes, "logits");
}

absl::Status CudaBackend::CopyPages(absl::Span<const ops::PageCopy> copies) {
  TOKEND_RETURN_IF_ERROR(ops::CheckCopies(copies, Limits()));
  TOKEND_RETURN_IF_ERROR(UseDevice(options_.device.ordinal));
  // Copies of one launch have no order: a page that is written is in it once.
  while (!copies.empty()) {
    size_t count = 1;
    for (; count < std::min<size_t>(copies.size(), kCopyBatch); ++count) {
      const auto first = copies.first(count);
      const bool depends = std::any_of(first.begin(), first.end(), [&](const auto& earlier) {
        const ops::PageCopy& next = copies[count];
        return earlier.to == next.from || earlier.to == next.to || earlier.from == next.to;
      });
      if (depends) break;
    }
    TOKEND_RETURN_IF_ERROR(CopyBatch(copies.first(count)));
    copies.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::CopyBatch(absl::Span<const ops::PageCopy> copies) {
  auto* const host = host_copies_.as<int32_t>();
  const auto count = static_cast<int64_t>(copies.size());
  for (int64_t i = 0; i < count; ++i) {
    host[i] = static_cast<int32_t>(copies[static_cast<size_t>(i)].from);
    host[count + i] = static_cast<int32_t>(copies[static_cast<size_t>(i)].to);
  }
  TOKEND_RETURN_IF_ERROR(stream_.CopyToDevice(
      copies_.data(), host, 2 * count * static_cast<int64_t>(sizeof(int32_t)), "page copies"));
  CopyPagesParams params;
  params.arena = arena_.as<unsigned char>();
  params.page_bytes = kv_.page_bytes();
  params.from = copies_.as<int32_t>();
  params.to = params.from + count;
  params.count = static_cast<int>(count);
  TOKEND_RETURN_IF_ERROR(cuda::CopyPages(params, stream_.get()));
  // The host's list is used again.
  return stream_.Synchronize("page copies");
}

}  // namespace tokend::cuda
