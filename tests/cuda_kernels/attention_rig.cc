#include "tests/cuda_kernels/attention_rig.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/ops/half.h"
#include "core/ops/rope.h"
#include "tests/support/compare.h"

namespace tokend::cuda {
namespace {

using testing::kEpsF16;
using testing::kEpsF32;

constexpr float kNormEpsilon = 1e-6f;
// Of a pair of f16: what remains of x - hi - lo.
constexpr double kEpsPair = 0x1p-22;

std::vector<float> Normal(size_t size, float mean, float deviation, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(mean, deviation);
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

double Decode(const unsigned char* at, bool int8, double scale) {
  if (int8) return scale * static_cast<int8_t>(*at);
  return ops::F16ToF32(*reinterpret_cast<const uint16_t*>(at));
}

}  // namespace

AttentionRig::AttentionRig(const AttentionCase& test, int sequences, int64_t tokens)
    : test_(test),
      tokens_(tokens),
      width_((test.heads + 2 * test.kv_heads) * test.head_dim),
      query_weight_(Normal(test.head_dim, 1, 0.2f, 5)),
      key_weight_(Normal(test.head_dim, 1, 0.2f, 6)),
      query_weight_device_(query_weight_),
      key_weight_device_(key_weight_),
      frequencies_(static_cast<size_t>(
          std::max(1, (test.rope_dims < 0 ? test.head_dim : test.rope_dims) / 2))),
      saturations_(std::vector<unsigned>{0}) {
  layout_ = {test.int8, test.page_tokens, test.kv_heads, test.head_dim};
  rope_.pairing = test.pairing;
  rope_.dims = test.rope_dims < 0 ? test.head_dim : test.rope_dims;
  for (int i = 0; i < rope_.dims / 2; ++i) {
    rope_.inverse_frequencies.push_back(std::pow(10000.0, -2.0 * i / rope_.dims));
  }
  if (rope_.dims > 0) frequencies_.Upload(rope_.inverse_frequencies);
  const int64_t each = tokens / test.page_tokens + 1;
  std::vector<uint32_t> places(static_cast<size_t>(sequences * each));
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<uint32_t>(i + 1);
  std::shuffle(places.begin(), places.end(), std::mt19937_64(test.placement));
  next_.resize(static_cast<size_t>(sequences));
  for (int s = 0; s < sequences; ++s) {
    pages_.emplace_back(places.begin() + s * each, places.begin() + (s + 1) * each);
  }
  const auto arena_bytes = (static_cast<int64_t>(places.size()) + 2) * layout_.page_bytes();
  arena_ = std::make_unique<DeviceArray<unsigned char>>(static_cast<size_t>(arena_bytes));
  const auto items = static_cast<int>(sequences * (tokens / kPieceTokens + 4));
  workspace_ = std::make_unique<DeviceArray<unsigned char>>(std::vector<unsigned char>(
      static_cast<size_t>(AttentionWorkspaceBytes(layout_, test.heads, items))));
}

std::vector<float> AttentionRig::Row(int sequence, int64_t position) const {
  return Normal(static_cast<size_t>(width_), 0, test_.spread,
                static_cast<uint64_t>(sequence * 1000003 + position));
}

AttentionRig::Table AttentionRig::TableOf(int sequence, int64_t first, int64_t last) const {
  Table table;
  const std::vector<uint32_t>& own = pages_[static_cast<size_t>(sequence)];
  const ops::AttentionMask& mask = test_.mask;
  const int64_t begin = mask.WindowBegin(first) / layout_.page_tokens;
  const int64_t sink_pages =
      mask.SeesSinks(first) ? std::min(begin, (mask.SinkEnd() - 1) / layout_.page_tokens + 1) : 0;
  for (int64_t i = 0; i < sink_pages; ++i) {
    table.pages.push_back(static_cast<base::PageId>(own[static_cast<size_t>(i)]));
  }
  for (int64_t i = begin; i <= last / layout_.page_tokens; ++i) {
    table.pages.push_back(static_cast<base::PageId>(own[static_cast<size_t>(i)]));
  }
  table.kv.sink_pages = static_cast<int32_t>(sink_pages);
  table.kv.first_page = begin;
  table.kv.page_count = static_cast<int32_t>(table.pages.size());
  table.kv.mask = mask;
  return table;
}

void AttentionRig::DropPages(int sequence, int64_t position) {
  const Table table = TableOf(sequence, position, position);
  for (int64_t i = table.kv.sink_pages; i < table.kv.first_page; ++i) {
    const int64_t page = pages_[static_cast<size_t>(sequence)][static_cast<size_t>(i)];
    cudaMemset(arena_->data() + page * layout_.page_bytes(), 0xff,
               static_cast<size_t>(layout_.page_bytes()));
  }
}

std::vector<AttendedRow> AttentionRig::Step(const std::vector<StepPart>& parts) {
  keys_.clear();
  values_.clear();
  std::vector<Table> tables;
  std::vector<ops::StepSequence> sequences;
  std::vector<float> qkv;
  std::vector<AttendedRow> out;
  int32_t rows = 0;
  tables.reserve(parts.size());
  for (const StepPart& part : parts) {
    int64_t& next = next_[static_cast<size_t>(part.sequence)];
    DropPages(part.sequence, next);
    tables.push_back(TableOf(part.sequence, next, next + part.rows - 1));
    Table& table = tables.back();
    table.kv.pages = table.pages.data();
    table.kv.attend_begin = part.attend_begin;
    table.kv.store_begin = part.store_begin;
    sequences.push_back({rows, part.rows, next, absl::MakeConstSpan(&table.kv, 1)});
    rows += part.rows;
    for (int i = 0; i < part.rows; ++i) {
      const std::vector<float> row = Row(part.sequence, next);
      qkv.insert(qkv.end(), row.begin(), row.end());
      out.push_back({part.sequence, next++, {}, {}});
    }
  }
  const std::vector<int32_t> tokens(static_cast<size_t>(rows));
  const ops::StepBatch batch = {tokens, sequences, {}};
  StepTableWriter writer({.rows = rows,
                          .sequences = static_cast<int>(parts.size()),
                          .layers = 1,
                          .context_tokens = tokens_,
                          .page_tokens = test_.page_tokens,
                          .tile_tokens = AttentionTileTokens(layout_, test_.heads, test_.pair),
                          .decode = test_.decode && !test_.pair});
  std::vector<std::byte> block(static_cast<size_t>(writer.block_bytes()));
  const auto shape = writer.Write(batch, absl::MakeSpan(block));
  EXPECT_TRUE(shape.ok()) << shape.status();
  block.resize(static_cast<size_t>(shape->used_bytes));
  const DeviceArray<std::byte> device_block(block);
  const DeviceArray<float> device_qkv(qkv);
  const auto angles = static_cast<size_t>(writer.max_angle_rows() * std::max(1, rope_.dims / 2));
  DeviceArray<float> cos(angles), sin(angles);
  const auto out_size = static_cast<size_t>(rows * test_.heads * test_.head_dim);
  DeviceArray<uint16_t> high(out_size), low(test_.pair ? out_size : 0);

  AttentionParams params;
  params.step = writer.View(device_block.data());
  params.kv = layout_;
  params.arena = arena_->data();
  params.heads = test_.heads;
  params.qkv = device_qkv.data();
  params.qkv_stride = width_;
  if (test_.norm) {
    params.query_norm = {NormKind::kRms, query_weight_device_.data(), nullptr, kNormEpsilon};
    params.key_norm = {NormKind::kRms, key_weight_device_.data(), nullptr, kNormEpsilon};
  }
  params.rope = {cos.data(), sin.data(), rope_.dims, rope_.pairing == ops::RopePairing::kHalves};
  params.scale = 1.0f / std::sqrt(static_cast<float>(test_.head_dim));
  params.soft_cap = test_.soft_cap;
  params.out = {reinterpret_cast<__half*>(high.data()),
                test_.pair ? reinterpret_cast<__half*>(low.data()) : nullptr,
                int64_t{test_.heads} * test_.head_dim};
  params.workspace = workspace_->data();
  params.workspace_bytes = static_cast<int64_t>(workspace_->size());
  params.saturations = saturations_.data();
  const RopeAnglesParams angle_params = {params.step.counts,  params.step.angle_positions,
                                         frequencies_.data(), 1,
                                         params.rope,         writer.max_angle_rows()};
  DeviceInfo device;
  device.multiprocessors = 2;
  device.shared_bytes_per_multiprocessor = test_.shared_bytes;
  EXPECT_EQ(RopeAngles(angle_params, nullptr), absl::OkStatus());
  EXPECT_EQ(AppendKv(params, shape->counts.append_tile_count, nullptr), absl::OkStatus());
  EXPECT_EQ(DecodeAttention(params, device, shape->decode_items, nullptr), absl::OkStatus());
  EXPECT_EQ(PrefillAttention(params, device, shape->counts.attention_tile_count, nullptr),
            absl::OkStatus());
  const std::vector<uint16_t> all = high.Download();
  const std::vector<uint16_t> all_low = low.Download();
  const auto each = static_cast<size_t>(test_.heads * test_.head_dim);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].high.assign(all.begin() + i * each, all.begin() + (i + 1) * each);
    if (test_.pair) out[i].low.assign(all_low.begin() + i * each, all_low.begin() + (i + 1) * each);
  }
  return out;
}

