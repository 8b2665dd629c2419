// Models at real shapes with random weights on one device: decode as a share of the time
// in which its memory is read, prefill as a share of the rate of a matmul.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/status_macros.h"
#include "tests/bench/bench.h"
#include "tests/bench/device/bench_device.h"
#include "tests/bench/device/step_feeder.h"
#include "tests/support/shaped_model.h"

namespace tokend::bench {
namespace {

using Clock = std::chrono::steady_clock;
using testing::ModelShape;
using testing::ShapedModel;
using testing::WeightMix;

constexpr int kBatches[] = {1, 4, 8, 32};
constexpr int kPrompts[] = {512, 2048};
constexpr int kPageTokens = 16;
constexpr int kChunk = 2048;
constexpr int kWarmUps = 3;
constexpr int kStepsAtLeast = 8;
constexpr int kStepsAtMost = 128;

struct Settings {
  std::string device = "cpu";       // or "cuda:N"
  int threads = 1;                  // of the CPU
  std::vector<std::string> models;  // SHAPE:TYPE
  int64_t context = 512;            // tokens behind which a sequence decodes
  int max_batch = 32;               // sequences
  int max_prompt = 2048;            // tokens
  double seconds = 1;               // of each figure
  std::string json;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Median seconds of a call: after one to warm up, as many as take `seconds`.
absl::StatusOr<double> MedianSeconds(double seconds, int at_least, int at_most,
                                     absl::FunctionRef<absl::Status()> call) {
  std::vector<double> samples;
  const Clock::time_point begin = Clock::now();
  while (static_cast<int>(samples.size()) < at_least ||
         (SecondsSince(begin) < seconds && static_cast<int>(samples.size()) < at_most)) {
    const Clock::time_point start = Clock::now();
    TOKEND_RETURN_IF_ERROR(call());
    samples.push_back(SecondsSince(start));
  }
  std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
  return samples[samples.size() / 2];
}

// One model on one device.
class ModelRun {
 public:
  static absl::StatusOr<ModelRun> Create(BenchDevice* device, const Settings& options,
                                         const ModelShape& shape, WeightMix mix, Report* report) {
    ModelRun run(device, options, report);
    run.name_ = absl::StrCat(shape.name, "_", testing::WeightMixName(mix));
    run.context_ = std::min(options.context, shape.context_tokens - kStepsAtMost - kWarmUps);
    TOKEND_ASSIGN_OR_RETURN(run.model_, ShapedModel::Create(shape, mix));
    const Clock::time_point start = Clock::now();
    BenchBackendOptions backend_options;
    backend_options.page_tokens = kPageTokens;
    backend_options.max_batch_tokens = kChunk;
    backend_options.max_sequences = run.most_sequences();
    TOKEND_ASSIGN_OR_RETURN(run.backend_, device->NewBackend(run.model_->plan(), backend_options));
    report->Add(run.name_ + "_load", SecondsSince(start), "s");
    TOKEND_RETURN_IF_ERROR(run.Prepare());
    return run;
  }

  absl::Status Decode() {
    TOKEND_RETURN_IF_ERROR(feeder_->Fill(most_sequences(), context_, kChunk));
    double single = 0;
    for (const int batch : kBatches) {
      if (batch > options_.max_batch) continue;
      TOKEND_RETURN_IF_ERROR(DecodeBatch(batch, &single));
    }
    return absl::OkStatus();
  }

