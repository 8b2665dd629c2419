#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/cuda_kernels/attention_rig.h"

namespace tokend::cuda {
namespace {

class AttentionTest : public DeviceTest {};

std::string Name(const AttentionCase& test) {
  return absl::StrCat(test.heads, "/", test.kv_heads, " heads of ", test.head_dim, ", pages of ",
                      test.page_tokens, test.int8 ? ", int8" : "", test.pair ? ", f32" : "",
                      ", window ", test.mask.window_tokens, ", sinks ", test.mask.sink_tokens,
                      ", reach ", test.mask.sink_reach, test.norm ? ", norm" : "", ", cap ",
                      test.soft_cap);
}

// Head sizes, groups, pages and masks, each met by each other at least once.
std::vector<AttentionCase> Cases(bool pair) {
  const std::vector<AttentionCase> cases = {
      {.heads = 4, .kv_heads = 4, .head_dim = 16, .mask = {}, .norm = true},
      {.heads = 6, .kv_heads = 2, .head_dim = 32, .page_tokens = 32, .mask = {4, 12, 0}},
      {.heads = 3, .kv_heads = 1, .head_dim = 64, .int8 = true, .mask = {3, 20, 31}},
      {.heads = 5, .kv_heads = 1, .head_dim = 80, .mask = {0, 9, 0}, .soft_cap = 2},
      {.heads = 2, .kv_heads = 1, .head_dim = 96, .page_tokens = 32, .int8 = true, .rope_dims = 24},
      {.heads = 14,
       .kv_heads = 2,
       .head_dim = 128,
       .mask = {17, 8, 0},
       .norm = true,
       .pairing = ops::RopePairing::kHalves},
      {.heads = 4, .kv_heads = 1, .head_dim = 256, .mask = {1, 3, 0}, .soft_cap = 5},
      {.heads = 16,
       .kv_heads = 1,
       .head_dim = 64,
       .page_tokens = 32,
       .mask = {33, 16, 40},
       .pairing = ops::RopePairing::kHalves,
       .rope_dims = 32},
      {.heads = 1, .kv_heads = 1, .head_dim = 128, .int8 = true, .rope_dims = 0},
  };
  std::vector<AttentionCase> all = cases;
  for (AttentionCase& test : all) test.pair = pair;
  return all;
}

void ExpectNear(AttentionRig* rig, const std::vector<AttendedRow>& rows) {
  for (const AttendedRow& row : rows) {
    EXPECT_LE(rig->WorstShare(row), 1) << "position " << row.position;
    EXPECT_LE(rig->WorstKvShare(row.sequence, row.position), 1) << "position " << row.position;
  }
}

TEST_F(AttentionTest, IsNearTheReferenceInBothModes) {
  for (const bool pair : {true, false}) {
    for (const AttentionCase& test : Cases(pair)) {
      SCOPED_TRACE(Name(test));
      AttentionRig rig(test, 1, 64);
      ExpectNear(&rig, rig.Run(0, 5, 5));
      ExpectNear(&rig, rig.Run(0, 7, 1));
      ExpectNear(&rig, rig.Run(0, 48, 41));
      ExpectNear(&rig, rig.Run(0, 50, 1));
    }
  }
}

void ExpectSame(const std::vector<AttendedRow>& got, const std::vector<AttendedRow>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].high, want[i].high) << "position " << want[i].position;
    EXPECT_EQ(got[i].low, want[i].low) << "position " << want[i].position;
  }
}

// A row by itself and in tiles of any cut; decoded or not; and so are the pages.
TEST_F(AttentionTest, HasTheSameBitsHoweverRowsAreCut) {
  for (const bool pair : {false, true}) {
    for (const AttentionCase& test : Cases(pair)) {
      SCOPED_TRACE(Name(test));
      AttentionRig tiles(test, 1, 64);
      const std::vector<AttendedRow> want = tiles.Run(0, 44, 44);
      for (const int chunk : {1, 7}) {
        AttentionCase cut = test;
        cut.shared_bytes = chunk == 1 ? 228 * 1024 : 0;
        AttentionRig rig(cut, 1, 64);
        std::vector<AttendedRow> got = rig.Run(0, 10, chunk);
        for (const auto& [end, rows] : {std::pair(34, 3 * chunk), std::pair(44, chunk)}) {
          for (AttendedRow& row : rig.Run(0, end, rows)) got.push_back(std::move(row));
        }
        ExpectSame(got, want);
        if (test.mask.window_tokens == 0) {
          EXPECT_EQ(rig.Arena(), tiles.Arena());
        }
      }
    }
  }
}