std::vector<AttendedRow> AttentionRig::Run(int sequence, int64_t tokens, int chunk) {
  std::vector<AttendedRow> all;
  while (next_[static_cast<size_t>(sequence)] < tokens) {
    const int64_t left = tokens - next_[static_cast<size_t>(sequence)];
    const int rows = static_cast<int>(std::min<int64_t>(chunk, left));
    for (AttendedRow& row : Step({{sequence, rows}})) all.push_back(std::move(row));
  }
  return all;
}

void AttentionRig::Prepare(const RowNorm& norm, const std::vector<float>& weight, int64_t from,
                           absl::Span<double> heads) const {
  const auto dim = static_cast<size_t>(test_.head_dim);
  for (size_t at = 0; norm.weight != nullptr && at < heads.size(); at += dim) {
    double squares = 0;
    for (size_t i = 0; i < dim; ++i) squares += heads[at + i] * heads[at + i];
    const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + norm.epsilon);
    for (size_t i = 0; i < dim; ++i) heads[at + i] *= scale * weight[i];
  }
  ops::RopeRef(rope_, from, test_.head_dim, heads);
}

std::vector<double> AttentionRig::Query(int sequence, int64_t position, int64_t from) const {
  const std::vector<float> row = Row(sequence, position);
  std::vector<double> query(row.begin(), row.begin() + test_.heads * test_.head_dim);
  const RowNorm norm = {NormKind::kRms, test_.norm ? query_weight_.data() : nullptr, nullptr,
                        kNormEpsilon};
  Prepare(norm, query_weight_, from, absl::MakeSpan(query));
  return query;
}

