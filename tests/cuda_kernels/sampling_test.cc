// SampleRows draws the very tokens of sampling::Sampler.
#include "cuda_kernels/kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "absl/types/span.h"
#include "core/sampling/sampler.h"
#include "tests/cuda_kernels/device_array.h"

namespace tokend::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// A row to draw from, as the host has it.
struct HostRow {
  std::vector<float> logits;
  ops::SamplingParams params;
  int64_t position = 0;
  std::vector<int32_t> context, output;

  sampling::PenaltyState Penalties(bool all_output = true) const {
    sampling::PenaltyState state(params);
    state.AddContext(context);
    for (size_t i = 0; i + (all_output ? 0 : 1) < output.size(); ++i) state.AddOutput(output[i]);
    return state;
  }

  // The last output token may be left to SampleParams::newest.
  std::vector<TokenAdjustment> Adjustments(bool all_output) const {
    std::map<int32_t, TokenAdjustment> all;
    for (const auto& [token, bias] : params.logit_bias) all[token].bias = bias;
    const sampling::PenaltyState penalties = Penalties(all_output);
    for (const auto& [token, counts] : penalties.counts()) {
      all[token].in_window = counts.window;
      all[token].in_output = counts.output;
    }
    std::vector<TokenAdjustment> list;
    for (auto& [token, adjustment] : all) {
      adjustment.token = token;
      list.push_back(adjustment);
    }
    return list;
  }

  // What SampleRows must write.
  int32_t Expected() const {
    sampling::Sampler sampler;
    const auto token = sampler.Sample(logits, params, Penalties(), position);
    if (token.ok()) return *token;
    if (token.status().code() == absl::StatusCode::kInvalidArgument) return kEveryTokenForbidden;
    const auto bad = std::find_if_not(logits.begin(), logits.end(),
                                      [](float logit) { return std::isfinite(logit); });
    return -1 - static_cast<int32_t>(bad - logits.begin());
  }
};

class RandomRows {
 public:
  explicit RandomRows(uint64_t seed) : random_(seed) {}

  int Below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  float Uniform(float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random_);
  }

  HostRow Row(int vocabulary, bool lists) {
    HostRow row;
    row.logits.resize(static_cast<size_t>(vocabulary));
    std::normal_distribution<float> normal(0, std::pow(10.0f, Uniform(-2, 1.3f)));
    const bool ties = Below(3) == 0;  // whole numbers make many
    for (float& logit : row.logits) logit = ties ? std::round(normal(random_)) : normal(random_);
    const int choice = Below(8);
    row.params.temperature = choice == 0   ? 0.0f
                             : choice == 1 ? 1e-4f
                             : choice == 2 ? 100.0f
                                           : Uniform(0.01f, 3);
    row.params.top_k = Below(3) == 0 ? 0 : Below(3) == 0 ? Below(vocabulary + 2) : Below(50);
    row.params.top_p = Below(3) == 0 ? 1 : Uniform(1e-4f, 1);
    row.params.min_p = Below(3) == 0 ? 0 : Uniform(0, Below(2) == 0 ? 1 : 0.05f);
    row.params.seed = random_();
    row.position = static_cast<int64_t>(random_() >> 8);
    if (lists) AddLists(vocabulary, &row);
    return row;
  }

 private:
  void AddLists(int vocabulary, HostRow* row) {
    if (Below(2) == 0) row->params.repetition_penalty = Uniform(0.5f, 2);
    if (Below(2) == 0) row->params.presence_penalty = Uniform(-2, 2);
    if (Below(2) == 0) row->params.frequency_penalty = Uniform(-2, 2);
    for (int id = 0; id + 1 < vocabulary && Below(30) != 0; id += 1 + Below(5)) {
      row->params.logit_bias.emplace_back(id, Below(3) == 0 ? -100 : Uniform(-100, 100));
    }
    row->context.resize(static_cast<size_t>(Below(60)));
    row->output.resize(static_cast<size_t>(Below(60)));
    for (int32_t& token : row->context) token = Below(std::min(vocabulary, 300));
    for (int32_t& token : row->output) token = Below(std::min(vocabulary, 40));
  }

  std::mt19937_64 random_;
};

