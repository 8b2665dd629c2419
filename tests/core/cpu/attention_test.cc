#include "core/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cpu/vector_kernels.h"
#include "core/ops/attention.h"
#include "core/ops/half.h"
#include "gtest/gtest.h"
#include "tests/support/compare.h"
#include "tests/support/guarded_buffer.h"

namespace tokend::cpu {
namespace {

using testing::Near;
using testing::SameBits;

struct Case {
  int kv_heads, group, head_dim, page_tokens;
  base::KvDtype dtype;
  ops::AttentionMask mask;
  int64_t position;  // of the first query row
  int rows;
  // Of ops::LayerKv.
  int64_t hidden_begin = 0, hidden_end = 0;
  std::vector<int32_t> kept;
  double soft_cap = 0;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.kv_heads << " x " << c.group << " heads of " << c.head_dim << ", pages of "
             << c.page_tokens << " " << base::KvDtypeName(c.dtype) << ", sinks "
             << c.mask.sink_tokens << " window " << c.mask.window_tokens << " reach "
             << c.mask.sink_reach << ", cap " << c.soft_cap << ", rows " << c.position << " + "
             << c.rows;
}

std::vector<float> Normal(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

// Pages of one layer of one sequence, in random places of a poisoned arena; only
// rows that one of the queries sees are ever written.
class Cache {
 public:
  Cache(const Case& c, uint64_t seed) : case_(c) {
    const int64_t last = c.position + c.rows - 1;
    const int64_t total = last + 1;
    const KvLayout layout = {c.dtype, c.page_tokens, c.kv_heads, c.head_dim};
    const int64_t logical = (total + c.page_tokens - 1) / c.page_tokens;
    arena_ = *KvArena::Create(layout, logical + 3);
    const int64_t half = layout.half_page_bytes();
    std::memset(arena_.keys(), 0xff, static_cast<size_t>(half * arena_.pages()));
    std::memset(arena_.values(), 0xff, static_cast<size_t>(half * arena_.pages()));
    std::vector<int32_t> ids(static_cast<size_t>(arena_.pages()));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), std::mt19937_64(seed));

    // The table: pages of the sinks, then those of the window.
    const bool windowed = c.mask.window_tokens > 0;
    const int64_t begin =
        windowed ? std::max<int64_t>(0, c.position - c.mask.window_tokens + 1) : 0;
    layer_.mask = c.mask;
    layer_.sink_pages =
        c.mask.SeesSinks(c.position)
            ? static_cast<int32_t>((std::min(c.mask.sink_tokens, total) + c.page_tokens - 1) /
                                   c.page_tokens)
            : 0;
    layer_.first_page = std::max<int64_t>(layer_.sink_pages, begin / c.page_tokens);
    if (c.hidden_end > 0) {
      layer_.sink_pages =
          static_cast<int32_t>((c.hidden_begin + c.page_tokens - 1) / c.page_tokens);
      layer_.first_page = c.hidden_end / c.page_tokens;
      layer_.hidden_begin = c.hidden_begin;
      layer_.hidden_end = c.hidden_end;
      layer_.kept = case_.kept.data();
      layer_.kept_pages = static_cast<int32_t>(case_.kept.size());
    }
    for (int32_t page = 0; page < static_cast<int32_t>(logical); ++page) {
      const bool kept = std::count(case_.kept.begin(), case_.kept.end(), page) > 0;
      if (page < layer_.sink_pages || page >= layer_.first_page || kept) {
        pages_.push_back(base::PageId{ids[static_cast<size_t>(page)]});
        logical_.push_back(base::PageId{page});
      }
    }
    scores_.assign(pages_.size(), 0);
    if (c.hidden_end > 0) layer_.scores = scores_.data();
    layer_.pages = pages_.data();
    layer_.page_count = static_cast<int32_t>(pages_.size());

    const auto row = static_cast<size_t>(c.kv_heads * c.head_dim);
    keys_ = Normal(static_cast<size_t>(total) * row, seed + 1);
    values_ = Normal(keys_.size(), seed + 2);
    for (int64_t q = 0; q < total; ++q) {
      bool seen = false;
      for (int64_t p = std::max(q, c.position); p <= last; ++p) {
        seen = seen || ops::NextSeen(layer_, p, q, c.page_tokens) == q;
      }
      if (seen) Write(q);
    }
  }

