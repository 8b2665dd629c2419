#ifndef TOKEND_CORE_KV_BRANCH_STATE_H_
#define TOKEND_CORE_KV_BRANCH_STATE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/kv/branch.h"
#include "core/kv/lead_in.h"
#include "core/kv/node_tree.h"
#include "core/kv/store_state.h"

namespace tokend::kv {

// What a branch starts from.
struct BranchBase {
  std::string version_name;
  Version number = Version::kNone;
  std::shared_ptr<Session> session;  // nullptr: ephemeral
  std::string principal;
  int64_t tokens = 0;
  int64_t computed = 0;  // positions below `tokens` that had KV once
  // The same of its session's head where that is pinned, which it stays until the turn
  // commits; of a fork, up to `tokens`: the rest counts as any session's pins. Else 0.
  int64_t pinned = 0;
  // Becomes a session of its own: the head of `session` may change meanwhile.
  bool forks = false;
  Conversation conversation;
  Claim claim;  // strong, on the node of the last token, or on the root
};

// Tokens of whole nodes of the base stay in its nodes; all later ones lie in
// `pending_`. Pages of whole nodes belong to the nodes, those of later positions
// to the branch (`prepared_`) until their node is whole.
class BranchState {
 public:
  BranchState(StoreState* store, BranchBase base);
  ~BranchState();

  const BranchBase& base() const { return base_; }
  int64_t tokens() const { return pending_start_ + static_cast<int64_t>(pending_.size()); }
  int64_t first_position() const;
  int64_t computed() const { return computed_; }
  // Positions below it have had KV once.
  int64_t peak() const { return peak_; }
  const Layout& layout() const { return *layout_; }
  absl::Span<const ops::LayerKv> views() const { return views_; }
  BranchStats stats() const;

  void Reserve(int64_t tokens);
  void Append(absl::Span<const int32_t> tokens);
  void ReadTokens(int64_t begin, int64_t end, std::vector<int32_t>* out) const;
  void MatchPrefix();
  int64_t step_rows() const;
  absl::Status Prepare(int64_t count);
  bool PrepareAhead();
  void Advance(int64_t count);
  int64_t PagesNeeded(int64_t tokens, int64_t chunk_tokens) const;
  int64_t PagesInAll(int64_t tokens, int64_t chunk_tokens) const;
  int64_t PagesBesideHead(int64_t tokens, int64_t chunk_tokens) const;
  void Park();
  bool parked() const { return !live_; }

  // Pages that it may need in all; 0: its turn was not admitted. Under the store's mutex.
  int64_t most_pages() const { return most_pages_; }
  void SetMostPages(int64_t pages) { most_pages_ = pages; }

  // The claim that reaches all that this branch owns in the tree; but for what is
  // computed of a lead-in's sinks, which sinks_claim() reaches if it is not nullptr.
  const Claim& widest_claim() const {
    return donor_ ? donor_ : goal_ ? goal_ : current_ ? current_ : base_.claim;
  }
  const Claim* sinks_claim() const { return goal_ ? &current_ : nullptr; }
  std::array<const Claim*, 4> claims() const { return {&base_.claim, &current_, &donor_, &goal_}; }
  const std::vector<std::vector<PageRef>>& prepared() const { return prepared_; }
  const std::vector<std::vector<PageRef>>& lead_pages() const { return lead_pages_; }

  absl::StatusOr<VersionInfo> Commit(WriterState* writer, const CommitRequest& request);

