// LogProbabilities against the double reference.
#include "cuda_kernels/kernels/log_probabilities.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "core/sampling/sampler_ref.h"
#include "tests/cuda_kernels/device_array.h"

namespace tokend::cuda {
namespace {

class LogProbabilitiesTest : public DeviceTest {
 protected:
  struct Result {
    std::vector<float> own;
    std::vector<TopToken> top;
  };

  static Result Run(const std::vector<std::vector<float>>& rows, const std::vector<int32_t>& tokens,
                    int top_count) {
    const size_t vocabulary = rows[0].size(), stride = vocabulary + 3;
    std::vector<float> logits(rows.size() * stride);
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy(rows[i].begin(), rows[i].end(), logits.begin() + i * stride);
    }
    const DeviceArray<float> device_logits(logits);
    const DeviceArray<int32_t> device_tokens(tokens);
    DeviceArray<float> own(rows.size());
    DeviceArray<TopToken> top(rows.size() * static_cast<size_t>(top_count));
    LogProbabilityParams params;
    params.rows = static_cast<int>(rows.size());
    params.vocabulary = static_cast<int>(vocabulary);
    DeviceArray<unsigned char> workspace(
        LogProbabilityWorkspaceBytes(params.rows, params.vocabulary));
    params.logits = device_logits.data();
    params.stride = static_cast<int64_t>(stride);
    params.tokens = device_tokens.data();
    params.top_count = top_count;
    params.log_probabilities = own.data();
    params.top = top.data();
    params.workspace = workspace.data();
    const absl::Status status = LogProbabilities(params, nullptr);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return {own.Download(), top.Download()};
  }

  static std::vector<float> Random(int vocabulary, float deviation, bool ties, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> logits(static_cast<size_t>(vocabulary));
    for (float& logit : logits) logit = ties ? std::round(normal(random)) : normal(random);
    return logits;
  }

  static void ExpectRow(const Result& got, size_t row, const std::vector<float>& logits,
                        int32_t token, int top_count) {
    const std::vector<double> want = sampling::LogProbabilitiesRef(logits);
    const auto near = [&](float value, int32_t id) {
      const double expected = want[static_cast<size_t>(id)];
      EXPECT_NEAR(value, expected, 1e-6 * std::max(1.0, std::abs(expected)));
    };
    near(got.own[row], token);
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
    for (int i = 0; i < top_count; ++i) {
      const TopToken& top = got.top[row * static_cast<size_t>(top_count) + i];
      const bool there = i < static_cast<int>(ids.size());
      ASSERT_EQ(top.token, there ? ids[i] : -1) << "rank " << i;
      if (there) near(top.log_probability, top.token);
    }
  }
};

TEST_F(LogProbabilitiesTest, MatchTheReference) {
  for (const int vocabulary : {1, 5, 128, 129, 2500}) {
    for (const int top_count : {0, 1, 20, 64}) {
      const std::vector<std::vector<float>> rows = {Random(vocabulary, 3, false, 1),
                                                    Random(vocabulary, 200, false, 2),
                                                    Random(vocabulary, 2, true, 3)};
      const std::vector<int32_t> tokens = {0, vocabulary - 1, vocabulary / 2};
      const Result got = Run(rows, tokens, top_count);
      for (size_t row = 0; row < rows.size(); ++row) {
        SCOPED_TRACE(testing::Message() << vocabulary << " top " << top_count << " row " << row);
        ExpectRow(got, row, rows[row], tokens[row], top_count);
      }
    }
  }
}

TEST_F(LogProbabilitiesTest, TiesBeyondTheListComeByAscendingId) {
  std::vector<float> logits(4000, 1.0f);
  logits[3333] = 2;
  const Result got = Run({logits, logits}, {7, -1}, 5);
  ExpectRow(got, 0, logits, 7, 5);
}

TEST_F(LogProbabilitiesTest, RefusesMoreThanItTakes) {
  LogProbabilityParams params;
  params.rows = 1;
  params.top_count = kMaxTopTokens + 1;
  EXPECT_EQ(LogProbabilities(params, nullptr).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tokend::cuda
