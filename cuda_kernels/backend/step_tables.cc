#include "cuda_kernels/backend/step_tables.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"

namespace tokend::cuda {
namespace {

constexpr int64_t kWord = sizeof(int32_t);
constexpr int64_t kItemWords = sizeof(DecodeItem) / kWord;
constexpr int64_t kTileWords = sizeof(RowTile) / kWord;

int64_t RoundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Pieces that one row can see: of a whole context, or of sinks and a window, which
// start and end within pieces.
int64_t MostPieces(const StepLimits& limits) { return limits.context_tokens / kPieceTokens + 4; }

int64_t MostWords(const StepLimits& limits) {
  const int64_t pages = RoundUp(limits.context_tokens / limits.page_tokens + 4, 4);
  const int64_t items = limits.sequences * MostPieces(limits) * kItemWords;
  // Each sequence may begin and end within a tile.
  const int64_t tiles = limits.rows / limits.tile_tokens + limits.sequences;
  const int64_t appends = limits.rows / limits.page_tokens + 2 * limits.sequences;
  return limits.layers * (limits.sequences * pages + items) + (tiles + appends) * kTileWords;
}

// Cuts a sequence's rows wherever aligned + row is a multiple of `step`.
void AddTiles(size_t sequence, const ops::StepSequence& rows, int64_t aligned, int step,
              std::vector<RowTile>* tiles) {
  for (int32_t first = 0; first < rows.rows;) {
    const int64_t phase = (aligned + first) % step;
    const auto count = static_cast<int32_t>(std::min<int64_t>(rows.rows - first, step - phase));
    tiles->push_back({static_cast<int32_t>(sequence), first, count, 0});
    first += count;
  }
}

}  // namespace

StepTableWriter::StepTableWriter(const StepLimits& limits) : limits_(limits) {
  int64_t next = RoundUp(sizeof(StepCounts), 16);
  auto place = [&next](int64_t count, size_t element_bytes) {
    const int64_t at = next;
    next = RoundUp(next + count * static_cast<int64_t>(element_bytes), 16);
    return at;
  };
  offsets_.tokens = place(limits.rows, sizeof(int32_t));
  offsets_.logit_rows = place(limits.rows, sizeof(int32_t));
  offsets_.angle_positions = place(max_angle_rows(), sizeof(int64_t));
  offsets_.sequences = place(limits.sequences, sizeof(SequenceEntry));
  offsets_.tables = place(int64_t{limits.sequences} * limits.layers, sizeof(LayerTable));
  offsets_.lists = place(limits.layers, sizeof(LayerLists));
  word_limit_ = MostWords(limits);
  offsets_.words = place(word_limit_, sizeof(int32_t));
  block_bytes_ = next;
}

int StepTableWriter::max_decode_items() const {
  return static_cast<int>(limits_.sequences * MostPieces(limits_));
}

StepTables StepTableWriter::View(const std::byte* block) const {
  StepTables view;
  view.counts = reinterpret_cast<const StepCounts*>(block);
  view.tokens = reinterpret_cast<const int32_t*>(block + offsets_.tokens);
  view.logit_rows = reinterpret_cast<const int32_t*>(block + offsets_.logit_rows);
  view.angle_positions = reinterpret_cast<const int64_t*>(block + offsets_.angle_positions);
  view.sequences = reinterpret_cast<const SequenceEntry*>(block + offsets_.sequences);
  view.tables = reinterpret_cast<const LayerTable*>(block + offsets_.tables);
  view.lists = reinterpret_cast<const LayerLists*>(block + offsets_.lists);
  view.words = reinterpret_cast<const int32_t*>(block + offsets_.words);
  view.layers = limits_.layers;
  return view;
}

absl::StatusOr<int32_t> StepTableWriter::TakeWords(int64_t count) {
  const int64_t at = words_;
  words_ = RoundUp(words_ + count, 4);
  if (words_ > word_limit_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the step's page tables do not fit ", word_limit_ * kWord, " bytes"));
  }
  return static_cast<int32_t>(at);
}

int32_t StepTableWriter::SinkAngles(int64_t position) {
  for (const Sink& sink : sinks_) {
    if (sink.position == position) return sink.row;
  }
  const int32_t row = shape_.counts.angle_rows++;
  auto* positions = reinterpret_cast<int64_t*>(block_ + offsets_.angle_positions);
  positions[row] = position;
  sinks_.push_back({position, row});
  return row;
}

absl::Status StepTableWriter::WriteTable(const ops::StepBatch& batch, size_t sequence,
                                         size_t layer) {
  const ops::StepSequence& rows = batch.sequences[sequence];
  const ops::LayerKv& kv = rows.layers[layer];
  if (kv.hidden_begin < kv.hidden_end || kv.kept_pages > 0 || kv.scores != nullptr) {
    return absl::InvalidArgumentError("cuda: kept pages and scores are not supported");
  }
  auto* tables = reinterpret_cast<LayerTable*>(block_ + offsets_.tables);
  LayerTable& table = tables[sequence * static_cast<size_t>(limits_.layers) + layer];
  table = {};
  table.window_tokens = kv.mask.window_tokens;
  table.sink_tokens = kv.mask.SinkEnd();
  table.sink_reach = kv.mask.sink_reach;
  table.first_page = kv.first_page;
  table.attend_begin = kv.attend_begin;
  table.store_begin = kv.store_begin;
  if (layer > 0) {
    table.store_begin = std::max(table.store_begin, rows.layers[layer - 1].attend_begin);
  }
  table.page_count = kv.page_count;
  table.sink_pages = kv.sink_pages;
  table.sink_position = table.sink_tokens + table.window_tokens - 1;
  const int64_t last = rows.position + rows.rows - 1;
  if (kv.mask.SeesSinks(rows.position) && last > table.sink_position) {
    table.sink_angles = SinkAngles(table.sink_position);
  }
  TOKEND_ASSIGN_OR_RETURN(table.pages, TakeWords(kv.page_count));
  auto* words = reinterpret_cast<int32_t*>(block_ + offsets_.words);
  std::memcpy(words + table.pages, kv.pages, static_cast<size_t>(kv.page_count) * sizeof(int32_t));
  return absl::OkStatus();
}

absl::Status StepTableWriter::WriteDecodeItems(const ops::StepBatch& batch, size_t layer) {
  items_.clear();
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const ops::StepSequence& rows = batch.sequences[i];
    if (!Decodes(rows)) continue;
    const ops::LayerKv& kv = rows.layers[layer];
    const auto first = static_cast<int32_t>(items_.size());
    const auto sequence = static_cast<int32_t>(i);
    const int64_t p = rows.position;
    if (p < kv.attend_begin) {
      items_.push_back({sequence, -1, first, 0});
      continue;
    }
    const int64_t window = kv.mask.WindowBegin(p) / kPieceTokens;
    if (kv.mask.SeesSinks(p)) {
      const int64_t end = (kv.mask.SinkEnd() - 1) / kPieceTokens + 1;
      for (int64_t j = kv.mask.SinkBegin(p) / kPieceTokens; j < std::min(end, window); ++j) {
        items_.push_back({sequence, static_cast<int32_t>(j), first, 0});
      }
    }
    for (int64_t j = window; j <= p / kPieceTokens; ++j) {
      items_.push_back({sequence, static_cast<int32_t>(j), first, 0});
    }
    const auto count = static_cast<int32_t>(items_.size()) - first;
    for (int32_t j = first; j < first + count; ++j) items_[static_cast<size_t>(j)].count = count;
  }
  if (static_cast<int64_t>(items_.size()) > max_decode_items()) {
    return absl::ResourceExhaustedError(absl::StrCat(items_.size(), " pieces of attention"));
  }
  return absl::OkStatus();
}