  // Where the time of a step goes, by another backend in the first one's place: it is
  // slower.
  absl::Status Profile() {
    if (!device_->can_profile()) return absl::OkStatus();
    feeder_.reset();
    backend_.reset();
    BenchBackendOptions options;
    options.page_tokens = kPageTokens;
    options.max_batch_tokens = kChunk;
    options.max_sequences = 1;
    options.profile = true;
    TOKEND_ASSIGN_OR_RETURN(const auto backend, device_->NewBackend(model_->plan(), options));
    StepFeeder::Options feed;
    feed.page_tokens = kPageTokens;
    feed.tokens = context_ + kWarmUps + 1;
    TOKEND_RETURN_IF_ERROR(backend->AllocateArena(StepFeeder::Pages(model_->plan(), feed)));
    StepFeeder feeder(backend.get(), model_->plan(), feed);
    TOKEND_RETURN_IF_ERROR(feeder.Fill(1, context_, kChunk));
    for (int step = 0; step <= kWarmUps; ++step) TOKEND_RETURN_IF_ERROR(feeder.Step(1, 1));
    double sum = 0;
    TOKEND_ASSIGN_OR_RETURN(const auto parts, device_->LastStep(*backend));
    for (const PartTime& part : parts) {
      sum += part.seconds;
      report_->Add(absl::StrCat(name_, "_decode_1_", part.name), part.seconds * 1e6,
                   absl::StrCat("us in ", part.count, " parts"));
    }
    if (sum == 0) return absl::OkStatus();
    // Without the events between them kernels overlap: below 0 is what that gains.
    report_->Add(name_ + "_decode_1_gaps", (decode_seconds_ - sum) * 1e6, "us");
    return absl::OkStatus();
  }

  absl::Status Prefill() {
    for (const int prompt : kPrompts) {
      if (prompt > model_->plan().context_tokens || prompt > options_.max_prompt) continue;
      TOKEND_ASSIGN_OR_RETURN(const double seconds, MedianSeconds(options_.seconds, 2, 10, [&] {
                                feeder_->Rewind(0);
                                return feeder_->Fill(1, prompt, kChunk);
                              }));
      const std::string name = absl::StrCat(name_, "_prefill_", prompt);
      report_->Add(name, prompt / seconds, "tokens/s");
      if (device_->matmul_flops() == 0) continue;
      report_->Add(name + "_share", 100 * PromptFlops(prompt) / seconds / device_->matmul_flops(),
                   "% of the matmul rate");
    }
    return absl::OkStatus();
  }

 private:
  ModelRun(BenchDevice* device, const Settings& options, Report* report)
      : device_(device), options_(options), report_(report) {}

  int most_sequences() const { return std::max(1, std::min(options_.max_batch, 32)); }

  absl::Status Prepare() {
    const ops::ModelPlan& plan = model_->plan();
    StepFeeder::Options feeder;
    feeder.sequences = most_sequences();
    feeder.page_tokens = kPageTokens;
    feeder.tokens = std::max<int64_t>(context_ + kStepsAtMost + kWarmUps,
                                      std::min<int64_t>(plan.context_tokens, options_.max_prompt));
    TOKEND_RETURN_IF_ERROR(backend_->AllocateArena(StepFeeder::Pages(plan, feeder)));
    feeder_ = std::make_unique<StepFeeder>(backend_.get(), plan, feeder);
    return absl::OkStatus();
  }

  absl::Status DecodeBatch(int batch, double* single) {
    feeder_->Rewind(context_);
    for (int step = 0; step < kWarmUps; ++step) TOKEND_RETURN_IF_ERROR(feeder_->Step(batch, 1));
    TOKEND_ASSIGN_OR_RETURN(const double seconds,
                            MedianSeconds(options_.seconds, kStepsAtLeast, kStepsAtMost,
                                          [&] { return feeder_->Step(batch, 1); }));
    const double rate = batch / seconds;
    const std::string name = absl::StrCat(name_, "_decode_", batch);
    report_->Add(name, rate, "tokens/s");
    report_->Add(name + "_share", 100 * Floor(batch) / seconds, "% of the floor");
    if (batch == 1) {
      *single = rate;
      decode_seconds_ = seconds;
    }
    if (batch > 1 && *single > 0) report_->Add(name + "_gain", rate / *single, "times batch 1");
    return absl::OkStatus();
  }