class SamplingTest : public DeviceTest {
 protected:
  // `newest`: the device learns of the last output tokens by themselves.
  static std::vector<int32_t> Run(const std::vector<HostRow>& rows, bool lists, bool newest) {
    const size_t vocabulary = rows[0].logits.size(), stride = vocabulary + 5;
    std::vector<float> logits(rows.size() * stride);
    std::vector<SamplingRow> row_params;
    std::vector<TokenAdjustment> adjustments;
    std::vector<int32_t> newest_tokens;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy(rows[i].logits.begin(), rows[i].logits.end(), logits.begin() + i * stride);
      SamplingRow& row = row_params.emplace_back(MakeSamplingRow(rows[i].params, rows[i].position));
      const bool last = newest && !rows[i].output.empty() && Penalises(rows[i].params);
      newest_tokens.push_back(last ? rows[i].output.back() : -1);
      if (!lists) continue;
      const auto list = rows[i].Adjustments(!last);
      row.first_adjustment = static_cast<int32_t>(adjustments.size());
      row.adjustment_count = static_cast<int32_t>(list.size());
      adjustments.insert(adjustments.end(), list.begin(), list.end());
    }
    const int capacity = lists ? static_cast<int>(adjustments.size()) + 3 : 0;
    DeviceArray<float> device_logits(logits);
    const DeviceArray<SamplingRow> device_rows(row_params);
    const DeviceArray<TokenAdjustment> device_adjustments(adjustments);
    const DeviceArray<int32_t> device_newest(newest_tokens);
    DeviceArray<int32_t> tokens(rows.size());
    DeviceArray<unsigned char> workspace(SamplingWorkspaceBytes(
        static_cast<int>(rows.size()), static_cast<int>(vocabulary), capacity));
    SampleParams params;
    params.rows = static_cast<int>(rows.size());
    params.vocabulary = static_cast<int>(vocabulary);
    params.logits = device_logits.data();
    params.stride = static_cast<int64_t>(stride);
    params.row_params = device_rows.data();
    params.adjustments = device_adjustments.data();
    params.adjustment_capacity = capacity;
    params.newest = newest ? device_newest.data() : nullptr;
    params.tokens = tokens.data();
    params.workspace = workspace.data();
    const absl::Status status = SampleRows(params, nullptr);
    EXPECT_TRUE(status.ok()) << status.ToString();
    const std::vector<float> after = device_logits.Download();
    EXPECT_EQ(std::memcmp(after.data(), logits.data(), logits.size() * sizeof(float)), 0);
    return tokens.Download();
  }

  static bool Penalises(const ops::SamplingParams& params) {
    return params.repetition_penalty != 1 && params.presence_penalty != 0;
  }

  static void ExpectSame(const std::vector<HostRow>& rows, bool lists, bool newest) {
    const std::vector<int32_t> got = Run(rows, lists, newest);
    for (size_t i = 0; i < rows.size(); ++i) {
      const ops::SamplingParams& params = rows[i].params;
      ASSERT_EQ(got[i], rows[i].Expected())
          << "row " << i << " of vocabulary " << rows[i].logits.size() << " temperature "
          << params.temperature << " top_k " << params.top_k << " top_p " << params.top_p
          << " min_p " << params.min_p;
    }
  }
};

TEST_F(SamplingTest, DrawsTheHostsTokens) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomRows random(seed);
    const int sizes[] = {1, 2, 127, 128, 129, 1000, 2049, 3000};
    const int vocabulary = sizes[seed % 8];
    const bool lists = seed % 3 == 0;
    std::vector<HostRow> rows;
    for (int i = 0; i < 6; ++i) rows.push_back(random.Row(vocabulary, lists));
    ExpectSame(rows, lists, seed % 2 == 0);
    if (HasFatalFailure()) return;
  }
}

