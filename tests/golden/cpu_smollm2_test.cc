// SmolLM2-135M on the CPU backend in every mode, against float32 `transformers`
// on the same weights, printed beside what llama.cpp shows on them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/cpu/cpu_backend.h"
#include "core/gguf/file.h"
#include "core/model/model.h"
#include "gtest/gtest.h"
#include "tests/golden/smollm2_goldens.h"
#include "tests/support/compare.h"
#include "tests/support/paged_runner.h"
#include "tests/support/perplexity.h"
#include "tests/support/test_files.h"

namespace tokend {
namespace {

constexpr int kPageTokens = 16;
constexpr int64_t kMaxTokens = 1200;

// What a mode is held to.
struct Mode {
  base::Activations activations;
  base::KvDtype kv_dtype;
  // Largest and root mean square error of every stored row, as shares of its
  // logits' standard deviation; 0: judged by the statistics below alone. Rounding
  // K and V to f16 in a model that is exact otherwise moves single logits by up to
  // 7e-3 here.
  double row_tolerance = 0;
  double row_rms_tolerance = 0;
  // Mean over the prompts of the largest error among the reference's 20 best
  // log-probabilities of the first new token, as a share of llama.cpp's; 0: not held.
  double share_of_peer_error = 0;
  // Relative change of the perplexity.
  double perplexity_change = 0;
};

std::string ModeName(const Mode& mode) {
  return std::string(base::ActivationsName(mode.activations)) + "_" +
         std::string(base::KvDtypeName(mode.kv_dtype)) + "_kv";
}

double RowError(const std::vector<float>& got, const testing::GoldenRow& want) {
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want.logits[i]));
  }
  return worst / want.std;
}

double TopError(const std::vector<float>& logits, const testing::GoldenTop& top) {
  const std::vector<double> got = testing::LogSoftmax(logits);
  double worst = 0;
  for (size_t i = 0; i < top.ids.size(); ++i) {
    worst = std::max(worst, std::abs(got[static_cast<size_t>(top.ids[i])] - top.logprobs[i]));
  }
  return worst;
}

double Divergence(const std::vector<double>& reference_logits, const std::vector<float>& logits) {
  const std::vector<double> p = testing::LogSoftmax(reference_logits);
  const std::vector<double> q = testing::LogSoftmax(logits);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

class CpuSmolLm2Test : public ::testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    const auto path = testing::SmolLm2File();
    if (!path.has_value()) GTEST_SKIP() << "no SmolLM2 file; ./dev model smollm2 fetches it";
    auto file = gguf::File::Open(*path);
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    auto model = model::Model::Load(*file_, {});
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
    auto backend = cpu::CpuBackend::Create(model_->plan(), {.threads = 2,
                                                            .activations = GetParam().activations,
                                                            .kv_dtype = GetParam().kv_dtype,
                                                            .page_tokens = kPageTokens});
    ASSERT_TRUE(backend.ok()) << backend.status();
    backend_ = *std::move(backend);
    const int layers = static_cast<int>(model_->plan().layers.size());
    const int64_t pages = layers * (kMaxTokens / kPageTokens);
    ASSERT_TRUE(backend_->AllocateArena(pages).ok());
    runner_ = std::make_unique<testing::PagedRunner>(backend_.get(), layers, kPageTokens, pages,
                                                     /*seed=*/1);
    Restart();
    goldens_ = testing::LoadSmolLm2Goldens();
  }

  void Restart() {
    runner_->Release(&sequence_);
    sequence_ = runner_->NewSequence();
  }

  // The logits after each token of `tokens`.
  std::vector<std::vector<float>> Feed(const std::vector<int32_t>& tokens) {
    const auto flat = runner_->Run(&sequence_, tokens, 256);
    EXPECT_TRUE(flat.ok()) << flat.status();
    std::vector<std::vector<float>> rows;
    if (!flat.ok()) return rows;
    const auto width = static_cast<ptrdiff_t>(flat->size() / tokens.size());
    for (auto row = flat->begin(); row != flat->end(); row += width) {
      rows.emplace_back(row, row + width);
    }
    return rows;
  }

  void CheckRows(const std::vector<testing::GoldenRow>& rows,
                 const std::vector<std::vector<float>>& logits) {
    for (const testing::GoldenRow& row : rows) {
      const std::vector<float>& got = logits.at(static_cast<size_t>(row.position));
      const double tolerance = GetParam().row_tolerance;
      if (tolerance > 0) {
        EXPECT_TRUE(testing::Near(got, row.logits, tolerance * row.std))
            << "position " << row.position;
        EXPECT_LT(testing::RootMeanSquareError(got, row.logits),
                  GetParam().row_rms_tolerance * row.std)
            << "position " << row.position;
      }
      worst_row_ = std::max(worst_row_, RowError(got, row));
    }
  }

  // Feeds the reference's own continuation; the likeliest token must be the
  // reference's wherever its two best differ by more than the tolerance allows.
  void CheckGreedy(const testing::SmolLm2Prompt& prompt, std::vector<float> logits) {
    const double doubt = 2 * GetParam().row_tolerance * prompt.rows.back().std;
    for (size_t i = 0; i < prompt.greedy.size(); ++i) {
      const auto best =
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      same_ += best == prompt.greedy[i];
      ++drawn_;
      if (GetParam().row_tolerance > 0 && prompt.gap[i] > doubt) {
        EXPECT_EQ(best, prompt.greedy[i]) << "output token " << i << ", gap " << prompt.gap[i];
      }
      logits = Feed({prompt.greedy[i]}).back();
    }
  }

  std::unique_ptr<gguf::File> file_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<cpu::CpuBackend> backend_;
  std::unique_ptr<testing::PagedRunner> runner_;
  testing::PagedRunner::Sequence sequence_;
  testing::SmolLm2Goldens goldens_;
  double worst_row_ = 0;
  int same_ = 0;
  int drawn_ = 0;
};