// Across pieces, windows that slide over their ends, and sinks that cross them.
TEST_F(AttentionTest, GoesFromPieceToPiece) {
  for (const AttentionCase& test : std::vector<AttentionCase>{
           {.heads = 2, .kv_heads = 1, .head_dim = 32},
           {.heads = 2, .kv_heads = 1, .head_dim = 32, .int8 = true, .mask = {4, 40, 0}},
           {.heads = 2, .kv_heads = 1, .head_dim = 16, .mask = {258, 20, 0}},
           {.heads = 2,
           .kv_heads = 1,
           .head_dim = 16,
           .page_tokens = 32,
           .mask = {250, 30, 400}}}) {
    for (const bool pair : {false, true}) {
      AttentionCase mode = test;
      mode.pair = pair;
      SCOPED_TRACE(Name(mode));
      AttentionRig rig(mode, 1, 560);
      rig.Run(0, 250, 250);
      std::vector<AttendedRow> want = rig.Run(0, 262, 12);
      ExpectNear(&rig, {want[4], want[5], want[6], want[7]});
      rig.Run(0, 505, 243);
      for (AttendedRow& row : rig.Run(0, 520, 15)) want.push_back(std::move(row));
      ExpectNear(&rig, {want[17], want[18], want[19], want[20], want.back()});

      AttentionRig single(mode, 1, 560);
      single.Run(0, 250, 125);
      std::vector<AttendedRow> got = single.Run(0, 262, 1);
      single.Run(0, 505, 64);
      for (AttendedRow& row : single.Run(0, 520, 1)) got.push_back(std::move(row));
      ExpectSame(got, want);
    }
  }
}

TEST_F(AttentionTest, DoesNotDependOnNeighboursOrPlaces) {
  AttentionCase test = {.heads = 6, .kv_heads = 2, .head_dim = 64, .mask = {5, 30, 0}};
  AttentionRig alone(test, 1, 300);
  std::vector<AttendedRow> want = alone.Run(0, 280, 140);
  const std::vector<AttendedRow> last = alone.Run(0, 283, 1);

  test.placement = 77;
  AttentionRig rig(test, 3, 300);
  rig.Run(1, 20, 20);
  rig.Run(2, 264, 132);
  std::vector<AttendedRow> got;
  for (const auto& parts : std::vector<std::vector<StepPart>>{{{1, 1}, {0, 140}, {2, 1}},
                                                              {{0, 140}, {1, 3}},
                                                              {{2, 1}, {1, 1}, {0, 1}},
                                                              {{0, 1}, {1, 2}, {2, 3}},
                                                              {{1, 1}, {0, 1}, {2, 1}}}) {
    for (AttendedRow& row : rig.Step(parts)) {
      if (row.sequence == 0) got.push_back(std::move(row));
    }
  }
  want.insert(want.end(), last.begin(), last.end());
  ExpectSame(got, want);
  EXPECT_EQ(rig.Saturations(), 0u);
}

// Rows that serve lower layers alone give zeros and, from store_begin on, keys and values.
TEST_F(AttentionTest, RowsEndWhereTheyShould) {
  const AttentionCase test = {.heads = 4, .kv_heads = 2, .head_dim = 32, .mask = {0, 3, 0}};
  AttentionRig whole(test, 1, 64);
  const std::vector<AttendedRow> want = whole.Run(0, 24, 24);
  AttentionRig rig(test, 1, 64);
  const std::vector<unsigned char> untouched = rig.Arena();
  for (const AttendedRow& row : rig.Step({{0, 6, 100, 100}})) {
    EXPECT_THAT(row.high, testing::Each(0)) << row.position;
  }
  for (const AttendedRow& row : rig.Step({{0, 1, 100, 100}})) {
    EXPECT_THAT(row.high, testing::Each(0)) << row.position;
  }
  EXPECT_EQ(rig.Arena(), untouched);
  std::vector<AttendedRow> got = rig.Step({{0, 10, 14, 12}});  // 7 to 16
  for (const AttendedRow& row : got) {
    if (row.position < 14) {
      EXPECT_THAT(row.high, testing::Each(0)) << row.position;
    } else {
      EXPECT_EQ(row.high, want[static_cast<size_t>(row.position)].high) << row.position;
    }
    const double share = rig.WorstKvShare(0, row.position);
    EXPECT_EQ(share <= 1, row.position >= 12) << row.position;
  }
  for (const AttendedRow& row : rig.Step({{0, 1, 18, 17}})) {
    EXPECT_THAT(row.high, testing::Each(0)) << row.position;
  }
  EXPECT_LE(rig.WorstKvShare(0, 17), 1);
}

TEST_F(AttentionTest, RefusesShapesByName) {
  EXPECT_EQ(CheckAttentionShape({false, 16, 2, 64}, 32), absl::OkStatus());
  EXPECT_THAT(CheckAttentionShape({false, 16, 2, 48}, 4).ToString(),
              testing::HasSubstr("head size 48"));
  EXPECT_THAT(CheckAttentionShape({false, 16, 2, 64}, 34).ToString(),
              testing::HasSubstr("34 query heads"));
  EXPECT_THAT(CheckAttentionShape({false, 16, 2, 64}, 5).ToString(),
              testing::HasSubstr("5 query heads"));
  EXPECT_THAT(CheckAttentionShape({false, 8, 2, 64}, 4).ToString(),
              testing::HasSubstr("pages of 8"));
}

}  // namespace
}  // namespace tokend::cuda
