#include "service/model_runtime.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/cpu/cpu_backend.h"
#include "core/gguf/fingerprint.h"
#include "core/kv/policy.h"
#include "service/errors.h"
#include "service/log.h"
#include "service/memory_plan.h"
#include "service/model_card.h"
#include "service/system_info.h"

namespace tokend::service {
namespace {

absl::Status CheckNotCancelled(const ModelRuntime::Inputs& inputs) {
  if (!*inputs.cancelled) return absl::OkStatus();
  return absl::CancelledError("told to stop while loading");
}

bool HasLocalLayers(const ops::ModelPlan& plan) {
  return std::any_of(plan.layers.begin(), plan.layers.end(),
                     [](const ops::LayerPlan& layer) { return layer.local_tokens > 0; });
}

// The model is known only now.
absl::Status CheckDefaultRetention(const kv::RetentionPolicy& policy, const ops::ModelPlan& plan,
                                   int page_tokens) {
  if (policy.kind == kv::RetentionPolicy::Kind::kHeavyHitters && HasLocalLayers(plan)) {
    return BadSetting("default_retention", "the model has layers with own windows");
  }
  return RenameField(kv::ValidateRetention(policy, plan.context_tokens,
                                           static_cast<int>(plan.layers.size()), page_tokens),
                     "session.retention", "default_retention");
}

absl::Status Step(ops::Backend* backend, absl::Span<const int32_t> tokens, int64_t position,
                  absl::Span<const ops::LayerKv> layers) {
  ops::StepSequence sequence;
  sequence.rows = static_cast<int32_t>(tokens.size());
  sequence.position = position;
  sequence.layers = layers;
  const int32_t last = sequence.rows - 1;
  ops::StepBatch batch;
  batch.tokens = tokens;
  batch.sequences = absl::MakeConstSpan(&sequence, 1);
  batch.logit_rows = absl::MakeConstSpan(&last, 1);
  TOKEND_ASSIGN_OR_RETURN(const ops::StepOutput output, backend->Forward(batch));
  for (const float logit : output.logits) {
    if (!std::isfinite(logit)) {
      // No restart helps: the weights are what the file holds.
      return absl::DataLossError("the model's output is not a number");
    }
  }
  return absl::OkStatus();
}

using Progress = std::function<void(int64_t done, int64_t total)>;

// What every backend is told.
template <typename Options>
Options CommonOptions(const Settings& settings, const Progress& progress) {
  Options out;
  out.activations = settings.activations.value_or(out.activations);
  out.kv_dtype = settings.kv_dtype;
  out.page_tokens = settings.page_tokens;
  out.max_batch_tokens = settings.max_batch_tokens;
  out.max_sequences = settings.max_running;
  out.progress = progress;
  return out;
}

cpu::CpuBackendOptions CpuOptions(const Settings& settings, const Progress& progress) {
  auto out = CommonOptions<cpu::CpuBackendOptions>(settings, progress);
  out.threads = settings.threads;
  return out;
}

cuda::CudaBackendOptions CudaOptions(const Settings& settings, const Device& device,
                                     const Progress& progress) {
  auto out = CommonOptions<cuda::CudaBackendOptions>(settings, progress);
  out.device = device.info;
  if (settings.high_stream_priority.value_or(false)) out.priority = cuda::StreamPriority::kHigh;
  return out;
}

}  // namespace

absl::Status WarmUp(ops::Backend* backend, int layers, int page_tokens) {
  // The first page of each layer; whatever is written there is overwritten before it
  // is read again.
  std::vector<base::PageId> pages(static_cast<size_t>(layers));
  std::vector<ops::LayerKv> tables(static_cast<size_t>(layers));
  for (int layer = 0; layer < layers; ++layer) {
    pages[layer] = static_cast<base::PageId>(layer);
    tables[layer].pages = &pages[layer];
    tables[layer].page_count = 1;
  }
  const std::vector<int32_t> prompt(static_cast<size_t>(page_tokens - 1), 0);
  TOKEND_RETURN_IF_ERROR(Step(backend, prompt, 0, tables));
  const int32_t token = 0;
  return Step(backend, absl::MakeConstSpan(&token, 1), page_tokens - 1, tables);
}

absl::StatusOr<std::unique_ptr<ModelRuntime>> ModelRuntime::Load(const Inputs& inputs,
                                                                 v1::Model* card) {
  const Settings& settings = *inputs.settings;
  const ops::ModelPlan& plan = inputs.model->plan();
  std::unique_ptr<ModelRuntime> out(new ModelRuntime());
  TOKEND_RETURN_IF_ERROR(
      CheckDefaultRetention(settings.default_retention, plan, settings.page_tokens));
  inputs.progress("tokenizer", 0);
  TOKEND_RETURN_IF_ERROR(out->LoadTokenizer(inputs));
  TOKEND_RETURN_IF_ERROR(CheckNotCancelled(inputs));
  inputs.progress("fingerprint", 0);
  const std::string fingerprint = gguf::Fingerprint(*inputs.file, settings.threads);
  TOKEND_RETURN_IF_ERROR(CheckNotCancelled(inputs));
  TOKEND_RETURN_IF_ERROR(out->LoadBackend(inputs));
  // Packed by now, but for the embedding.
  inputs.file->ReleaseMemory();
  TOKEND_RETURN_IF_ERROR(CheckNotCancelled(inputs));
  inputs.progress("warm-up", 0);
  const int layers = static_cast<int>(plan.layers.size());
  TOKEND_RETURN_IF_ERROR(WarmUp(out->backend_.get(), layers, settings.page_tokens));
  TOKEND_RETURN_IF_ERROR(out->MakeEngine(inputs, fingerprint));
  const bool heavy_hitters = out->backend_info_.fills_scores && !HasLocalLayers(plan);
  CompleteModel(fingerprint, out->backend_info_, layers, settings.page_tokens, heavy_hitters,
                *out->tokenizer_, out->chat_.get(), card);
  return out;
}

absl::Status ModelRuntime::LoadTokenizer(const Inputs& inputs) {
  TOKEND_ASSIGN_OR_RETURN(tokenizer_, tokenizer::Tokenizer::Create(*inputs.file));
  if (tokenizer_->vocabulary_size() != inputs.model->plan().vocabulary_size) {
    return absl::DataLossError(absl::StrCat("the tokenizer has ", tokenizer_->vocabulary_size(),
                                            " tokens and the embedding ",
                                            inputs.model->plan().vocabulary_size, " rows"));
  }
  auto chat = tokenizer::ChatTemplate::Create(*inputs.file, tokenizer_.get());
  if (chat.ok()) {
    chat_ = *std::move(chat);
  } else if (base::GetErrorReason(chat.status()) == base::ErrorReason::kFeatureUnavailable) {
    Log(LogLevel::kWarning, "no_chat", {{"message", chat.status().message()}});
  } else {
    return chat.status();
  }
  return absl::OkStatus();
}

absl::Status ModelRuntime::LoadBackend(const Inputs& inputs) {
  device_ = inputs.device;
  absl::Status status = TryBackend(inputs);
  if (status.ok() || !device_.is_cuda()) return status;
  TOKEND_ASSIGN_OR_RETURN(device_, FallBack(device_, *inputs.settings, status));
  backend_.reset();
  return TryBackend(inputs);
}

absl::Status ModelRuntime::TryBackend(const Inputs& inputs) {
  const ops::ModelPlan& plan = inputs.model->plan();
  const auto progress = [&](int64_t done, int64_t total) {
    inputs.progress("weights", static_cast<double>(done) / static_cast<double>(total));
  };
  const int64_t available = AvailableMemoryBytes();
  if (device_.is_cuda()) {
    TOKEND_ASSIGN_OR_RETURN(backend_, device_.cuda_library->create_backend(
                                          plan, CudaOptions(*inputs.settings, device_, progress)));
  } else {
    TOKEND_RETURN_IF_ERROR(CheckWeightsFit(inputs.model->facts().weight_bytes, available));
    TOKEND_ASSIGN_OR_RETURN(backend_,
                            cpu::CpuBackend::Create(plan, CpuOptions(*inputs.settings, progress)));
  }
  TOKEND_ASSIGN_OR_RETURN(pages_, CountPages(inputs, available));
  TOKEND_RETURN_IF_ERROR(CheckQuotas(inputs.settings->principals, pages_));
  TOKEND_RETURN_IF_ERROR(backend_->AllocateArena(pages_));
  backend_info_ = backend_->info();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ModelRuntime::CountPages(const Inputs& inputs,
                                                 int64_t available_bytes) const {
  const Settings& settings = *inputs.settings;
  const ops::BackendInfo info = backend_->info();
  MemoryPlanInputs memory;
  memory.available_bytes = available_bytes;
  memory.held_bytes = info.weight_bytes + info.workspace_bytes;
  if (info.free_bytes >= 0) {
    memory.available_bytes = info.free_bytes;
    memory.held_bytes = 0;
  }
  // Memory of its own is nobody else's.
  if (device_.is_cuda() && !device_.info.integrated) memory.default_share = 0.9;
  memory.share = settings.kv_memory_fraction;
  memory.page_bytes = info.page_bytes;
  memory.layers = static_cast<int>(inputs.model->plan().layers.size());
  memory.page_tokens = settings.page_tokens;
  memory.context_tokens = inputs.model->plan().context_tokens;
  memory.max_running = settings.max_running;
  memory.kv_budget_bytes = settings.kv_budget_bytes;
  return PlanPages(memory);
}

absl::Status ModelRuntime::MakeEngine(const Inputs& inputs, const std::string& fingerprint) {
  const Settings& settings = *inputs.settings;
  const ops::ModelPlan& plan = inputs.model->plan();
  kv::StoreOptions store;
  store.layers = static_cast<int>(plan.layers.size());
  store.page_tokens = settings.page_tokens;
  store.pages = pages_;
  store.page_bytes = backend_info_.page_bytes;
  store.context_tokens = plan.context_tokens;
  store.model_fingerprint = fingerprint;
  store.kv_dtype = settings.kv_dtype;
  for (const ops::LayerPlan& layer : plan.layers) store.local_windows.push_back(layer.local_tokens);
  store.heavy_hitters = backend_info_.fills_scores;
  store.share_prefixes = settings.share_prefixes;
  store.max_sessions = settings.max_sessions;
  store.max_versions = settings.max_versions;
  store.default_idle_ttl = settings.default_idle_ttl;
  for (const PrincipalSettings& principal : settings.principals) {
    if (principal.quota_pages) store.quota_pages[principal.name] = *principal.quota_pages;
  }
  TOKEND_ASSIGN_OR_RETURN(
      store_, kv::SessionStore::Create(store, backend_.get(), inputs.clock, inputs.observer));
  engine::EngineOptions engine;
  engine.max_running = settings.max_running;
  engine.max_batch_tokens = settings.max_batch_tokens;
  engine.prefill_chunk_tokens = settings.prefill_chunk_tokens;
  engine.page_tokens = settings.page_tokens;
  engine.step_time_target = settings.step_time_target;
  engine.max_queued = settings.max_queued;
  engine.stall_timeout = settings.stall_timeout;
  engine.replay_window = settings.replay_window;
  engine.context_tokens = plan.context_tokens;
  engine.learned_positions = plan.position_embedding.present();
  engine.vocabulary_size = static_cast<int>(plan.vocabulary_size);
  const engine::Engine::Parts parts = {backend_.get(), store_.get(), tokenizer_.get(),
                                       chat_.get(),    inputs.clock, inputs.observer};
  TOKEND_ASSIGN_OR_RETURN(engine_, engine::Engine::Create(engine, parts));
  serving_.engine = engine_.get();
  serving_.store = store_.get();
  serving_.tokenizer = tokenizer_.get();
  serving_.rules.context_tokens = plan.context_tokens;
  serving_.rules.layers = static_cast<int32_t>(plan.layers.size());
  serving_.rules.vocabulary_size = static_cast<int32_t>(plan.vocabulary_size);
  serving_.rules.default_sampling = inputs.model->facts().default_sampling;
  serving_.rules.default_session.retention = settings.default_retention;
  serving_.rules.default_session.idle_ttl = settings.default_idle_ttl;
  serving_.device = backend_info_.device;
  serving_.huge_page_bytes = backend_info_.huge_page_bytes;
  return absl::OkStatus();
}

}  // namespace tokend::service