  // Seconds in which weights and live KV are read.
  double Floor(int batch) const {
    double kv = 0;
    const double token_bytes = static_cast<double>(backend_->info().page_bytes) / kPageTokens;
    for (const ops::LayerPlan& layer : model_->plan().layers) {
      const int64_t seen =
          layer.local_tokens == 0 ? context_ : std::min(context_, layer.local_tokens);
      kv += static_cast<double>(batch * seen) * token_bytes;
    }
    return (static_cast<double>(model_->read_bytes()) + kv) / device_->read_bandwidth();
  }

  // Of the matmuls and of attention; logits are of one token.
  double PromptFlops(int prompt) const {
    const ops::ModelPlan& plan = model_->plan();
    double weights = 0, attention = 0;
    for (const ops::LayerPlan& layer : plan.layers) {
      for (const ops::Linear* linear :
           {&layer.query, &layer.key, &layer.value, &layer.attention_output, &layer.gate, &layer.up,
            &layer.down}) {
        weights += static_cast<double>(linear->weight.rows * linear->weight.cols);
      }
      attention += 2.0 * prompt * prompt * plan.heads * plan.head_dim;
    }
    return 2.0 * weights * prompt + attention;
  }

  BenchDevice* device_;
  Settings options_;
  Report* report_;
  std::string name_;
  int64_t context_ = 0;
  double decode_seconds_ = 0;  // of a step at batch 1
  std::unique_ptr<ShapedModel> model_;
  std::unique_ptr<ops::Backend> backend_;
  std::unique_ptr<StepFeeder> feeder_;
};

absl::Status RunModel(BenchDevice* device, const Settings& options, const std::string& name,
                      Report* report) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(name, absl::MaxSplits(':', 1));
  const ModelShape* shape = testing::FindShape(parts.first);
  const WeightMix* mix = testing::FindWeightMix(parts.second);
  if (shape == nullptr || mix == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("--models: no '", name, "'; SHAPE:TYPE, e.g. ",
                                                   testing::RealShapes()[0].name, ":Q4_0"));
  }
  TOKEND_ASSIGN_OR_RETURN(ModelRun run, ModelRun::Create(device, options, *shape, *mix, report));
  TOKEND_RETURN_IF_ERROR(run.Decode());
  TOKEND_RETURN_IF_ERROR(run.Prefill());
  return run.Profile();
}

absl::Status Run(const Settings& settings, Report* report) {
  TOKEND_ASSIGN_OR_RETURN(const auto device, BenchDevice::Open(settings.device, settings.threads));
  report->Start(device->name());
  for (const DeviceLimit& limit : device->limits()) {
    report->Add(limit.name, limit.value, limit.unit);
  }
  absl::Status first;
  for (const std::string& name : settings.models) {
    const absl::Status status = RunModel(device.get(), settings, name, report);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(status.message()).c_str());
    first.Update(status);
  }
  return first;
}

int Main(int argc, char** argv) {
  Settings settings;
  settings.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  settings.models = {"smollm2-135m:Q4_0"};
  CLI::App app("Models at real shapes on a device", "tokend_device_bench");
  app.add_option("--device", settings.device, "cpu or cuda:N");
  app.add_option("--threads", settings.threads, "of the CPU")->check(CLI::Range(1, 256));
  app.add_option("--models", settings.models, "SHAPE:TYPE,...")->delimiter(',');
  app.add_option("--context", settings.context, "tokens behind which a sequence decodes")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-batch", settings.max_batch, "sequences")->check(CLI::Range(1, 32));
  app.add_option("--max-prompt", settings.max_prompt, "tokens")->check(CLI::Range(1, 2048));
  app.add_option("--seconds", settings.seconds, "of each figure")->check(CLI::Range(0.0, 600.0));
  app.add_option("--json", settings.json, "also write the results to this file");
  CLI11_PARSE(app, argc, argv);
  Report report;
  absl::Status status = Run(settings, &report);
  if (!settings.json.empty()) status.Update(report.WriteJson(settings.json));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace tokend::bench

int main(int argc, char** argv) {
  try {
    return tokend::bench::Main(argc, argv);
  } catch (const std::exception& error) {  // of CLI11 and nlohmann::json
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
