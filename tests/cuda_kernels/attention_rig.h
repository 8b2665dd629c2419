// Runs AppendKv, DecodeAttention and PrefillAttention over random sequences, and holds
// them against ops::PagedAttentionRef on what lies in the pages.
#ifndef TOKEND_TESTS_CUDA_KERNELS_ATTENTION_RIG_H_
#define TOKEND_TESTS_CUDA_KERNELS_ATTENTION_RIG_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/ops/attention.h"
#include "core/ops/plan.h"
#include "cuda_kernels/backend/step_tables.h"
#include "cuda_kernels/kernels/attention.h"
#include "tests/cuda_kernels/device_array.h"

namespace tokend::cuda {

struct AttentionCase {
  int heads = 4;
  int kv_heads = 2;
  int head_dim = 64;
  int page_tokens = 16;
  bool int8 = false;
  bool pair = false;  // mode f32
  ops::AttentionMask mask;
  float soft_cap = 0;
  bool norm = false;  // of queries and keys
  ops::RopePairing pairing = ops::RopePairing::kInterleaved;
  int rope_dims = -1;      // -1: head_dim
  float spread = 1;        // standard deviation of queries, keys and values
  int shared_bytes = 0;    // of a multiprocessor, which sets how far copies run ahead
  bool decode = true;      // single rows are decoded, else they are tiles
  uint64_t placement = 1;  // seed of where pages lie
};

// One row's output, and what it is.
struct AttendedRow {
  int sequence;
  int64_t position;
  std::vector<uint16_t> high;  // [heads * head_dim]
  std::vector<uint16_t> low;   // mode f32
};

// The rows that a step takes from a sequence.
struct StepPart {
  int sequence;
  int rows;
  int64_t attend_begin = 0;
  int64_t store_begin = 0;
};

class AttentionRig {
 public:
  // Sequences of at most `tokens` positions.
  AttentionRig(const AttentionCase& test, int sequences, int64_t tokens);

  // Continues each part's sequence. Pages that its window has left are filled with NaN
  // first, and are in no table.
  std::vector<AttendedRow> Step(const std::vector<StepPart>& parts);
  // All of one sequence's rows up to `tokens`, in steps of `chunk`.
  std::vector<AttendedRow> Run(int sequence, int64_t tokens, int chunk);

  // The largest error of the row, as a share of its bound.
  double WorstShare(const AttendedRow& row);
  // Likewise for the keys and values of a position.
  double WorstKvShare(int sequence, int64_t position);

  std::vector<unsigned char> Arena() const { return arena_->Download(); }
  const KvLayout& layout() const { return layout_; }
  uint32_t page(int sequence, int64_t index) const { return pages_[sequence][index]; }
  unsigned Saturations() const { return saturations_.Download()[0]; }
  // query, key or value heads of a row in f32, as the projections gave them.
  std::vector<float> Row(int sequence, int64_t position) const;

 private:
  struct Table {
    std::vector<base::PageId> pages;
    ops::LayerKv kv;
  };
  Table TableOf(int sequence, int64_t first, int64_t last) const;
  void DropPages(int sequence, int64_t position);
  std::vector<double> Query(int sequence, int64_t position, int64_t from) const;
  void Prepare(const RowNorm& norm, const std::vector<float>& weight, int64_t from,
               absl::Span<double> heads) const;
  // What lies in the pages, as numbers, until the next step.
  void ReadPages();

  const AttentionCase test_;
  const int64_t tokens_;
  const int width_;  // of a row of qkv
  KvLayout layout_;
  ops::Rope rope_;
  std::vector<int64_t> next_;                 // [sequences]
  std::vector<std::vector<uint32_t>> pages_;  // [sequences][logical page]
  std::vector<float> query_weight_, key_weight_;
  DeviceArray<float> query_weight_device_, key_weight_device_;
  DeviceArray<double> frequencies_;
  DeviceArray<unsigned> saturations_;
  std::unique_ptr<DeviceArray<unsigned char>> arena_;
  std::unique_ptr<DeviceArray<unsigned char>> workspace_;
  std::vector<double> keys_, values_;  // [pages, page_tokens, kv_heads, head_dim]
};

}  // namespace tokend::cuda

#endif  // TOKEND_TESTS_CUDA_KERNELS_ATTENTION_RIG_H_
