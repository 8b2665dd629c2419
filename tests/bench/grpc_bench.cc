// What the gRPC path costs: the same turn through a daemon on a unix socket and
// through an engine in this process, in turns; and the memory that the daemon holds.
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/status_macros.h"
#include "core/cpu/cpu_backend.h"
#include "core/engine/engine.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tests/bench/bench.h"
#include "tests/bench/child_process.h"
#include "tests/bench/model_bench.h"
#include "tokend/v1/admin.grpc.pb.h"
#include "tokend/v1/generation.grpc.pb.h"
#include "tokend/v1/model.grpc.pb.h"

namespace tokend::bench {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kRounds = 7;
constexpr int kOutputTokens = 256;
constexpr int32_t kPromptToken = 100;
constexpr int64_t kContextTokens = 1024;
constexpr int32_t kTokenStride = 7;

// Counts tokens as they come; the rate leaves out the prefill, which ends with the
// first of them.
class RateSink : public engine::TurnSink {
 public:
  void OnStarted(const engine::Started&) override {}
  void OnDelta(engine::Delta) override {
    if (first_ == SteadyClock::time_point()) first_ = SteadyClock::now();
  }
  void OnFinished(const engine::Finished& finished) override {
    End(finished.usage.output_tokens, absl::OkStatus());
  }
  void OnFailed(const absl::Status& status) override { End(0, status); }
  bool Writable() override { return true; }
  absl::Duration BlockedSince() override { return absl::InfiniteDuration(); }
  int32_t TakenTokens() override { return 0; }

  absl::StatusOr<double> Wait() {
    std::unique_lock<std::mutex> lock(mu_);
    ended_.wait(lock, [&] { return status_.has_value(); });
    TOKEND_RETURN_IF_ERROR(*status_);
    return (tokens_ - 1) / std::chrono::duration<double>(last_ - first_).count();
  }

 private:
  void End(int tokens, const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mu_);
    last_ = SteadyClock::now();
    tokens_ = tokens;
    status_ = status;
    ended_.notify_all();
  }

  std::mutex mu_;
  std::condition_variable ended_;
  SteadyClock::time_point first_;
  SteadyClock::time_point last_;
  int tokens_ = 0;
  std::optional<absl::Status> status_;
};

// An engine on the model, without the service around it.
class BareEngine {
 public:
  static absl::StatusOr<std::unique_ptr<BareEngine>> Create(const Options& options) {
    auto bare = std::make_unique<BareEngine>();
    TOKEND_ASSIGN_OR_RETURN(bare->file_, gguf::File::Open(options.model_path));
    TOKEND_ASSIGN_OR_RETURN(bare->model_, model::Model::Load(*bare->file_, {}));
    TOKEND_ASSIGN_OR_RETURN(bare->tokenizer_, tokenizer::Tokenizer::Create(*bare->file_));
    const ops::ModelPlan& plan = bare->model_->plan();
    TOKEND_ASSIGN_OR_RETURN(
        bare->backend_,
        cpu::CpuBackend::Create(plan, {.threads = options.threads, .max_batch_tokens = 2048}));
    kv::StoreOptions store;
    store.layers = static_cast<int>(plan.layers.size());
    store.pages = store.layers * (kContextTokens / store.page_tokens);
    store.page_bytes = bare->backend_->info().page_bytes;
    store.context_tokens = kContextTokens;
    TOKEND_RETURN_IF_ERROR(bare->backend_->AllocateArena(store.pages));
    TOKEND_ASSIGN_OR_RETURN(bare->store_,
                            kv::SessionStore::Create(store, bare->backend_.get(), base::RealClock(),
                                                     base::NullObserver()));
    engine::EngineOptions engine;
    engine.context_tokens = kContextTokens;
    engine.vocabulary_size = static_cast<int>(plan.vocabulary_size);
    TOKEND_ASSIGN_OR_RETURN(
        bare->engine_, engine::Engine::Create(engine, {bare->backend_.get(), bare->store_.get(),
                                                       bare->tokenizer_.get(), nullptr,
                                                       base::RealClock(), base::NullObserver()}));
    bare->engine_->Start([] {}, [](const absl::Status&) {});
    return bare;
  }

  absl::StatusOr<double> Measure() {
    engine::Request request;
    request.id = absl::StrCat("bench-", ++turns_);
    request.input = engine::TokenInput{{kPromptToken}};
    request.sampling.temperature = 0;
    request.stop.max_output_tokens = kOutputTokens;
    request.stop.ignore_end_of_text = true;
    auto sink = std::make_shared<RateSink>();
    TOKEND_RETURN_IF_ERROR(engine_->Submit(std::move(request), sink));
    return sink->Wait();
  }

 private:
  int turns_ = 0;
  std::unique_ptr<gguf::File> file_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<cpu::CpuBackend> backend_;
  std::unique_ptr<kv::SessionStore> store_;
  std::unique_ptr<engine::Engine> engine_;
};