// Whatever the list of best tokens cannot tell: ties beyond it, flat distributions,
// large k.
TEST_F(SamplingTest, DrawsTheHostsTokensFromTheWholeRow) {
  RandomRows random(7);
  constexpr int kVocabulary = 9001;
  for (const float top_p : {1.0f, 0.97f}) {
    for (const float min_p : {0.0f, 1e-3f}) {
      std::vector<HostRow> rows;
      for (const int top_k : {0, 40, 2500, 9000, 9001}) {
        for (const bool flat : {false, true}) {
          HostRow row = random.Row(kVocabulary, false);
          row.params.temperature = 2;
          row.params.top_k = top_k;
          row.params.top_p = top_p;
          row.params.min_p = min_p;
          for (float& logit : row.logits) logit = flat ? 1.5f : random.Uniform(0, 2);
          rows.push_back(row);
        }
      }
      ExpectSame(rows, false, false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(SamplingTest, ARealVocabulary) {
  RandomRows random(9);
  std::vector<HostRow> rows;
  for (int i = 0; i < 3; ++i) {
    HostRow row = random.Row(49152, false);
    row.params.temperature = 0.8f;
    row.params.top_k = i == 0 ? 40 : 0;
    row.params.top_p = 0.95f;
    row.params.min_p = 0.05f;
    for (float& logit : row.logits) logit *= 3;
    rows.push_back(row);
  }
  ExpectSame(rows, false, false);
}

TEST_F(SamplingTest, ReportsLogitsThatAreNotFinite) {
  RandomRows random(3);
  std::vector<HostRow> rows;
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::quiet_NaN()}) {
    for (const int at : {0, 130, 499}) {
      HostRow row = random.Row(500, true);
      row.logits[static_cast<size_t>(at)] = bad;
      if (at == 130) row.logits[300] = bad;
      row.params.logit_bias = {{0, 1.0f}, {130, at == 0 ? -100.0f : 3.0f}};
      rows.push_back(row);
    }
  }
  ExpectSame(rows, true, false);
}

TEST_F(SamplingTest, ReportsRowsOfForbiddenTokens) {
  RandomRows random(3);
  HostRow row = random.Row(5, false);
  for (int32_t id = 0; id < 5; ++id) row.params.logit_bias.emplace_back(id, -100.0f);
  HostRow one_left = row;
  one_left.params.logit_bias.pop_back();
  EXPECT_EQ(Run({row, one_left}, true, false), std::vector<int32_t>({kEveryTokenForbidden, 4}));
}

// The newest token is the best by far until its penalty is applied.
TEST_F(SamplingTest, TheNewestTokenCountsBeforeTheHostKnowsIt) {
  RandomRows random(5);
  for (const bool known : {false, true}) {  // from before
    HostRow row = random.Row(300, false);
    row.params.temperature = 0;
    row.params.repetition_penalty = 1.5f;
    row.params.presence_penalty = 0.1f;
    row.logits.assign(300, -10.0f);
    row.logits[70] = 50;
    row.logits[90] = 23;
    row.output = known ? std::vector<int32_t>{70, 70, 70} : std::vector<int32_t>{9, 9, 70};
    row.params.frequency_penalty = known ? 4 : 11;
    EXPECT_EQ(row.Expected(), 90);
    ExpectSame({row}, true, true);
    row.output.pop_back();
    EXPECT_EQ(row.Expected(), 70);
  }
}

// Every token that ties with the last of k may be drawn.
TEST_F(SamplingTest, KeepsTiesAtK) {
  std::vector<HostRow> rows;
  for (int position = 0; position < 24; ++position) {
    HostRow row;
    row.logits.assign(200, -5.0f);
    for (const int id : {3, 50, 130, 199}) row.logits[static_cast<size_t>(id)] = 2;
    row.params.temperature = 1;
    row.params.top_k = 2;
    row.params.top_p = 1;
    row.params.min_p = 0;
    row.position = position;
    rows.push_back(row);
  }
  ExpectSame(rows, false, false);
  const std::vector<int32_t> tokens = Run(rows, false, false);
  EXPECT_THAT(tokens, testing::Contains(199));
  EXPECT_THAT(tokens, testing::Each(testing::AnyOf(3, 50, 130, 199)));
}

TEST_F(SamplingTest, ARowDoesNotDependOnOthers) {
  RandomRows random(4);
  std::vector<HostRow> rows;
  for (int i = 0; i < 5; ++i) rows.push_back(random.Row(700, true));
  const std::vector<int32_t> together = Run(rows, true, true);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(Run({rows[i]}, true, true)[0], together[i]);
}

}  // namespace
}  // namespace tokend::cuda