 private:
  // Makes nodes of the first `end` tokens, to which this branch's KV of them
  // goes. A strong claim on that of the last token, or on the root.
  absl::StatusOr<Claim> Seal(int64_t end, int64_t computed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void AttachPrepared(Node* node, int64_t computed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void MatchLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void ReadLocked(int64_t begin, int64_t end, std::vector<int32_t>* out) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  // The tokens of positions [begin, end); `scratch` holds them if need be.
  absl::Span<const int32_t> Tokens(int64_t begin, int64_t end, std::vector<int32_t>* scratch) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  Node* FindOrAdd(Node* parent, absl::Span<const int32_t> tokens)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  // The base's node that holds token `position`, or nullptr.
  Node* BaseNode(int64_t position) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  // The last of the whole nodes behind which work can resume furthest, where need
  // be with the rows that the base has of the next node. Not searched before `floor`,
  // where a lead-in can start.
  Node* FindResumeNode(int64_t limit, int64_t floor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  bool ReachIsWhole(Node* last, int64_t position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void Resume(Node* node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  std::pair<Node*, int> FindDonor(Node* resume, int64_t limit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);

  // branch_heavy.cc: HEAVY_HITTERS.
  bool is_heavy() const { return layout_->policy.kind == RetentionPolicy::Kind::kHeavyHitters; }
  void MatchHeavy() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  absl::Status PrepareHeavy(int64_t count);
  // Takes pages up to the node of index `last`; in `old`, the tail pages [layers] that
  // others have too and whose rows the new ones lack.
  absl::Status TakeHeavyPages(int64_t last, std::vector<PageRef>* old)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void RefreshHeavyViews();
  void AdvanceHeavy(int64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  std::shared_ptr<HeavySet> NewHeavySet() const;
  // Makes heavy_ as it is now its epoch's start.
  void KeepEpoch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void StartEpoch(const HeavyHitters& rule) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void HangHeavy(Claim* claim, int64_t tokens) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  int64_t HeavyPagesNeeded(int64_t tokens) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);

  // branch_lead_in.cc. Where computing a lead-in beats resuming at `resume`, starts
  // one.
  LeadIn PlanRecompute(int64_t limit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  // The last that is there of the first `nodes` nodes of this branch's tokens.
  Node* LastNode(int64_t nodes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  std::vector<Node*> Path(int64_t begin, int64_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  // Bit g: the sinks that group g reaches from `position` are there.
  uint32_t WholeSinks(int64_t position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void StartLeadIn(LeadIn plan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void LeaveSinks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  absl::Status PrepareLeadIn(int64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void DeriveLeadInTables() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void AdvanceLeadIn(int64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void FinishLeadIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void DropLeadIn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);

  void DeriveTables() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  // Takes pages for nodes up to index `last`.
  int64_t NodesMissing(int64_t last) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  absl::Status TakePages(int64_t last) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  // Where there is no room to copy: makes the donor's pages its own, which are then
  // prepared_[0], if no other owns them but the base's session, which is not pinned.
  bool TakeDonorPages() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void ReturnPages(size_t keep) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  absl::Status CopyDonorRows();
  void FinishNode() ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void SlideTo(int64_t position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);
  void RefreshViews();
  // Most pages of a windowed group's layer.
  int64_t MostPages(const LayerGroup& group, int64_t chunk_tokens) const;
  // Of a layer of the group (nullptr: HEAVY_HITTERS) for `nodes` nodes in all, with the
  // pinned head's.
  int64_t LayerBesideHead(const LayerGroup* group, int64_t nodes, int64_t chunk_tokens) const;
  // Whether it counts among its session's live branches.
  void SetLive(bool live) ABSL_EXCLUSIVE_LOCKS_REQUIRED(store_->mu);

  StoreState* const store_;
  const int page_tokens_;
  const Layout* const layout_;
  BranchBase base_;

  int64_t pending_start_;         // a multiple of page_tokens
  std::vector<int32_t> pending_;  // tokens of positions from pending_start_ on
  int64_t reserved_ = 0;          // tokens, by Reserve
  int64_t computed_ = 0;
  int64_t peak_;  // see peak()
  bool matched_ = false;
  bool live_ = false;  // true except while parked
  int64_t most_pages_ = 0;
  bool ran_ = false;  // Advance was called

  // From MatchPrefix on.
  Claim current_;  // on the last whole node below computed_
  Claim donor_;    // on the node whose first rows are to be copied into prepared_[0]
  int donor_rows_ = 0;
  // Pages, [layers] each, of the nodes from computed_ / page_tokens on.
  std::vector<std::vector<PageRef>> prepared_;

  // While dropped KV of a windowed session is computed again: first the sinks, in
  // the usual way, up to sinks_end_; then the lead-in, on pages of its own. What
  // it leaves goes to the nodes up to `goal_`.
  std::optional<LeadIn> lead_in_;
  int64_t sinks_end_ = 0;
  Claim goal_;  // on the last node of the lead-in, at its end
  // Pages, [layers] each with gaps, of the nodes from lead_node_ on.
  std::vector<std::vector<PageRef>> lead_pages_;
  int64_t lead_node_ = 0;

  // From MatchPrefix on, HEAVY_HITTERS alone; current_ claims it.
  std::shared_ptr<HeavySet> heavy_;
  std::shared_ptr<HeavySet> epoch_;            // heavy_'s, or one before
  std::vector<std::vector<int32_t>> kept_;     // [layers] of ops::LayerKv
  std::vector<std::vector<int64_t>> weights_;  // [layers] of the step at hand
  HeavyScratch heavy_scratch_;

  // The page tables of ops::LayerKv, from the first Prepare on.
  bool derived_ = false;
  std::vector<std::vector<base::PageId>> tables_;       // [layers]
  std::array<ReachablePages, kMaxGroups> table_reach_;  // by group: where they start
  std::vector<ops::LayerKv> views_;                     // [layers]

  int64_t cached_tokens_ = 0;
  int64_t recomputed_tokens_ = 0;
  int64_t evicted_tokens_ = 0;  // HEAVY_HITTERS alone
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_BRANCH_STATE_H_