absl::Status StepTableWriter::WriteLayer(const ops::StepBatch& batch, size_t layer) {
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    TOKEND_RETURN_IF_ERROR(WriteTable(batch, i, layer));
  }
  TOKEND_RETURN_IF_ERROR(WriteDecodeItems(batch, layer));
  auto* words = reinterpret_cast<int32_t*>(block_ + offsets_.words);
  auto* lists = reinterpret_cast<LayerLists*>(block_ + offsets_.lists);
  const size_t bytes = items_.size() * sizeof(DecodeItem);
  // Most layers look at the same pieces as one before them.
  for (size_t other = 0; other < layer; ++other) {
    if (lists[other].decode_count == static_cast<int32_t>(items_.size()) &&
        std::memcmp(words + lists[other].decode_items, items_.data(), bytes) == 0) {
      lists[layer] = lists[other];
      return absl::OkStatus();
    }
  }
  lists[layer].decode_count = static_cast<int32_t>(items_.size());
  TOKEND_ASSIGN_OR_RETURN(lists[layer].decode_items,
                          TakeWords(static_cast<int64_t>(items_.size()) * kItemWords));
  if (bytes > 0) std::memcpy(words + lists[layer].decode_items, items_.data(), bytes);
  shape_.decode_items = std::max(shape_.decode_items, lists[layer].decode_count);
  return absl::OkStatus();
}

