#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/base/status_macros.h"
#include "core/cpu/activation_blocks.h"
#include "core/cpu/huge_pages.h"
#include "core/cpu/matmul.h"
#include "core/cpu/packed_matrix.h"
#include "tests/bench/bench.h"
#include "tests/support/random_weights.h"

namespace tokend::bench {
namespace {

using base::Activations;
using base::WeightType;
using cpu::ActivationBlocks;
using cpu::PackedMatrix;

// SmolLM2-135M's feed-forward: gate and up as one matrix, then down.
struct Shape {
  int64_t outputs, inputs;
};
constexpr Shape kShapes[] = {{3072, 576}, {576, 1536}};
// Types with blocks of 256 need rows of that many weights.
constexpr Shape kSuperShapes[] = {{3072, 768}, {768, 1536}};
constexpr int kLayers = 30;
constexpr int64_t kMostRows = 512;
constexpr int64_t kChunkBytes = 24 << 10;
constexpr int64_t kRowsPerChunk = 128;

// A model's worth of packed matrices.
struct Weights {
  cpu::WeightArena arena;
  std::vector<PackedMatrix> matrices;
};

absl::StatusOr<Weights> MakeWeights(WeightType type, cpu::ThreadPool* pool) {
  std::mt19937_64 random(1);
  std::vector<std::string> bytes;
  std::vector<ops::Matrix> sources;
  int64_t layer_bytes = 0;
  const bool super = base::GetWeightType(type).block_elements == 256;
  for (int i = 0; i < 2; ++i) {
    const Shape shape = super ? kSuperShapes[i] : kShapes[i];
    bytes.push_back(testing::RandomWeights(
        type, static_cast<uint64_t>(shape.outputs * shape.inputs), 0.05f, random));
    sources.push_back({type, shape.outputs, shape.inputs,
                       reinterpret_cast<const std::byte*>(bytes.back().data())});
  }
  for (const ops::Matrix& source : sources) {
    layer_bytes += cpu::WeightArena::Rounded(PackedMatrix::PackedBytes(source));
  }
  Weights weights;
  TOKEND_ASSIGN_OR_RETURN(weights.arena, cpu::WeightArena::Create(kLayers * layer_bytes));
  for (int layer = 0; layer < kLayers; ++layer) {
    for (const ops::Matrix& source : sources) {
      PackedMatrix matrix(source, weights.arena.Take(PackedMatrix::PackedBytes(source)));
      pool->RunPhase(matrix.panels(),
                     [&](int64_t panel, int) { matrix.PackPanels(source, panel, panel + 1); });
      weights.matrices.push_back(matrix);
    }
  }
  return weights;
}

// x times one matrix, as a phase.
void Multiply(cpu::ThreadPool* pool, cpu::Isa isa, const PackedMatrix& matrix,
              const ActivationBlocks& x, int64_t rows, float* out) {
  const int64_t panels = std::max<int64_t>(1, kChunkBytes / matrix.panel_bytes());
  const int64_t groups = (matrix.panels() + panels - 1) / panels;
  const int64_t row_groups = (rows + kRowsPerChunk - 1) / kRowsPerChunk;
  pool->RunPhase(groups * row_groups, [&](int64_t chunk, int) {
    const int64_t row = chunk / groups * kRowsPerChunk;
    const int64_t panel = chunk % groups * panels;
    cpu::MatmulPanels(isa, matrix, x, row, std::min(rows, row + kRowsPerChunk), panel,
                      std::min(matrix.panels(), panel + panels), out, matrix.rows());
  });
}

class KernelBench {
 public:
  KernelBench(const Options& options, cpu::ThreadPool* pool, Report* report)
      : isa_(options.isa), pool_(pool), report_(report) {}

