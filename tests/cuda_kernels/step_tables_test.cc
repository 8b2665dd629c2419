#include "cuda_kernels/backend/step_tables.h"

#include <random>

#include "core/ops/attention.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tokend::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct TestStep {
  std::vector<int32_t> tokens;
  std::vector<std::vector<base::PageId>> pages;
  std::vector<std::vector<ops::LayerKv>> layers;
  std::vector<ops::StepSequence> sequences;
  std::vector<int32_t> logit_rows;

  ops::StepBatch Batch() const { return {tokens, sequences, logit_rows}; }
};

// One sequence a part; all layers see all unless the test says else.
TestStep MakeStep(const std::vector<std::pair<int64_t, int>>& parts, int layers) {
  TestStep step;
  step.pages.reserve(parts.size());
  step.layers.reserve(parts.size());
  int32_t row = 0;
  for (const auto& [position, rows] : parts) {
    auto& pages = step.pages.emplace_back();
    for (int64_t i = 0; i <= (position + rows - 1) / 16; ++i) {
      pages.push_back(static_cast<base::PageId>(100 * step.pages.size() + i));
    }
    const ops::LayerKv kv = {.pages = pages.data(),
                             .page_count = static_cast<int32_t>(pages.size())};
    step.layers.emplace_back(layers, kv);
    step.sequences.push_back({row, rows, position, step.layers.back()});
    for (int i = 0; i < rows; ++i) step.tokens.push_back(row++);
    step.logit_rows.push_back(row - 1);
  }
  return step;
}

StepLimits Limits(int layers) {
  return {.rows = 64, .sequences = 4, .layers = layers, .context_tokens = 2048, .tile_tokens = 8};
}

template <typename T>
std::vector<T> List(const StepTables& tables, int32_t at, int32_t count) {
  const T* first = reinterpret_cast<const T*>(tables.words + at);
  return {first, first + count};
}

TEST(StepTablesTest, RowsPositionsAndTiles) {
  const TestStep step = MakeStep({{700, 1}, {30, 11}, {0, 2}}, 2);
  StepTableWriter writer(Limits(2));
  std::vector<std::byte> block(writer.block_bytes());
  const auto shape = writer.Write(step.Batch(), absl::MakeSpan(block));
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_LE(shape->used_bytes, writer.block_bytes());
  const StepTables tables = writer.View(block.data());
  EXPECT_EQ(tables.counts->rows, 14);
  EXPECT_EQ(tables.counts->angle_rows, 14);
  EXPECT_EQ(tables.counts->logit_rows, 3);
  EXPECT_EQ(tables.tokens[13], 13);
  EXPECT_EQ(tables.logit_rows[1], 11);
  EXPECT_EQ(tables.angle_positions[0], 700);
  EXPECT_EQ(tables.angle_positions[11], 40);
  EXPECT_EQ(tables.angle_positions[12], 0);
  EXPECT_EQ(tables.sequences[1].first_row, 1);

  const auto tiles = List<RowTile>(tables, tables.counts->attention_tiles, 3);
  EXPECT_EQ(tables.counts->attention_tile_count, 3);
  EXPECT_EQ(tiles[0].sequence, 2);
  EXPECT_EQ(tiles[1].first, 8);
  EXPECT_EQ(tiles[1].rows, 3);
  EXPECT_EQ(tiles[2].rows, 8);
  // Positions 30, 31 | 32 to 40 | 0, 1.
  const auto appends = List<RowTile>(tables, tables.counts->append_tiles, 3);
  EXPECT_EQ(tables.counts->append_tile_count, 3);
  EXPECT_EQ(appends[0].rows, 2);
  EXPECT_EQ(appends[1].first, 2);
  EXPECT_EQ(appends[1].rows, 9);
  EXPECT_EQ(appends[2].rows, 2);

  const LayerTable& table = tables.tables[1 * 2 + 1];
  EXPECT_EQ(table.page_count, 3);
  EXPECT_THAT(List<int32_t>(tables, table.pages, 3), ElementsAre(200, 201, 202));
}