// A daemon of its own on a socket in a temporary folder.
class Daemon {
 public:
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const Options& options) {
    std::string folder = (std::filesystem::temp_directory_path() / "tokend-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) return absl::InternalError("mkdtemp");
    auto daemon = std::make_unique<Daemon>();
    daemon->folder_ = folder;
    const std::string address = absl::StrCat("unix:", folder, "/tokend.sock");
    const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe");
    TOKEND_ASSIGN_OR_RETURN(
        daemon->process_,
        ChildProcess::Start({(here.parent_path() / "tokend").string(), "--model",
                             options.model_path, "--listen", address, "--metrics-listen", "off",
                             "--threads", absl::StrCat(options.threads), "--context",
                             absl::StrCat(kContextTokens), "--max-running", "1"}));
    daemon->channel_ = grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    daemon->stub_ = v1::GenerationService::NewStub(daemon->channel_);
    TOKEND_RETURN_IF_ERROR(daemon->WaitUntilReady());
    return daemon;
  }
  ~Daemon() {
    process_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  absl::StatusOr<double> Measure() {
    grpc::ClientContext context;
    v1::StreamRequest request;
    v1::Turn* turn = request.mutable_turn();
    turn->mutable_tokens()->add_token_ids(kPromptToken);
    turn->mutable_sampling()->set_temperature(0);
    turn->mutable_stop()->set_max_output_tokens(kOutputTokens);
    turn->mutable_stop()->set_ignore_end_of_text(true);
    const auto reader = stub_->Stream(&context, request);
    v1::StreamResponse response;
    SteadyClock::time_point first;
    while (reader->Read(&response)) {
      if (response.has_delta() && first == SteadyClock::time_point()) first = SteadyClock::now();
    }
    const auto last = SteadyClock::now();
    if (const grpc::Status status = reader->Finish(); !status.ok()) {
      return absl::InternalError(status.error_message());
    }
    return (kOutputTokens - 1) / std::chrono::duration<double>(last - first).count();
  }

  // Resident bytes, and those of weights and KV cache that it reports itself. The
  // cache is filled before: what was never written is not resident.
  absl::Status ReportMemory(Report* report) {
    TOKEND_RETURN_IF_ERROR(FillContext());
    v1::GetModelResponse model;
    v1::GetStatsResponse stats;
    grpc::ClientContext model_context, stats_context;
    if (!v1::ModelService::NewStub(channel_)->GetModel(&model_context, {}, &model).ok() ||
        !v1::AdminService::NewStub(channel_)->GetStats(&stats_context, {}, &stats).ok()) {
      return absl::InternalError("GetModel or GetStats failed");
    }
    const double resident = ResidentBytes();
    const auto planned = static_cast<double>(model.model().weight_bytes() + stats.kv_bytes_total());
    report->Add("resident", resident / 1e6, "MB");
    report->Add("weights_and_planned_kv", planned / 1e6, "MB");
    report->Add("resident_beyond", (resident - planned) / 1e6, "MB");
    return absl::OkStatus();
  }

 private:
  // With distinct tokens, so that much of the embedding is read too.
  absl::Status FillContext() {
    grpc::ClientContext context;
    v1::GenerateRequest request;
    v1::Turn* turn = request.mutable_turn();
    for (int64_t i = 0; i + 1 < kContextTokens; ++i) {
      turn->mutable_tokens()->add_token_ids(static_cast<int32_t>(i * kTokenStride));
    }
    turn->mutable_stop()->set_max_output_tokens(1);
    v1::GenerateResponse response;
    const grpc::Status status = stub_->Generate(&context, request, &response);
    return status.ok() ? absl::OkStatus() : absl::InternalError(status.error_message());
  }

  absl::Status WaitUntilReady() {
    const auto model = v1::ModelService::NewStub(channel_);
    for (int i = 0; i < 600; ++i) {
      grpc::ClientContext context;
      context.set_wait_for_ready(true);
      v1::GetModelResponse response;
      if (model->GetModel(&context, {}, &response).ok() && response.ready()) {
        return absl::OkStatus();
      }
      absl::SleepFor(absl::Milliseconds(100));
    }
    return absl::UnavailableError("the daemon did not become ready");
  }

  double ResidentBytes() const {
    std::ifstream in(absl::StrCat("/proc/", process_->pid(), "/statm"));
    int64_t total = 0, resident = 0;
    in >> total >> resident;
    return static_cast<double>(resident * sysconf(_SC_PAGESIZE));
  }

  std::string folder_;
  std::unique_ptr<ChildProcess> process_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::GenerationService::Stub> stub_;
};

}  // namespace

absl::Status RunGrpc(const Options& options, Report* report) {
  if (options.model_path.empty()) return absl::InvalidArgumentError("needs --model FILE");
  TOKEND_ASSIGN_OR_RETURN(const auto engine, BareEngine::Create(options));
  TOKEND_ASSIGN_OR_RETURN(const auto daemon, Daemon::Start(options));
  std::vector<double> bare, remote, costs;
  for (int round = 0; round < kRounds; ++round) {
    TOKEND_ASSIGN_OR_RETURN(const double bare_rate, engine->Measure());
    TOKEND_ASSIGN_OR_RETURN(const double remote_rate, daemon->Measure());
    bare.push_back(bare_rate);
    remote.push_back(remote_rate);
    costs.push_back(100 * (1 - remote_rate / bare_rate));
  }
  report->Add("engine_decode", Median(bare), "tokens/s");
  report->Add("grpc_decode", Median(remote), "tokens/s");
  report->Add("grpc_cost", Median(costs), "%");
  return daemon->ReportMemory(report);
}

}  // namespace tokend::bench
