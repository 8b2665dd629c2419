// BranchState: its start, prefix reuse and its end.
#include "core/kv/branch_state.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "core/base/check.h"
#include "core/base/status_macros.h"
#include "core/kv/errors.h"

namespace tokend::kv {
BranchState::BranchState(StoreState* store, BranchBase base)
    : store_(store),
      page_tokens_(store->options.page_tokens),
      layout_(base.claim.node()->layout),
      base_(std::move(base)),
      pending_start_(base_.tokens / page_tokens_ * page_tokens_),
      peak_(base_.computed) {
  base::MutexLock lock(&store_->mu);
  store_->branches.push_back(this);
  SetLive(true);
  store_->tree.ReadTokens(base_.claim.node(), pending_start_, base_.tokens, &pending_);
}

BranchState::~BranchState() {
  base::MutexLock lock(&store_->mu);
  std::vector<BranchState*>& branches = store_->branches;
  branches.erase(std::find(branches.begin(), branches.end(), this));
  SetLive(false);
  ReturnPages(0);
  DropLeadIn();
  store_->tree.Drop(std::move(donor_));
  store_->tree.Drop(std::move(current_));
  heavy_.reset();
  epoch_.reset();
  store_->tree.Drop(std::move(base_.claim));
  // What a long chain leaves is freed by Maintain.
  store_->tree.Drain(1024);
}

void BranchState::Reserve(int64_t tokens) {
  reserved_ = tokens;
  pending_.reserve(static_cast<size_t>(std::max<int64_t>(0, tokens - pending_start_)));
}

void BranchState::Append(absl::Span<const int32_t> tokens) {
  pending_.insert(pending_.end(), tokens.begin(), tokens.end());
}

absl::Span<const int32_t> BranchState::Tokens(int64_t begin, int64_t end,
                                              std::vector<int32_t>* scratch) const {
  if (begin >= pending_start_) {
    return absl::MakeConstSpan(pending_).subspan(begin - pending_start_, end - begin);
  }
  scratch->clear();
  ReadLocked(begin, end, scratch);
  return *scratch;
}

void BranchState::ReadLocked(int64_t begin, int64_t end, std::vector<int32_t>* out) const {
  store_->tree.ReadTokens(base_.claim.node(), begin, std::min(end, pending_start_), out);
  begin = std::max(begin, pending_start_);
  if (begin >= end) return;
  const auto from = pending_.begin() + (begin - pending_start_);
  out->insert(out->end(), from, from + (end - begin));
}

void BranchState::ReadTokens(int64_t begin, int64_t end, std::vector<int32_t>* out) const {
  TOKEND_CHECK(0 <= begin && end <= tokens());
  base::MutexLock lock(&store_->mu);
  ReadLocked(begin, end, out);
}

int64_t BranchState::first_position() const {
  base::MutexLock lock(&store_->mu);
  return store_->tree.FirstPosition(base_.claim.node());
}

Node* BranchState::BaseNode(int64_t position) const {
  const int64_t index = position / page_tokens_;
  Node* const node = store_->tree.Ancestor(base_.claim.node(), index);
  return node->index == index ? node : nullptr;
}

bool BranchState::ReachIsWhole(Node* last, int64_t position) {
  for (size_t g = 0; g < layout_->groups.size(); ++g) {
    const LayerGroup& group = layout_->groups[g];
    const auto has = [g](const Node* node) { return (node->whole() >> g & 1) != 0; };
    if (group.full()) {
      if (!last->is_root() && !has(last)) return false;
      continue;
    }
    const std::vector<Node*> reach = store_->tree.Reach(last, position, group.mask);
    if (!std::all_of(reach.begin(), reach.end(), has)) return false;
  }
  return true;
}

Node* BranchState::FindResumeNode(int64_t limit, int64_t floor) {
  NodeTree& tree = store_->tree;
  Node* const base_end = tree.Ancestor(base_.claim.node(), pending_start_ / page_tokens_ - 1);
  Node* best = tree.Ancestor(base_end, -1);
  ResumeScan scan(*layout_);

  // Where the base's turn ended, part of a node included if it is still there.
  const int64_t usual = std::min(base_.computed, limit);
  const int64_t rest = usual % page_tokens_;
  const Node* const tail = rest > 0 ? BaseNode(usual) : nullptr;
  const bool has_rest = tail != nullptr && tail->rows_of_all() >= rest;
  const auto consider = [&](Node* node) {
    const bool at_usual = has_rest && scan.nodes() == usual / page_tokens_;
    if (scan.CanResume() || (at_usual && scan.CanResume(usual))) best = node;
  };
  // Mostly all is there; then the session's length does not matter.
  if (usual >= page_tokens_) {
    Node* const node = tree.Ancestor(base_end, usual / page_tokens_ - 1);
    const int64_t position = has_rest ? usual : usual - rest;
    if (ReachIsWhole(node, position)) {
      scan.StartAt(position);
      best = node;
    }
  }
  if (scan.nodes() == 0 && floor > 0) {
    const int64_t skipped = std::max(WindowBegin(*layout_, floor), tree.KeptFrom(base_end));
    scan.SkipTo(std::min(skipped / page_tokens_, base_end->index + 1), WholeSinks(floor));
    Node* const last = tree.Ancestor(base_end, scan.nodes() - 1);
    if (last->index == scan.nodes() - 1) consider(last);
  }
  const int64_t most_nodes = limit / page_tokens_;
  int64_t last = std::min(base_end->index, most_nodes - 1);
  // Behind a node that a full group lacks, nothing matters.
  if (layout_->full_groups != 0) last = std::min(last, tree.FullTip(base_end)->index + 1);
  for (Node* node : tree.Chain(tree.Ancestor(base_end, last), scan.nodes())) {
    scan.Add(node->whole());
    consider(node);
  }
  std::vector<int32_t> scratch;
  Node* node = base_end;
  while (scan.nodes() < most_nodes && !scan.Hopeless()) {
    const int64_t begin = scan.nodes() * page_tokens_;
    node = tree.FindChild(node, Tokens(begin, begin + page_tokens_, &scratch));
    if (node == nullptr) break;
    scan.Add(node->whole());
    consider(node);
  }
  return best;
}

std::pair<Node*, int> BranchState::FindDonor(Node* resume, int64_t limit) {
  const int64_t begin = (resume->index + 1) * page_tokens_;
  const int64_t end = std::min(limit, begin + page_tokens_);
  if (begin >= end) return {nullptr, 0};
  std::vector<int32_t> scratch;
  return store_->tree.FindDonor(resume, BaseNode(begin), Tokens(begin, end, &scratch));
}

void BranchState::MatchPrefix() {
  base::MutexLock lock(&store_->mu);
  MatchLocked();
}

void BranchState::MatchLocked() {
  TOKEND_CHECK(!matched_);
  matched_ = true;
  SetLive(true);
  if (is_heavy()) return MatchHeavy();
  // The last token is always computed: its logits are wanted.
  const int64_t limit = std::max<int64_t>(0, tokens() - 1);
  LeadIn lead_in = PlanRecompute(limit);
  Node* const resume = FindResumeNode(limit, lead_in.start);
  if ((resume->index + 1) * page_tokens_ < lead_in.start) {
    StartLeadIn(std::move(lead_in));
  } else {
    Resume(resume);
    if (!ran_) cached_tokens_ = computed_ - HiddenPositions(*layout_, computed_);
  }
  store_->tree.Change(&base_.claim, Claim::Kind::kTokens);
}

void BranchState::Resume(Node* node) {
  Node* donor = nullptr;
  std::tie(donor, donor_rows_) = FindDonor(node, std::max<int64_t>(0, tokens() - 1));
  computed_ = (node->index + 1) * page_tokens_ + donor_rows_;
  current_ = store_->tree.Take(node, computed_, Claim::Kind::kStrong);
  if (donor != nullptr) donor_ = store_->tree.Take(donor, computed_, Claim::Kind::kStrong);
}

BranchStats BranchState::stats() const {
  const int64_t end = std::max(computed_, peak_);
  const int64_t start = std::min(base_.computed, end);
  return {.cached_tokens = cached_tokens_,
          .recomputed_tokens = recomputed_tokens_,
          .evicted_tokens =
              evicted_tokens_ + HiddenPositions(*layout_, end) - HiddenPositions(*layout_, start)};
}

Node* BranchState::FindOrAdd(Node* parent, absl::Span<const int32_t> tokens) {
  Node* child = store_->tree.FindChild(parent, tokens);
  return child != nullptr ? child : store_->tree.AddChild(parent, tokens);
}

void BranchState::AttachPrepared(Node* node, int64_t computed) {
  // What is being computed again may not be there yet.
  const int64_t rows =
      std::min<int64_t>(std::min(computed, computed_) - node->index * page_tokens_, page_tokens_);
  if (!current_ || donor_ || prepared_.empty() || rows < 1) return;
  if (node->parent != current_.node()) return;
  store_->tree.Attach(node, std::move(prepared_.front()), static_cast<int>(rows));
  prepared_.erase(prepared_.begin());
  store_->branch_pages -= layout_->layers;
}

absl::StatusOr<Claim> BranchState::Seal(int64_t end, int64_t computed) {
  NodeTree& tree = store_->tree;
  const int64_t last = (end + page_tokens_ - 1) / page_tokens_ - 1;
  constexpr Claim::Kind kStrong = Claim::Kind::kStrong;
  if (end <= base_.tokens) {
    return tree.Take(tree.Ancestor(base_.claim.node(), last), computed, kStrong);
  }
  Node* node = tree.Ancestor(base_.claim.node(), pending_start_ / page_tokens_ - 1);
  if (current_ && current_.node()->index >= node->index) node = current_.node();
  if (node->index >= last) return tree.Take(tree.Ancestor(node, last), computed, kStrong);
  std::vector<int32_t> scratch;
  while (node->index < last) {
    if (absl::Status fault = store_->Fault(FaultPoint::kSealNode); !fault.ok()) {
      tree.Drop(tree.Take(node, std::min(end, computed_), kStrong));
      return fault;
    }
    const int64_t begin = (node->index + 1) * page_tokens_;
    const int64_t size = std::min<int64_t>(page_tokens_, end - begin);
    const absl::Span<const int32_t> tokens = Tokens(begin, begin + size, &scratch);
    node = size == page_tokens_ ? FindOrAdd(node, tokens) : tree.AddChild(node, tokens);
    AttachPrepared(node, std::min(end, computed_));
  }
  // After parking the version's window may lie behind the KV that is there: what it
  // does not reach goes with the claim that does.
  Claim attached = tree.Take(node, std::min(end, computed_), kStrong);
  Claim sealed = tree.Take(node, computed, kStrong);
  tree.Drop(std::move(attached));
  return sealed;
}

absl::StatusOr<VersionInfo> BranchState::Commit(WriterState* writer, const CommitRequest& request) {
  base::MutexLock lock(&store_->mu);
  TOKEND_CHECK(0 <= request.tokens && request.tokens <= tokens());
  Session* const session = writer->fork != nullptr ? writer->fork.get() : writer->session.get();
  if (session->deleted || base_.session != writer->session) return SessionDeleted(session->id);
  const Version expected = writer->fork != nullptr ? Version::kNone : base_.number;
  if (session->head() != expected) {
    store_->observer->OnVersionConflict();
    return VersionMismatch(static_cast<int64_t>(expected), session->head());
  }
  const int64_t first = store_->tree.FirstPosition(base_.claim.node());
  if (request.tokens < first) return BadPosition(request.tokens, first, tokens());
  const int64_t computed = std::min(request.tokens, std::max(peak_, computed_));
  TOKEND_ASSIGN_OR_RETURN(Claim claim, Seal(request.tokens, computed));
  if (heavy_ != nullptr) HangHeavy(&claim, request.tokens);
  if (absl::Status fault = store_->Fault(FaultPoint::kPublish); !fault.ok()) {
    store_->tree.Drop(std::move(claim));
    return fault;
  }
  VersionRecord record = {.number = Version{session->next_number++},
                          .parent = expected,
                          .tokens = request.tokens,
                          .computed = computed,
                          .request_id = request.request_id,
                          .reason = request.reason,
                          .conversation = request.conversation};
  record.claim = std::move(claim);
  if (writer->fork != nullptr) session->forked_from = base_.version_name;
  store_->AddVersion(session, std::move(record));
  session->reserved = session->provisional = false;
  writer->committed = true;
  store_->observer->OnSessionOp(base::SessionOp::kCommit);
  const VersionRecord& head = session->versions.back();
  return VersionInfo{.session_id = session->id,
                     .number = head.number,
                     .parent = head.parent,
                     .tokens = head.tokens,
                     .request_id = head.request_id,
                     .reason = head.reason,
                     .create_time = head.create_time};
}

}  // namespace tokend::kv