TEST(StepTablesTest, PiecesOfSinglesAndEqualListsOnce) {
  TestStep step = MakeStep({{700, 1}, {255, 1}, {512, 1}}, 3);
  step.layers[0][1].mask = {300, 100, 0};  // sinks to 299, window from 601
  step.layers[2][1].attend_begin = 513;
  step.layers[2][2].attend_begin = 513;
  step.layers[2][1].store_begin = 500;
  StepTableWriter writer(Limits(3));
  std::vector<std::byte> block(writer.block_bytes());
  const auto shape = writer.Write(step.Batch(), absl::MakeSpan(block));
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->decode_items, 7);
  const StepTables tables = writer.View(block.data());
  auto pieces = [&](int layer) {
    std::vector<int> all;
    for (const DecodeItem& item : List<DecodeItem>(tables, tables.lists[layer].decode_items,
                                                   tables.lists[layer].decode_count)) {
      all.push_back(item.piece);
    }
    return all;
  };
  EXPECT_THAT(pieces(0), ElementsAre(0, 1, 2, 0, 0, 1, 2));
  EXPECT_THAT(pieces(1), ElementsAre(0, 1, 2, 0, -1));
  EXPECT_THAT(pieces(2), ElementsAre(0, 1, 2, 0, -1));
  EXPECT_NE(tables.lists[0].decode_items, tables.lists[1].decode_items);
  EXPECT_EQ(tables.lists[1].decode_items, tables.lists[2].decode_items);
  const auto items = List<DecodeItem>(tables, tables.lists[0].decode_items, 7);
  EXPECT_EQ(items[5].first, 4);
  EXPECT_EQ(items[5].count, 3);
  EXPECT_EQ(tables.counts->attention_tile_count, 0);
  // Sinks of layer 1 are seen from one further position.
  EXPECT_EQ(tables.counts->angle_rows, 4);
  EXPECT_EQ(tables.angle_positions[3], 399);
  EXPECT_EQ(tables.tables[0 * 3 + 1].sink_angles, 3);
  EXPECT_EQ(tables.tables[0 * 3 + 1].sink_position, 399);
  // A row that ended in layer 1 leaves nothing in layer 2.
  EXPECT_EQ(tables.tables[2 * 3 + 1].store_begin, 500);
  EXPECT_EQ(tables.tables[2 * 3 + 2].store_begin, 513);
}

// Every position that a mask lets a row see lies in one of its pieces.
TEST(StepTablesTest, PiecesHoldAllThatIsSeen) {
  std::mt19937_64 random(::testing::UnitTest::GetInstance()->random_seed());
  for (int i = 0; i < 300; ++i) {
    const auto position = static_cast<int64_t>(random() % 2000);
    TestStep step = MakeStep({{position, 1}}, 1);
    ops::AttentionMask mask;
    mask.window_tokens = static_cast<int64_t>(random() % 600);
    mask.sink_tokens = static_cast<int64_t>(random() % 400);
    if (random() % 2)
      mask.sink_reach = mask.window_tokens + 1 + static_cast<int64_t>(random() % 900);
    step.layers[0][0].mask = mask;
    StepTableWriter writer(Limits(1));
    std::vector<std::byte> block(writer.block_bytes());
    ASSERT_TRUE(writer.Write(step.Batch(), absl::MakeSpan(block)).ok());
    const StepTables tables = writer.View(block.data());
    std::vector<bool> want(8), got(8);
    for (int64_t q = 0; q <= position; ++q) {
      if (mask.Sees(position, q)) want[q / kPieceTokens] = true;
    }
    int last = -1;
    for (const DecodeItem& item :
         List<DecodeItem>(tables, tables.lists[0].decode_items, tables.lists[0].decode_count)) {
      EXPECT_GT(item.piece, last);
      last = item.piece;
      got[item.piece] = true;
    }
    EXPECT_EQ(got, want) << position << ": " << mask.sink_tokens << ", " << mask.window_tokens
                         << ", " << mask.sink_reach;
  }
}

TEST(StepTablesTest, RefusesWhatItCannotHold) {
  StepTableWriter writer(Limits(1));
  std::vector<std::byte> block(writer.block_bytes());
  TestStep step = MakeStep({{0, 65}}, 1);
  EXPECT_EQ(writer.Write(step.Batch(), absl::MakeSpan(block)).status().code(),
            absl::StatusCode::kResourceExhausted);
  step = MakeStep({{4, 1}}, 1);
  step.layers[0][0].hidden_end = 3;
  EXPECT_THAT(writer.Write(step.Batch(), absl::MakeSpan(block)).status().ToString(),
              HasSubstr("kept pages"));
  step = MakeStep({{200000, 1}, {200000, 1}}, 1);
  EXPECT_EQ(writer.Write(step.Batch(), absl::MakeSpan(block)).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(StepTablesTest, TilesInPlaceOfDecodeItems) {
  StepLimits limits = Limits(1);
  limits.decode = false;
  StepTableWriter writer(limits);
  std::vector<std::byte> block(writer.block_bytes());
  const auto shape = writer.Write(MakeStep({{3, 1}}, 1).Batch(), absl::MakeSpan(block));
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->decode_items, 0);
  EXPECT_EQ(shape->counts.attention_tile_count, 1);
  EXPECT_EQ(shape->counts.append_tile_count, 1);
}

}  // namespace
}  // namespace tokend::cuda