  const KvArena& arena() const { return arena_; }
  const ops::LayerKv& layer() const { return layer_; }
  // As stored: rounded to the dtype. [positions, kv_heads, head_dim]
  const std::vector<float>& keys() const { return keys_; }
  const std::vector<float>& values() const { return values_; }
  // The layer as if its logical pages lay in order in one arena.
  ops::LayerKv Dense(std::vector<int64_t>* scores) const {
    ops::LayerKv dense = layer_;
    dense.pages = logical_.data();
    scores->assign(pages_.size(), 0);
    if (layer_.scores != nullptr) dense.scores = scores->data();
    return dense;
  }
  // What was added since the last call.
  std::vector<int64_t> TakeScores() const {
    const std::vector<int64_t> taken = scores_;
    std::fill(scores_.begin(), scores_.end(), 0);  // in place: the layer points to it
    return taken;
  }

 private:
  void Write(int64_t q) {
    const KvLayout& layout = arena_.layout();
    const auto page = static_cast<int64_t>(ops::FindPage(layer_, q / layout.page_tokens));
    const KvSlot slot = {arena_.keys() + page * layout.half_page_bytes(),
                         arena_.values() + page * layout.half_page_bytes(),
                         static_cast<int>(q % layout.page_tokens)};
    for (int head = 0; head < case_.kv_heads; ++head) {
      float* key = keys_.data() + (q * case_.kv_heads + head) * case_.head_dim;
      float* value = values_.data() + (q * case_.kv_heads + head) * case_.head_dim;
      GetVectorKernels(Isa::kPlain).store_kv(layout, slot, head, key, value);
      for (float* x : {key, value}) Round(x);
    }
  }

  void Round(float* x) const {
    float largest = 0;
    for (int d = 0; d < case_.head_dim; ++d) largest = std::max(largest, std::abs(x[d]));
    const float scale = ops::F16ToF32(ops::F32ToF16(largest / 127));
    for (int d = 0; d < case_.head_dim; ++d) {
      if (case_.dtype == base::KvDtype::kF16) x[d] = ops::F16ToF32(ops::F32ToF16(x[d]));
      if (case_.dtype == base::KvDtype::kInt8) {
        x[d] = std::clamp(std::nearbyint(x[d] * (1 / scale)), -127.0f, 127.0f) * scale;
      }
    }
  }

