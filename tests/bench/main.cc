#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/bench/bench.h"
#include "tests/bench/decode_bench.h"

namespace tokend::bench {
namespace {

struct Bench {
  const char* name;
  absl::Status (*run)(const Options& options, Report* report);
  const char* what;
};

constexpr Bench kBenches[] = {
    {"limits", RunLimits, "read bandwidth, int8 and fp32 peak of this machine"},
    {"kernels", RunKernels, "matmul kernels by type and mode, as shares of the limits"},
    {"decode", RunDecode, "the bare CPU backend on the model: prefill, decode, where time goes"},
    {"kv", RunKv, "the KV cache against recomputation, its bytes a token, batching"},
    {"quality", RunQuality, "perplexity of a text with f32, f16, int8 KV and under windows"},
    {"store", RunStore, "fork, rollback, checkout and get behind 100 and 100,000 tokens"},
    {"endless", RunEndless, "turns through a sliding window, as 50,000 tokens pass"},
    {"tokenizer", RunTokenizer, "1 MiB of one thing as tokens; loading a vocabulary"},
    {"peer", RunPeer, "llama.cpp and the bare CPU backend on the model, in turns"},
    {"grpc", RunGrpc, "decode through the daemon and through the bare engine; resident memory"},
};

}  // namespace

absl::Status RunDecode(const Options& options, Report* report) {
  if (options.model_path.empty()) return absl::InvalidArgumentError("needs --model FILE");
  return RunDecodeBench(options.model_path, options.threads,
                        [&](absl::string_view name, double value, absl::string_view unit) {
                          report->Add(name, value, unit);
                        });
}

namespace {

int RunAll(const std::vector<std::string>& names, const std::string& json, const Options& options) {
  Report report;
  int code = 0;
  for (const Bench& bench : kBenches) {
    bool wanted = names.empty();
    for (const std::string& name : names) wanted = wanted || name == bench.name;
    if (!wanted) continue;
    report.Start(bench.name);
    const absl::Status status = bench.run(options, &report);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", bench.name, std::string(status.message()).c_str());
    code = 1;
  }
  if (json.empty()) return code;
  const absl::Status status = report.WriteJson(json);
  if (status.ok()) return code;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

int Main(int argc, char** argv) {
  std::vector<std::string> names, known;
  std::string json, isa, about = "Benchmarks:";
  for (const Bench& bench : kBenches) {
    known.push_back(bench.name);
    about += std::string("\n  ") + bench.name + "  " + bench.what;
  }
  Options options;
  options.threads = static_cast<int>(std::thread::hardware_concurrency());
  if (options.threads < 1) options.threads = 1;
  CLI::App app(about, "tokend_bench");
  app.add_option("names", names, "benchmarks to run; none: all")->check(CLI::IsMember(known));
  app.add_option("--json", json, "also write the results to this file");
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 256));
  app.add_option("--isa", isa, "instruction set instead of the best one");
  app.add_option("--model", options.model_path, "GGUF file")->envname("TOKEND_MODEL");
  CLI11_PARSE(app, argc, argv);
  const absl::StatusOr<cpu::Isa> chosen = cpu::ChooseIsa(isa);
  if (!chosen.ok()) {
    std::fprintf(stderr, "%s\n", std::string(chosen.status().message()).c_str());
    return 2;
  }
  options.isa = *chosen;
  return RunAll(names, json, options);
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
