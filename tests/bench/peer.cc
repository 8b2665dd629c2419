// llama.cpp and the bare CPU backend on the same file and threads, in turns, so
// that a noisy machine is noisy for both.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "nlohmann/json.hpp"
#include "tests/bench/bench.h"
#include "tests/bench/child_process.h"
#include "tests/bench/model_bench.h"

namespace tokend::bench {
namespace {

constexpr int kRounds = 7;
constexpr int kPromptTokens = 512;
constexpr int kDecodeSteps = 128;

class Peer {
 public:
  static absl::StatusOr<std::unique_ptr<Peer>> Start(const Options& options, bool flash_attention) {
    const char* python = std::getenv("TOKEND_PEER_PYTHON");
    if (python == nullptr) {
      return absl::FailedPreconditionError(
          "TOKEND_PEER_PYTHON names no Python with llama-cpp-python; ./dev bench peer does");
    }
    std::vector<std::string> argv = {python, "tests/bench/peer/llama_cpp_bench.py",
                                     options.model_path, "--threads",
                                     absl::StrCat(options.threads)};
    if (flash_attention) argv.push_back("--flash-attention");
    auto peer = std::make_unique<Peer>();
    TOKEND_ASSIGN_OR_RETURN(peer->process_, ChildProcess::Start(argv));
    TOKEND_RETURN_IF_ERROR(peer->process_->ReadLine().status());  // loaded and warm
    return peer;
  }

  // Tokens/s.
  absl::StatusOr<double> Measure(const std::string& command) {
    process_->WriteLine(command);
    TOKEND_ASSIGN_OR_RETURN(const std::string line, process_->ReadLine());
    const nlohmann::json answer = nlohmann::json::parse(line);
    if (!answer.contains("value")) return absl::InternalError(line);
    return answer.at("value").get<double>();
  }

 private:
  std::unique_ptr<ChildProcess> process_;
};

// Medians over the rounds.
struct Rates {
  std::vector<double> prefill;
  std::vector<double> decode;

  absl::Status Add(absl::StatusOr<double> prefill_rate, absl::StatusOr<double> decode_rate) {
    TOKEND_RETURN_IF_ERROR(prefill_rate.status());
    TOKEND_RETURN_IF_ERROR(decode_rate.status());
    prefill.push_back(*prefill_rate);
    decode.push_back(*decode_rate);
    return absl::OkStatus();
  }
};

void ReportRates(const std::string& who, const Rates& rates, Report* report) {
  report->Add(absl::StrCat(who, "_prefill_", kPromptTokens), Median(rates.prefill), "tokens/s");
  report->Add(absl::StrCat(who, "_decode_", kDecodeSteps), Median(rates.decode), "tokens/s");
}

// Median of the rounds' own ratios: what slowed a round slowed both.
double MedianRatio(const std::vector<double>& ours, const std::vector<double>& theirs) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / theirs[i]);
  return Median(std::move(ratios));
}

std::vector<double> Best(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> best;
  for (size_t i = 0; i < a.size(); ++i) best.push_back(std::max(a[i], b[i]));
  return best;
}

// Bytes of weights and mean live KV that a decode step reads, over the bandwidth.
absl::Status ReportFloor(const Options& options, const ModelBench& bench, const model::Model& model,
                         double decode_rate, Report* report) {
  cpu::ThreadPoolOptions pool_options;
  pool_options.threads = options.threads;
  TOKEND_ASSIGN_OR_RETURN(const auto pool, cpu::ThreadPool::Create(pool_options));
  const ops::BackendInfo info = bench.backend().info();
  TOKEND_ASSIGN_OR_RETURN(const double bandwidth, ReadBandwidth(pool.get(), info.weight_bytes));
  const auto layers = static_cast<double>(model.plan().layers.size());
  constexpr double kPageTokens = 16;
  const double kv_bytes =
      layers * static_cast<double>(info.page_bytes) / kPageTokens * (kDecodeSteps / 2.0);
  const double step_bytes = static_cast<double>(info.weight_bytes) + kv_bytes;
  report->Add("read_bandwidth", bandwidth / 1e9, "GB/s");
  report->Add("bytes_per_token", step_bytes / 1e6, "MB");
  report->Add("decode_share_of_floor", 100 * decode_rate * step_bytes / bandwidth, "%");
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPeer(const Options& options, Report* report) {
  if (options.model_path.empty()) return absl::InvalidArgumentError("needs --model FILE");
  TOKEND_ASSIGN_OR_RETURN(const auto file, gguf::File::Open(options.model_path));
  TOKEND_ASSIGN_OR_RETURN(const auto model, model::Model::Load(*file, {}));
  const auto make = [&](base::Activations activations) {
    return ModelBench::Create(model->plan(), options.threads, activations, base::KvDtype::kF16,
                              2 * kPromptTokens);
  };
  TOKEND_ASSIGN_OR_RETURN(const auto int16, make(base::Activations::kInt16));
  TOKEND_ASSIGN_OR_RETURN(const auto int8, make(base::Activations::kInt8));
  TOKEND_ASSIGN_OR_RETURN(const auto plain, Peer::Start(options, false));
  TOKEND_ASSIGN_OR_RETURN(const auto flash, Peer::Start(options, true));
  const std::string prefill = absl::StrCat("prefill ", kPromptTokens);
  const std::string decode = absl::StrCat("decode ", kDecodeSteps);
  Rates ours16, ours8, peer_plain, peer_flash;
  for (int round = 0; round < kRounds; ++round) {
    for (auto& [bench, rates] : {std::pair{int16.get(), &ours16}, {int8.get(), &ours8}}) {
      TOKEND_RETURN_IF_ERROR(
          rates->Add(bench->Prefill(kPromptTokens), bench->Decode(1, 1, kDecodeSteps)));
    }
    for (auto& [peer, rates] : {std::pair{plain.get(), &peer_plain}, {flash.get(), &peer_flash}}) {
      TOKEND_RETURN_IF_ERROR(rates->Add(peer->Measure(prefill), peer->Measure(decode)));
    }
  }
  ReportRates("tokend_int16", ours16, report);
  ReportRates("tokend_int8", ours8, report);
  ReportRates("llama_cpp", peer_plain, report);
  ReportRates("llama_cpp_flash_attention", peer_flash, report);
  const std::vector<double> best_prefill = Best(peer_plain.prefill, peer_flash.prefill);
  const std::vector<double> best_decode = Best(peer_plain.decode, peer_flash.decode);
  report->Add("prefill_ratio", MedianRatio(ours16.prefill, best_prefill), "x");
  report->Add("prefill_ratio_int8", MedianRatio(ours8.prefill, best_prefill), "x");
  report->Add("decode_ratio", MedianRatio(ours16.decode, best_decode), "x");
  return ReportFloor(options, *int16, *model, Median(ours16.decode), report);
}

}  // namespace tokend::bench