  const Case case_;
  KvArena arena_;
  std::vector<base::PageId> pages_, logical_;
  mutable std::vector<int64_t> scores_;
  ops::LayerKv layer_;
  std::vector<float> keys_, values_;
};

// One for each shape that a test asks for, used again: what an earlier case left in
// it must not matter.
const AttentionWorkspace& Workspace(int queries, int head_dim) {
  static auto* workspaces = new std::map<std::pair<int, int>, AttentionWorkspace>;
  auto [entry, is_new] = workspaces->try_emplace({queries, head_dim});
  if (is_new) entry->second = *AttentionWorkspace::Create(queries, head_dim);
  return entry->second;
}

// Rows [first, first + rows) of the case's queries: [rows, kv_heads, group, head_dim].
std::vector<float> Attend(const Case& c, const Cache& cache, Isa isa, int first, int rows,
                          const std::vector<float>& query, const std::vector<float>& sink_query) {
  const AttentionKernels& kernels = GetAttentionKernels(isa);
  const int queries = rows * c.group;
  const AttentionWorkspace& workspace = Workspace(queries, c.head_dim);
  testing::GuardedBuffer<float> out(static_cast<size_t>(queries * c.kv_heads * c.head_dim));
  for (int head = 0; head < c.kv_heads; ++head) {
    for (int q = 0; q < queries; ++q) {
      const int64_t row = first + q / c.group;
      const int64_t from = ((row * c.kv_heads + head) * c.group + q % c.group) * c.head_dim;
      std::copy_n(query.data() + from, c.head_dim, workspace.query() + int64_t{q} * c.head_dim);
      std::copy_n(sink_query.data() + from, c.head_dim,
                  workspace.sink_query() + int64_t{q} * c.head_dim);
    }
    const int64_t last = c.position + first + rows - 1;
    const bool sinks = c.mask.SinkPosition(last) != last;
    const AttentionTask task = {&cache.layer(),
                                head,
                                c.group,
                                c.position + first,
                                rows,
                                workspace.query(),
                                sinks ? workspace.sink_query() : nullptr,
                                static_cast<float>(c.soft_cap / std::log(2.0))};
    AttendAll(kernels, cache.arena(), task, workspace);
    if (cache.layer().scores != nullptr) Weigh(kernels, cache.arena(), task, workspace);
    for (int q = 0; q < queries; ++q) {
      const int64_t to =
          ((int64_t{q} / c.group * c.kv_heads + head) * c.group + q % c.group) * c.head_dim;
      kernels.finish(workspace.total(), q, workspace.scratch().dim_stride, c.head_dim,
                     out.data() + to);
    }
  }
  EXPECT_TRUE(out.Intact());
  return std::vector<float>(out.view().begin(), out.view().end());
}

std::vector<double> Reference(const Case& c, const Cache& cache, const std::vector<float>& query,
                              const std::vector<float>& sink_query, std::vector<int64_t>* scores) {
  // The queries carry the factor log2(e).
  const ops::AttentionShape shape = {c.kv_heads * c.group, c.kv_heads, c.head_dim, std::log(2.0),
                                     c.soft_cap};
  const ops::LayerKv layer = cache.Dense(scores);
  const std::vector<double> keys(cache.keys().begin(), cache.keys().end());
  const std::vector<double> values(cache.values().begin(), cache.values().end());
  const auto row = static_cast<size_t>(c.kv_heads * c.group * c.head_dim);
  std::vector<double> out(static_cast<size_t>(c.rows) * row);
  for (int i = 0; i < c.rows; ++i) {
    const auto from = query.begin() + static_cast<int64_t>(i * row);
    const auto sink_from = sink_query.begin() + static_cast<int64_t>(i * row);
    ops::PagedAttentionRef(
        shape, layer, c.position + i, std::vector<double>(from, from + static_cast<int64_t>(row)),
        std::vector<double>(sink_from, sink_from + static_cast<int64_t>(row)),
        {c.page_tokens, keys, values}, absl::MakeSpan(out).subspan(i * row, row));
  }
  return out;
}

void Check(const Case& c, Isa isa, uint64_t seed) {
  SCOPED_TRACE(::testing::Message() << c << ", " << IsaName(isa).data() << ", seed " << seed);
  const Cache cache(c, seed);
  const auto size = static_cast<size_t>(c.rows * c.kv_heads * c.group * c.head_dim);
  std::vector<float> query = Normal(size, seed + 3), sink_query = Normal(size, seed + 4);
  // Scores with a standard deviation of about 2.
  const float factor = 2 * 1.4427f / std::sqrt(static_cast<float>(c.head_dim));
  for (float& x : query) x *= factor;
  for (float& x : sink_query) x *= factor;
  for (int i = 0; i < c.rows; ++i) {  // A row that is near its sinks has one query.
    if (c.mask.SinkPosition(c.position + i) != c.position + i) continue;
    const int64_t row = static_cast<int64_t>(size) / c.rows;
    std::copy_n(query.begin() + i * row, row, sink_query.begin() + i * row);
  }
  const std::vector<float> got = Attend(c, cache, isa, 0, c.rows, query, sink_query);
  // |score| < 16: its error, and so the relative error of p, is below head_dim + 4
  // roundings of 16; sums add a rounding a position of a lane and one a piece. The
  // result is a mean of values below 6.
  const double tolerance = testing::kEpsF32 * 6 * (2 * (c.head_dim + 4) + 64);
  std::vector<int64_t> want_scores;
  ASSERT_TRUE(Near(got, Reference(c, cache, query, sink_query, &want_scores), tolerance));
  const std::vector<int64_t> scores = cache.TakeScores();
  for (size_t i = 0; i < scores.size(); ++i) {
    // Half a unit more or less for each probability, and its own error.
    const double slack = 0.5 * c.rows * c.kv_heads * c.group * c.page_tokens +
                         2e-5 * static_cast<double>(want_scores[i]);
    ASSERT_NEAR(static_cast<double>(scores[i]), static_cast<double>(want_scores[i]), slack);
  }

  // The same bits whatever rows are worked on together, and on any processor.
  if (c.rows > 1) {
    std::vector<float> pieces;
    for (int first = 0, rows = 1; first < c.rows; first += rows, rows += 2) {
      rows = std::min(rows, c.rows - first);
      const std::vector<float> part = Attend(c, cache, isa, first, rows, query, sink_query);
      pieces.insert(pieces.end(), part.begin(), part.end());
    }
    ASSERT_TRUE(SameBits(got, pieces));
    ASSERT_EQ(cache.TakeScores(), scores);
  }
  if (isa == Isa::kPlain) return;
  const std::vector<float> plain = Attend(c, cache, Isa::kPlain, 0, c.rows, query, sink_query);
  ASSERT_TRUE(SameBits(got, plain));
  ASSERT_EQ(cache.TakeScores(), scores);
}

class AttentionTest : public ::testing::TestWithParam<Isa> {};

TEST_P(AttentionTest, AllShapes) {
  uint64_t seed = 1;
  for (const base::KvDtype dtype :
       {base::KvDtype::kF32, base::KvDtype::kF16, base::KvDtype::kInt8}) {
    for (const int head_dim : {16, 20, 64, 80, 256}) {
      for (int group = 1; group <= 8; ++group) {
        if (dtype != base::KvDtype::kF16 && group % 3 != 1) continue;
        const int page_tokens = group % 2 == 0 ? 16 : 32;
        Check({1 + group % 3, group, head_dim, page_tokens, dtype, {}, 37, 1}, GetParam(), seed++);
        Check({1, group, head_dim, page_tokens, dtype, {}, 240, 20}, GetParam(), seed++);
      }
    }
  }
}

TEST_P(AttentionTest, PositionsAroundPagesAndPieces) {
  uint64_t seed = 1000;
  for (const int64_t position : {0, 1, 15, 16, 17, 31, 32, 255, 256, 257, 511, 512, 700}) {
    for (const int rows : {1, 2, 33}) {
      Check({1, 3, 64, 16, base::KvDtype::kF16, {}, position, rows}, GetParam(), seed++);
    }
  }
}

TEST_P(AttentionTest, WindowsAndSinks) {
  uint64_t seed = 2000;
  for (const base::KvDtype dtype : {base::KvDtype::kF16, base::KvDtype::kInt8}) {
    for (const ops::AttentionMask mask :
         {ops::AttentionMask{0, 1}, ops::AttentionMask{0, 17}, ops::AttentionMask{1, 16},
          ops::AttentionMask{4, 64}, ops::AttentionMask{20, 100}, ops::AttentionMask{300, 30},
          ops::AttentionMask{4, 600}, ops::AttentionMask{4, 30, 64}, ops::AttentionMask{20, 60, 65},
          ops::AttentionMask{300, 20, 250}}) {
      for (const int64_t position : {0, 3, 60, 68, 259, 300, 530, 1030}) {
        for (const int rows : {1, 23}) {
          Check({1, 2, 32, 16, dtype, mask, position, rows}, GetParam(), seed++);
        }
      }
    }
  }
}

TEST_P(AttentionTest, SoftCapsOnSinksAndOnKeptPages) {
  uint64_t seed = 4000;
  for (const base::KvDtype dtype :
       {base::KvDtype::kF32, base::KvDtype::kF16, base::KvDtype::kInt8}) {
    for (const double cap : {1.0, 50.0}) {
      Check({2, 3, 20, 16, dtype, {4, 30}, 300, 23, 0, 0, {}, cap}, GetParam(), seed++);
      Check({1, 2, 64, 16, dtype, {}, 768, 1, 4, 700, {1, 7, 20}, cap}, GetParam(), seed++);
    }
  }
}

TEST_P(AttentionTest, KeptPagesAndTheirScores) {
  uint64_t seed = 3000;
  for (const base::KvDtype dtype :
       {base::KvDtype::kF32, base::KvDtype::kF16, base::KvDtype::kInt8}) {
    for (const int rows : {1, 3, 23}) {
      for (const int head_dim : {20, 64}) {
        Case c = {2, 3, head_dim, 16, dtype, {}, 768, rows, 4, 700, {1, 7, 8, 20, 31}};
        Check(c, GetParam(), seed++);
        c.page_tokens = 32;
        c.kept = {2, 15, 20};
        c.hidden_begin = 0;
        Check(c, GetParam(), seed++);
        c.kept = {};
        Check(c, GetParam(), seed++);
      }
    }
  }
}

TEST_P(AttentionTest, RandomCases) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int i = 0; i < 25; ++i) {
    Case c;
    c.kv_heads = static_cast<int>(1 + below(3));
    c.group = static_cast<int>(1 + below(9));
    c.head_dim = static_cast<int>(16 + 4 * below(30));
    c.page_tokens = below(2) == 0 ? 16 : 32;
    c.dtype = static_cast<base::KvDtype>(below(3));
    if (below(2) == 0) c.mask = {below(40), 1 + below(400)};
    if (c.mask.sink_tokens > 0 && below(2) == 0) {
      c.mask.sink_reach = c.mask.window_tokens + 1 + below(300);
    }
    if (below(3) == 0) c.soft_cap = static_cast<double>(1 + below(20));
    c.position = below(900);
    c.rows = static_cast<int>(1 + below(50));
    Check(c, GetParam(), seed + static_cast<uint64_t>(i));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(AllIsas, AttentionTest, ::testing::ValuesIn(SupportedIsas()),
                         [](const auto& isa) { return std::string(IsaName(isa.param)); });

TEST(VisiblePiecesTest, SkipsWhatTheMaskHides) {
  const VisiblePieces all({}, 600, 700);
  ASSERT_EQ(all.size(), 3);
  EXPECT_EQ(all[2], 2);
  const VisiblePieces window({4, 256}, 1'000'000, 1'000'010);
  ASSERT_EQ(window.size(), 3);
  EXPECT_EQ(window[0], 0);
  EXPECT_EQ(window[1], (1'000'000 - 255) / kPieceTokens);
  EXPECT_EQ(window[2], 1'000'010 / kPieceTokens);
  EXPECT_EQ(VisiblePieces({4, 256}, 10, 10).size(), 1);
  EXPECT_EQ(VisiblePieces({600, 256, 700}, 1000, 1010)[0], 1);
  EXPECT_EQ(VisiblePieces({4, 256, 700}, 1000, 1010)[0], 2);
  EXPECT_EQ(VisiblePieces({0, 256}, 1'000'000, 1'000'010).size(), 2);
}

}  // namespace
}  // namespace tokend::cpu