  absl::Status Run(WeightType type, const std::vector<Activations>& modes) {
    TOKEND_ASSIGN_OR_RETURN(const Weights weights, MakeWeights(type, pool_));
    TOKEND_ASSIGN_OR_RETURN(bandwidth_, ReadBandwidth(pool_, weights.arena.size()));
    out_.resize(static_cast<size_t>(kMostRows * kShapes[0].outputs));
    for (const Activations mode : modes) {
      std::vector<ActivationBlocks> inputs;
      for (int i = 0; i < 2; ++i) {
        TOKEND_ASSIGN_OR_RETURN(inputs.emplace_back(), MakeInput(mode, weights.matrices[i].cols()));
      }
      const std::string name = absl::StrCat(absl::AsciiStrToLower(base::GetWeightType(type).name),
                                            "_", base::ActivationsName(mode));
      for (const int64_t rows : {int64_t{512}, int64_t{64}, int64_t{8}}) {
        Prefill(weights, inputs, rows, mode, name);
      }
      Decode(weights, inputs, name);
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<ActivationBlocks> MakeInput(Activations mode, int64_t cols) {
    TOKEND_ASSIGN_OR_RETURN(ActivationBlocks blocks,
                            ActivationBlocks::Create(mode, kMostRows, cols, isa_));
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = 0; r < kMostRows; ++r) {
      for (float& value : row) value = normal(random);
      blocks.SetRow(r, row.data());
    }
    return blocks;
  }

  // One layer, again and again.
  void Prefill(const Weights& weights, const std::vector<ActivationBlocks>& inputs, int64_t rows,
               Activations mode, const std::string& name) {
    double operations = 0;
    for (int i = 0; i < 2; ++i) {
      operations +=
          2.0 * static_cast<double>(rows * weights.matrices[i].rows() * weights.matrices[i].cols());
    }
    const double seconds = SecondsPerCall([&] {
      for (int i = 0; i < 2; ++i) {
        Multiply(pool_, isa_, weights.matrices[i], inputs[i], rows, out_.data());
      }
    });
    const double rate = operations / seconds;
    const bool f32 = mode == Activations::kF32;
    const double peak = f32 ? F32Peak() : Int8Peak();
    const std::string full_name = absl::StrCat("prefill_", rows, "_", name);
    report_->Add(full_name, rate / 1e9, "GOP/s");
    if (peak > 0) {
      report_->Add(absl::StrCat(full_name, "_share"), 100 * rate / peak,
                   f32 ? "% of fp32 peak" : "% of int8 peak");
    }
  }

  // All layers, one row.
  void Decode(const Weights& weights, const std::vector<ActivationBlocks>& inputs,
              const std::string& name) {
    const double seconds = SecondsPerCall([&] {
      for (size_t i = 0; i < weights.matrices.size(); ++i) {
        Multiply(pool_, isa_, weights.matrices[i], inputs[i % 2], 1, out_.data());
      }
    });
    const double rate = static_cast<double>(weights.arena.used()) / seconds;
    report_->Add("decode_" + name, rate / 1e9, "GB/s");
    report_->Add("decode_" + name + "_share", 100 * rate / bandwidth_, "% of read bandwidth");
  }

  double Int8Peak() {
    if (int8_peak_ < 0) int8_peak_ = Int8PeakOpsPerSecond(pool_, isa_);
    return int8_peak_;
  }
  double F32Peak() {
    if (f32_peak_ < 0) f32_peak_ = F32PeakOpsPerSecond(pool_, isa_);
    return f32_peak_;
  }

  const cpu::Isa isa_;
  cpu::ThreadPool* const pool_;
  Report* const report_;
  double bandwidth_ = 0;
  double int8_peak_ = -1;
  double f32_peak_ = -1;
  std::vector<float> out_;
};

}  // namespace

absl::Status RunKernels(const Options& options, Report* report) {
  cpu::ThreadPoolOptions pool_options;
  pool_options.threads = options.threads;
  TOKEND_ASSIGN_OR_RETURN(const std::unique_ptr<cpu::ThreadPool> pool,
                          cpu::ThreadPool::Create(pool_options));
  KernelBench bench(options, pool.get(), report);
  const std::vector<Activations> ints = {Activations::kInt8, Activations::kInt16};
  for (const WeightType type : {WeightType::kQ4_1, WeightType::kQ4_0, WeightType::kQ8_0,
                                WeightType::kQ4_K, WeightType::kQ6_K}) {
    TOKEND_RETURN_IF_ERROR(bench.Run(type, ints));
  }
  return bench.Run(WeightType::kF16, {Activations::kF32});
}

}  // namespace tokend::bench