absl::Status StepTableWriter::WriteTiles(const ops::StepBatch& batch) {
  auto* words = reinterpret_cast<int32_t*>(block_ + offsets_.words);
  auto write = [&](int32_t* index, int32_t* count) -> absl::Status {
    TOKEND_ASSIGN_OR_RETURN(*index, TakeWords(static_cast<int64_t>(tiles_.size()) * kTileWords));
    *count = static_cast<int32_t>(tiles_.size());
    if (!tiles_.empty()) {
      std::memcpy(words + *index, tiles_.data(), tiles_.size() * sizeof(RowTile));
    }
    return absl::OkStatus();
  };
  StepCounts& counts = shape_.counts;
  // The last rows see most and go first.
  tiles_.clear();
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const ops::StepSequence& rows = batch.sequences[i];
    if (!Decodes(rows)) AddTiles(i, rows, 0, limits_.tile_tokens, &tiles_);
  }
  std::reverse(tiles_.begin(), tiles_.end());
  TOKEND_RETURN_IF_ERROR(write(&counts.attention_tiles, &counts.attention_tile_count));
  tiles_.clear();
  for (size_t i = 0; i < batch.sequences.size(); ++i) {
    const ops::StepSequence& rows = batch.sequences[i];
    if (!Decodes(rows)) AddTiles(i, rows, rows.position, limits_.page_tokens, &tiles_);
  }
  return write(&counts.append_tiles, &counts.append_tile_count);
}

absl::StatusOr<StepShape> StepTableWriter::Write(const ops::StepBatch& batch,
                                                 absl::Span<std::byte> block) {
  TOKEND_CHECK(static_cast<int64_t>(block.size()) >= block_bytes_);
  if (batch.tokens.size() > static_cast<size_t>(limits_.rows) ||
      batch.sequences.size() > static_cast<size_t>(limits_.sequences)) {
    return absl::ResourceExhaustedError(absl::StrCat("a step of ", batch.tokens.size(), " rows of ",
                                                     batch.sequences.size(), " sequences"));
  }
  block_ = block.data();
  words_ = 0;
  shape_ = {};
  sinks_.clear();
  StepCounts& counts = shape_.counts;
  counts.rows = counts.angle_rows = static_cast<int32_t>(batch.tokens.size());
  counts.sequences = static_cast<int32_t>(batch.sequences.size());
  counts.logit_rows = static_cast<int32_t>(batch.logit_rows.size());
  std::copy(batch.tokens.begin(), batch.tokens.end(),
            reinterpret_cast<int32_t*>(block_ + offsets_.tokens));
  std::copy(batch.logit_rows.begin(), batch.logit_rows.end(),
            reinterpret_cast<int32_t*>(block_ + offsets_.logit_rows));
  auto* positions = reinterpret_cast<int64_t*>(block_ + offsets_.angle_positions);
  auto* sequences = reinterpret_cast<SequenceEntry*>(block_ + offsets_.sequences);
  for (const ops::StepSequence& rows : batch.sequences) {
    *sequences++ = {rows.first_row, rows.rows, rows.position};
    for (int32_t i = 0; i < rows.rows; ++i) positions[rows.first_row + i] = rows.position + i;
  }
  for (size_t layer = 0; layer < static_cast<size_t>(limits_.layers); ++layer) {
    TOKEND_RETURN_IF_ERROR(WriteLayer(batch, layer));
  }
  TOKEND_RETURN_IF_ERROR(WriteTiles(batch));
  *reinterpret_cast<StepCounts*>(block_) = counts;
  shape_.used_bytes = offsets_.words + words_ * kWord;
  return shape_;
}

}  // namespace tokend::cuda