void AttentionRig::ReadPages() {
  if (!keys_.empty()) return;
  const std::vector<unsigned char> arena = arena_->Download();
  const int64_t pages = static_cast<int64_t>(arena.size()) / layout_.page_bytes();
  const int bytes = layout_.element_bytes();
  for (int64_t page = 0; page < pages; ++page) {
    const unsigned char* base = arena.data() + page * layout_.page_bytes();
    for (int slot = 0; slot < layout_.page_tokens; ++slot) {
      for (int head = 0; head < layout_.kv_heads; ++head) {
        auto scale = [&](int64_t offset) {
          if (!layout_.int8) return 1.0;
          return static_cast<double>(
              ops::F16ToF32(reinterpret_cast<const uint16_t*>(base + offset)[slot]));
        };
        const double key_scale = scale(layout_.key_scale_offset(head));
        const double value_scale = scale(layout_.value_scale_offset(head));
        for (int d = 0; d < layout_.head_dim; ++d) {
          keys_.push_back(
              Decode(base + layout_.key_offset(head) + (slot * layout_.head_dim + d) * bytes,
                     layout_.int8, key_scale));
          // The kernels round scale * code to f16.
          const double value =
              Decode(base + layout_.value_offset(head) + (d * layout_.page_tokens + slot) * bytes,
                     layout_.int8, value_scale);
          values_.push_back(ops::F16ToF32(ops::F32ToF16(static_cast<float>(value))));
        }
      }
    }
  }
}