TEST_P(CpuSmolLm2Test, Prompts) {
  std::printf("%-16s %12s %12s\n", ModeName(GetParam()).c_str(), "top-20 error", "llama.cpp");
  double sum = 0;
  for (const testing::SmolLm2Prompt& prompt : goldens_.prompts) {
    SCOPED_TRACE(prompt.name);
    Restart();
    const auto logits = Feed(prompt.ids);
    ASSERT_EQ(logits.size(), prompt.ids.size());
    CheckRows(prompt.rows, logits);
    const double error = TopError(logits.back(), prompt.top.front());
    sum += error;
    std::printf("%-16s %12.6f %12.6f\n", prompt.name.c_str(), error, prompt.peer_first_error);
    CheckGreedy(prompt, logits.back());
  }
  const double mean = sum / static_cast<double>(goldens_.prompts.size());
  std::printf("%-16s %12.6f %12.6f; worst row %.2e of std, %d of %d tokens greedy-equal\n", "mean",
              mean, goldens_.peer_mean_first_error, worst_row_, same_, drawn_);
  if (GetParam().share_of_peer_error > 0) {
    EXPECT_LT(mean, GetParam().share_of_peer_error * goldens_.peer_mean_first_error);
  }
}

TEST_P(CpuSmolLm2Test, Text) {
  const testing::SmolLm2Text& text = goldens_.text;
  const auto logits = Feed(text.ids);
  ASSERT_EQ(logits.size(), text.ids.size());
  CheckRows(text.rows, logits);
  double divergence = 0;
  for (const testing::GoldenRow& row : text.rows) {
    divergence += Divergence(row.logits, logits[static_cast<size_t>(row.position)]);
  }
  divergence /= static_cast<double>(text.rows.size());
  testing::Perplexity sum;
  for (size_t i = 0; i + 1 < text.ids.size(); ++i) sum.Add(logits[i], text.ids[i + 1]);
  const double perplexity = sum.value();
  std::printf(
      "%-16s perplexity %.4f (reference %.4f, llama.cpp %.4f), divergence %.2e "
      "(llama.cpp %.2e), worst row %.2e of std\n",
      ModeName(GetParam()).c_str(), perplexity, text.perplexity, text.peer_perplexity, divergence,
      text.peer_kl, worst_row_);
  EXPECT_NEAR(perplexity, text.perplexity, GetParam().perplexity_change * text.perplexity);
  EXPECT_LT(divergence, text.peer_kl);
}

using base::Activations;
using base::KvDtype;

INSTANTIATE_TEST_SUITE_P(
    Modes, CpuSmolLm2Test,
    ::testing::Values(Mode{Activations::kF32, KvDtype::kF32, 1e-4, 1e-4, 1e-3, 1e-5},
                      Mode{Activations::kF32, KvDtype::kF16, 1e-2, 2e-3, 0.1, 1e-3},
                      Mode{Activations::kInt16, KvDtype::kF16, 0, 0, 0.1, 1e-3},
                      Mode{Activations::kInt8, KvDtype::kF16, 0, 0, 1, 5e-3},
                      Mode{Activations::kInt16, KvDtype::kInt8, 0, 0, 1, 5e-3}),
    [](const auto& p) { return ModeName(p.param); });

}  // namespace
}  // namespace tokend
