#include "tests/bench/decode_bench.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/cpu/cpu_backend.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "tests/bench/model_bench.h"

namespace tokend::bench {
namespace {

constexpr int kRuns = 3;
constexpr int kPromptTokens = 512;
constexpr int kDecodeSteps = 64;
constexpr int kMaxBatch = 8;
constexpr int kLongContext = 4096;
constexpr int64_t kMaxTokens = kLongContext + kMaxBatch * kDecodeSteps + 512;

constexpr std::pair<cpu::Phase, absl::string_view> kPhases[] = {
    {cpu::Phase::kEmbed, "embed"},
    {cpu::Phase::kQkv, "qkv"},
    {cpu::Phase::kStoreKv, "store_kv"},
    {cpu::Phase::kAttention, "attention"},
    {cpu::Phase::kAttentionOutput, "attention_output"},
    {cpu::Phase::kGateUp, "gate_up"},
    {cpu::Phase::kDown, "down"},
    {cpu::Phase::kLogits, "logits"},
};

}  // namespace

absl::Status RunDecodeBench(
    const std::string& model_file, int threads,
    absl::FunctionRef<void(absl::string_view, double, absl::string_view)> report) {
  TOKEND_ASSIGN_OR_RETURN(const auto file, gguf::File::Open(model_file));
  TOKEND_ASSIGN_OR_RETURN(const auto model, model::Model::Load(*file, {}));
  for (const base::Activations activations :
       {base::Activations::kInt16, base::Activations::kInt8}) {
    TOKEND_ASSIGN_OR_RETURN(
        const auto bench,
        ModelBench::Create(model->plan(), threads, activations, base::KvDtype::kF16, kMaxTokens));
    const std::string mode(base::ActivationsName(activations));
    TOKEND_ASSIGN_OR_RETURN(const double prefill,
                            MedianOf(kRuns, [&] { return bench->Prefill(kPromptTokens); }));
    report(absl::StrCat(mode, "_prefill_", kPromptTokens), prefill, "tokens/s");
    const cpu::StepProfile before = bench->backend().profile();
    TOKEND_ASSIGN_OR_RETURN(const double decode,
                            MedianOf(kRuns, [&] { return bench->Decode(1, 1, kDecodeSteps); }));
    const cpu::StepProfile after = bench->backend().profile();
    report(absl::StrCat(mode, "_decode"), decode, "tokens/s");
    for (const auto& [phase, name] : kPhases) {
      const auto nanos = static_cast<double>(after[phase] - before[phase]);
      report(absl::StrCat(mode, "_decode_", name), nanos / 1000 / (kRuns * (kDecodeSteps + 1)),
             "us");
    }
    TOKEND_ASSIGN_OR_RETURN(const double batch, MedianOf(kRuns, [&] {
                              return bench->Decode(kMaxBatch, 1, kDecodeSteps);
                            }));
    report(absl::StrCat(mode, "_decode_batch_", kMaxBatch), batch, "tokens/s");
  }
  for (const base::KvDtype kv : {base::KvDtype::kF16, base::KvDtype::kInt8}) {
    TOKEND_ASSIGN_OR_RETURN(
        const auto bench,
        ModelBench::Create(model->plan(), threads, base::Activations::kInt16, kv, kMaxTokens));
    TOKEND_ASSIGN_OR_RETURN(const double decode, MedianOf(kRuns, [&] {
                              return bench->Decode(1, kLongContext, kDecodeSteps);
                            }));
    report(absl::StrCat("kv_", base::KvDtypeName(kv), "_decode_context_", kLongContext), decode,
           "tokens/s");
  }
  return absl::OkStatus();
}

}  // namespace tokend::bench