double AttentionRig::WorstShare(const AttendedRow& row) {
  ReadPages();
  Table table = TableOf(row.sequence, row.position, row.position);
  table.kv.pages = table.pages.data();
  const std::vector<double> own = Query(row.sequence, row.position, row.position);
  const std::vector<double> sink =
      Query(row.sequence, row.position, test_.mask.SinkPosition(row.position));
  const double scale = 1 / std::sqrt(static_cast<double>(test_.head_dim));
  const double eps = test_.pair ? kEpsPair : kEpsF16;
  double worst = 0;
  for (int head = 0; head < test_.heads; ++head) {
    const int kv_head = head / (test_.heads / test_.kv_heads);
    const auto dim = static_cast<size_t>(test_.head_dim);
    std::vector<double> scores;
    std::vector<const double*> seen;
    double score_error = 0;  // of any score
    for (int64_t q = 0; q <= row.position; ++q) {
      if (!test_.mask.Sees(row.position, q)) continue;
      const auto page = static_cast<int64_t>(ops::FindPage(table.kv, q / layout_.page_tokens));
      const int64_t at =
          ((page * layout_.page_tokens + q % layout_.page_tokens) * layout_.kv_heads + kv_head) *
          test_.head_dim;
      const double* query = (q < test_.mask.SinkEnd() ? sink : own).data() + head * test_.head_dim;
      double dot = 0, size = 0;
      for (size_t i = 0; i < dim; ++i) {
        dot += query[i] * keys_[static_cast<size_t>(at) + i];
        size += std::abs(query[i] * keys_[static_cast<size_t>(at) + i]);
      }
      double s = dot * scale;
      // Rounding of the query, and of head_dim fused terms and a few more in f32. Norm
      // and rotation take some roundings of f32 more.
      score_error =
          std::max(score_error, size * scale * (eps + (static_cast<double>(dim) + 64) * kEpsF32) +
                                    8 * kEpsF32 * std::abs(s));
      if (test_.soft_cap > 0) s = test_.soft_cap * std::tanh(s / test_.soft_cap);
      scores.push_back(s);
      seen.push_back(values_.data() + at);
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& s : scores) sum += s = std::exp(s - largest);
    for (size_t i = 0; i < dim; ++i) {
      double o = 0, spread = 0, size = 0;
      for (size_t j = 0; j < seen.size(); ++j) o += scores[j] / sum * seen[j][i];
      for (size_t j = 0; j < seen.size(); ++j) {
        spread += scores[j] / sum * std::abs(seen[j][i] - o);
        size += scores[j] / sum * std::abs(seen[j][i]);
      }
      const auto e = static_cast<size_t>(head) * dim + i;
      double got = ops::F16ToF32(row.high[e]);
      if (test_.pair) got += ops::F16ToF32(row.low[e]);
      // exp2 and the roundings of p change each weight by eps and little more; sums of
      // f32 have one rounding a position.
      const double weight_error = std::expm1(2 * score_error) + 2 * eps + 16 * kEpsF32;
      const double bound = spread * weight_error * 1.01 + size * 2 * eps +
                           static_cast<double>(seen.size() + 16) * kEpsF32 * size + 0x1p-24;
      const double share = std::abs(got - o) / bound;
      worst = std::max(worst, std::isfinite(share) ? share : 1e9);
    }
  }
  return worst;
}

double AttentionRig::WorstKvShare(int sequence, int64_t position) {
  ReadPages();
  const std::vector<float> row = Row(sequence, position);
  const auto from = row.begin() + test_.heads * test_.head_dim;
  const int width = test_.kv_heads * test_.head_dim;
  std::vector<double> key(from, from + width);
  const std::vector<double> value(from + width, from + 2 * width);
  const RowNorm norm = {NormKind::kRms, test_.norm ? key_weight_.data() : nullptr, nullptr,
                        kNormEpsilon};
  Prepare(norm, key_weight_, position, absl::MakeSpan(key));
  const int64_t page = this->page(sequence, position / layout_.page_tokens);
  const int64_t at = (page * layout_.page_tokens + position % layout_.page_tokens) * width;
  double worst = 0;
  for (int i = 0; i < width; ++i) {
    const int head = i / test_.head_dim * test_.head_dim;
    auto check = [&](const std::vector<double>& want, double got, double f32_roundings) {
      double size = 0;
      for (int d = 0; d < test_.head_dim; ++d) size = std::max(size, std::abs(want[head + d]));
      // int8: half a step, and the scale's own rounding times 127 codes.
      const double bound =
          (test_.int8 ? size * (0.5 / 127 + 2 * kEpsF16) : std::abs(want[i]) * kEpsF16) +
          size * f32_roundings * kEpsF32 + 0x1p-25;
      const double share = std::abs(got - want[i]) / bound;
      worst = std::max(worst, std::isfinite(share) ? share : 1e9);
    };
    check(key, keys_[static_cast<size_t>(at + i)], 32);
    check(value, values_[static_cast<size_t>(at + i)], 0);
  }
  return worst;
}

}  // namespace tokend::cuda
