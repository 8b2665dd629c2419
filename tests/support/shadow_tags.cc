#include "tests/support/shadow_tags.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/kv/node.h"
#include "core/ops/attention.h"

namespace tokend::testing {

ShadowTags::ShadowTags(ops::Backend* backend, int page_tokens,
                       std::function<void(base::PageId)> on_freed)
    : backend_(backend), page_tokens_(page_tokens), on_freed_(std::move(on_freed)) {}

absl::Status ShadowTags::AllocateArena(int64_t pages) {
  pages_.assign(pages, Page{.written = std::vector<uint32_t>(page_tokens_)});
  return backend_->AllocateArena(pages);
}

void ShadowTags::Problem(std::string what) {
  if (problems_.size() < 20) problems_.push_back(std::move(what));
}

absl::Status ShadowTags::status() const {
  if (problems_.empty()) return absl::OkStatus();
  return base::MakeError(absl::StatusCode::kInternal, problems_.front(),
                         {.reason = base::ErrorReason::kBackendFailed});
}

void ShadowTags::OnTaken(base::PageId page, const kv::PageTag& tag) {
  Page& at = At(page);
  if (at.live) Problem("a page is taken that is not free");
  at.live = true;
  at.tag = tag;
  ++at.generation;
  if (on_page_taken) on_page_taken(page, tag);
}

void ShadowTags::OnAttached(base::PageId page, const kv::Node& node) {
  Page& at = At(page);
  const kv::Node* root = &node;
  while (!root->is_root()) root = root->jump;
  if (!at.live || at.tag.index != node.index || at.tag.root != root->digest) {
    Problem(absl::StrCat("node ", node.index, " gets a page that was taken for node ", at.tag.index,
                         at.live ? "" : ", which is free"));
  }
  at.node = &node;
}

void ShadowTags::OnDetached(base::PageId page, int rows) {
  Page& at = At(page);
  if (!at.live || at.node == nullptr) Problem("a page is taken from a node that has it not");
  at.node = nullptr;
  // From here on it may change: it counts as taken again, with these rows in it.
  ++at.generation;
  for (int row = 0; row < rows; ++row) {
    uint32_t& written = at.written[static_cast<size_t>(row)];
    if (written + 1 == at.generation) written = at.generation;
  }
}

void ShadowTags::OnFreed(base::PageId page) {
  Page& at = At(page);
  if (!at.live) Problem("a page is freed twice");
  at.live = false;
  at.node = nullptr;
  if (on_freed_) on_freed_(page);
  if (on_page_freed) on_page_freed(page, at.tag);
}

void ShadowTags::OnCut(const kv::Node& node) {
  if (on_cut) on_cut(node);
}

absl::Status ShadowTags::Fault(kv::FaultPoint point) {
  return on_fault ? on_fault(point) : absl::OkStatus();
}

// The rows of a step that come as far as a layer: those from `stored` on leave KV,
// those from `queries` on look at others'.
ShadowTags::Reach ShadowTags::ReachOf(const ops::StepSequence& sequence, int layer) {
  const int64_t begin = layer == 0 ? sequence.position : sequence.layers[layer - 1].attend_begin;
  const int64_t first = std::max(sequence.position, begin);
  const ops::LayerKv& kv = sequence.layers[layer];
  return {.stored = std::max(first, kv.store_begin),
          .queries = std::max(first, kv.attend_begin),
          .end = sequence.position + sequence.rows};
}

void ShadowTags::CheckRows(const ops::LayerKv& kv, const Page& page, int64_t index, Reach reach) {
  if (reach.queries >= reach.end) return;
  const int64_t begin = index * page_tokens_;
  const int64_t end = std::min(reach.stored, begin + page_tokens_);
  for (int64_t q = begin; q < end; ++q) {
    // What the first row does not see, no later one does, but for the sinks.
    const bool seen = ops::NextSeen(kv, reach.queries, q, page_tokens_) == q;
    if (seen && q <= reach.queries && page.written[q - begin] != page.generation) {
      Problem(absl::StrCat("layer ", page.tag.layer, ", position ", reach.queries, " reads ", q,
                           ", which was not written since its page was taken"));
    }
  }
}

void ShadowTags::CheckLayer(const ops::StepSequence& sequence, int layer, uint64_t root) {
  const ops::LayerKv& kv = sequence.layers[layer];
  const kv::Node* previous = nullptr;
  for (int32_t i = 0; i < kv.page_count; ++i) {
    const int32_t kept = i - kv.sink_pages;
    const int64_t index = kept < 0               ? i
                          : kept < kv.kept_pages ? kv.kept[kept]
                                                 : kv.first_page + kept - kv.kept_pages;
    if (kept == 0 && kv.first_page != kv.sink_pages) previous = nullptr;
    ++checked_pages_;
    if (!Exists(kv.pages[i]) || !At(kv.pages[i]).live) {
      Problem(absl::StrCat("layer ", layer, ", page ", index, " is free"));
      previous = nullptr;
      continue;
    }
    const Page& page = At(kv.pages[i]);
    if (page.tag.root != root) Problem(absl::StrCat("page ", index, " is another principal's"));
    if (page.tag.layer != layer || page.tag.index != index) {
      Problem(absl::StrCat("layer ", layer, ", page ", index, " is layer ", page.tag.layer,
                           ", page ", page.tag.index));
    }
    if (previous != nullptr && page.node != nullptr && page.node->parent != previous) {
      Problem(absl::StrCat("layer ", layer, ", page ", index, " is of another chain"));
    }
    previous = page.node;
    CheckRows(kv, page, index, ReachOf(sequence, layer));
  }
}

void ShadowTags::CheckWritable(const ops::StepSequence& sequence, int layer) {
  const Reach reach = ReachOf(sequence, layer);
  if (reach.stored >= reach.end) return;
  for (int64_t i = reach.stored / page_tokens_; i <= (reach.end - 1) / page_tokens_; ++i) {
    const base::PageId page = ops::FindPage(sequence.layers[layer], i);
    if (!Exists(page)) {
      Problem(absl::StrCat("layer ", layer, " has no page ", i, " to write"));
    } else if (At(page).node != nullptr) {
      Problem(absl::StrCat("layer ", layer, ", page ", i, " is written, and is a node's"));
    }
  }
}

void ShadowTags::CheckSequence(const ops::StepSequence& sequence) {
  // The branch took the pages that it writes for itself.
  base::PageId own = base::PageId::kNone;
  const int layers = static_cast<int>(sequence.layers.size());
  for (int layer = layers - 1; layer >= 0; --layer) {
    const ops::LayerKv& kv = sequence.layers[layer];
    const Reach reach = ReachOf(sequence, layer);
    if (reach.stored < reach.end) own = ops::FindPage(kv, reach.stored / page_tokens_);
    if (!Exists(own) && kv.page_count > 0) own = kv.pages[0];
  }
  if (!Exists(own)) return Problem("a step without pages");
  for (int layer = 0; layer < layers; ++layer) {
    CheckLayer(sequence, layer, At(own).tag.root);
    CheckWritable(sequence, layer);
  }
}

ShadowTags::Flight ShadowTags::FlightOf(const ops::StepBatch& batch) const {
  Flight flight;
  for (const ops::StepSequence& sequence : batch.sequences) {
    for (int layer = 0; layer < static_cast<int>(sequence.layers.size()); ++layer) {
      const ops::LayerKv& kv = sequence.layers[layer];
      for (int32_t i = 0; i < kv.page_count; ++i) {
        flight.pages.emplace_back(kv.pages[i], At(kv.pages[i]).generation);
      }
      const Reach reach = ReachOf(sequence, layer);
      for (int64_t q = reach.stored; q < reach.end; ++q) {
        flight.rows.push_back(
            {ops::FindPage(kv, q / page_tokens_), static_cast<int>(q % page_tokens_)});
      }
    }
  }
  return flight;
}

void ShadowTags::SetWritten(const Flight& flight, bool written) {
  for (const Flight::Row& row : flight.rows) {
    At(row.page).written[row.row] = written ? At(row.page).generation : 0;
  }
}

absl::Status ShadowTags::Submit(const ops::StepBatch& batch) {
  for (const ops::StepSequence& sequence : batch.sequences) CheckSequence(sequence);
  if (!problems_.empty()) return status();
  Flight flight = FlightOf(batch);
  const absl::Status submitted = backend_->Submit(batch);
  SetWritten(flight, submitted.ok());
  if (submitted.ok()) flights_.push_back(std::move(flight));
  return submitted;
}

absl::StatusOr<ops::StepOutput> ShadowTags::Collect() {
  absl::StatusOr<ops::StepOutput> output = backend_->Collect();
  if (flights_.empty()) return output;
  const Flight flight = std::move(flights_.front());
  flights_.pop_front();
  for (const auto& [page, generation] : flight.pages) {
    if (!At(page).live || At(page).generation != generation) {
      Problem("a page is freed under a step in flight");
    }
  }
  if (!output.ok()) SetWritten(flight, false);
  if (output.ok() && !problems_.empty()) return status();
  return output;
}

absl::Status ShadowTags::CopyPages(absl::Span<const ops::PageCopy> copies) {
  for (const ops::PageCopy& copy : copies) {
    const Page& from = At(copy.from);
    const Page& to = At(copy.to);
    if (!from.live || !to.live || from.tag != to.tag || to.node != nullptr) {
      Problem("a page is copied to another place");
    }
    for (int row = 0; row < copy.rows; ++row) {
      if (from.written[row] != from.generation) Problem("a row is copied that is not written");
    }
  }
  if (!problems_.empty()) return status();
  if (absl::Status copied = backend_->CopyPages(copies); !copied.ok()) return copied;
  for (const ops::PageCopy& copy : copies) {
    Page& to = At(copy.to);
    std::fill_n(to.written.begin(), copy.rows, to.generation);
  }
  return absl::OkStatus();
}

}  // namespace tokend::testing
