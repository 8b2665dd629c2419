#include "tests/core/kv/kv_harness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace tokend::kv {

Tokens SomeTokens(int count, int seed) {
  Tokens tokens;
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<int32_t>((state >> 16) % kVocabulary));
  }
  return tokens;
}

Tokens Concat(const Tokens& a, const Tokens& b) {
  Tokens both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

StoreOptions SmallOptions() {
  return {.layers = 3,
          .page_tokens = 4,
          .pages = 300,
          .context_tokens = 10000,
          .model_fingerprint = "fake"};
}

KvHarness::KvHarness(StoreOptions options)
    : options_(std::move(options)),
      backend_({.layers = options_.layers,
                .page_tokens = options_.page_tokens,
                .vocabulary_size = kVocabulary}),
      tags_(&backend_, options_.page_tokens, [this](base::PageId page) { backend_.Poison(page); }),
      seen_(options_.pages) {
  EXPECT_TRUE(tags_.AllocateArena(options_.pages).ok());
  tags_.on_cut = [this](const Node& node) {
    forgotten_[&node] = AllTokens(node.parent, node.index * options_.page_tokens);
  };
  options_.hooks = &tags_;
  auto store = SessionStore::Create(options_, &tags_, &clock_, &observer_);
  EXPECT_TRUE(store.ok()) << store.status();
  store_ = *std::move(store);
}

const testing::FakeReference& KvHarness::Reference(const RetentionPolicy& policy,
                                                   const Tokens& tokens) {
  std::vector<uint64_t> keys = {absl::HashOf(static_cast<int>(policy.kind), policy.sink_tokens,
                                             policy.window_tokens, policy.full_layers,
                                             policy.kept_pages, policy.epoch_tokens)};
  for (const int32_t token : tokens) keys.push_back(absl::HashOf(keys.back(), token));
  size_t known = tokens.size();
  auto found = references_.find(keys[known]);
  if (found != references_.end()) return found->second;
  if (references_.size() > 5000) references_.clear();
  found = references_.end();
  while (known > 0 && found == references_.end()) found = references_.find(keys[--known]);
  std::vector<ops::AttentionMask> masks;
  for (int layer = 0; layer < options_.layers; ++layer) {
    masks.push_back(
        policy.Mask(layer, options_.local_windows.empty() ? 0 : options_.local_windows[layer]));
  }
  testing::FakeReference reference =
      found != references_.end()
          ? found->second
          : testing::FakeReference(kVocabulary, std::move(masks),
                                   {policy.sink_tokens, policy.window_tokens, policy.kept_pages,
                                    policy.epoch_tokens, options_.page_tokens});
  reference.Append(absl::MakeConstSpan(tokens).subspan(reference.size()));
  return references_.emplace(keys.back(), std::move(reference)).first->second;
}

absl::Status KvHarness::Compute(Branch* branch, int chunk, int64_t end) {
  if (end == 0) end = branch->tokens();
  const testing::FakeReference& reference = Reference(branch->retention(), AllTokens(*branch, end));
  while (branch->computed() < end) {
    const int64_t at = branch->computed();
    const int64_t count = std::min<int64_t>({chunk, end - at, branch->step_rows()});
    TOKEND_RETURN_IF_ERROR(branch->Prepare(count));
    Tokens tokens;
    branch->ReadTokens(at, at + count, &tokens);
    const ops::StepSequence sequence = {
        .rows = static_cast<int32_t>(count), .position = at, .layers = branch->layers()};
    const auto last = static_cast<int32_t>(count - 1);
    const bool has_logits = at + last >= sequence.layers.back().attend_begin;
    TOKEND_ASSIGN_OR_RETURN(
        const ops::StepOutput output,
        tags_.Forward({.tokens = tokens,
                       .sequences = absl::MakeConstSpan(&sequence, 1),
                       .logit_rows = absl::MakeConstSpan(&last, has_logits ? 1 : 0)}));
    if (has_logits && absl::MakeConstSpan(reference.Logits(at + count - 1)) != output.logits) {
      return absl::InternalError("logits differ from the reference");
    }
    branch->Advance(count);
  }
  return absl::OkStatus();
}

absl::Status KvHarness::TakeAllPages() {
  const int64_t nodes = options_.pages / options_.layers;
  std::vector<std::unique_ptr<Branch>> branches;
  absl::Status status;
  while (status.ok()) {
    branches.push_back(store_->CheckoutEphemeral("another"));
    const int seed = 77 + static_cast<int>(branches.size());
    branches.back()->Append(SomeTokens(static_cast<int>(nodes * options_.page_tokens), seed));
    branches.back()->MatchPrefix();
    status = Compute(branches.back().get(), options_.page_tokens);
  }
  if (!absl::IsResourceExhausted(status)) return status;
  EXPECT_LT(store_->Snapshot().pages.free, options_.layers);
  branches.clear();
  store_->Maintain();
  return absl::OkStatus();
}

std::unique_ptr<Writer> KvHarness::Admit(absl::string_view session,
                                         WriteIntent::OnConflict on_conflict,
                                         std::optional<int64_t> expected_version) {
  auto writer = store_->Admit({.principal = "p",
                               .session_id = std::string(session),
                               .expected_version = expected_version,
                               .on_conflict = on_conflict});
  EXPECT_TRUE(writer.ok()) << writer.status();
  return writer.ok() ? *std::move(writer) : nullptr;
}

absl::Status KvHarness::Create(absl::string_view id, const RetentionPolicy& retention,
                               absl::string_view principal) {
  return store_->CreateSession(principal, id, {.retention = retention}).status();
}

absl::StatusOr<VersionInfo> KvHarness::Turn(absl::string_view session, const Tokens& input,
                                            int chunk, std::optional<int64_t> keep,
                                            std::optional<int64_t> from_position) {
  TOKEND_ASSIGN_OR_RETURN(const std::unique_ptr<Writer> writer,
                          store_->Admit({.principal = "p", .session_id = std::string(session)}));
  TOKEND_ASSIGN_OR_RETURN(std::unique_ptr<Branch> branch,
                          store_->Checkout(writer.get(), from_position));
  branch->Append(input);
  branch->MatchPrefix();
  TOKEND_RETURN_IF_ERROR(Compute(branch.get(), chunk));
  last_stats_ = branch->stats();
  const int64_t tokens = keep.value_or(branch->tokens());
  return store_->Commit(writer.get(), std::move(branch), {.tokens = tokens});
}

Tokens KvHarness::Read(absl::string_view id, std::optional<int64_t> version) {
  auto slice = store_->ReadTokens("p", id, version, std::nullopt, 1 << 30);
  EXPECT_TRUE(slice.ok()) << slice.status();
  return slice.ok() ? slice->tokens : Tokens();
}

Tokens KvHarness::AllTokens(Node* node, int64_t end) {
  Tokens tokens;
  audit().ReadTokens(node, end, &tokens);
  const Node* at = node;
  while (!at->is_root() && !at->behind_gap()) at = at->parent;
  if (at->is_root()) return tokens;
  const Tokens& before = forgotten_.at(at);
  std::copy(before.begin(), before.end(), tokens.begin());
  return tokens;
}

Tokens KvHarness::AllTokens(const Branch& branch, int64_t end) {
  const int64_t base = std::min(branch.base_tokens(), end);
  Tokens tokens;
  {
    const auto lock = audit().Lock();
    tokens = AllTokens(audit().BaseNode(branch), base);
  }
  branch.ReadTokens(base, end, &tokens);
  return tokens;
}

void KvHarness::ExpectExpiry(absl::string_view id, absl::Duration idle) {
  clock_.Advance(idle - absl::Seconds(1));
  store_->Maintain();
  EXPECT_TRUE(store_->GetSession("p", id).ok());
  clock_.Advance(absl::Seconds(2));
  store_->Maintain();
  EXPECT_FALSE(store_->GetSession("p", id).ok());
}

void KvHarness::Audit() { EXPECT_THAT(Broken(), ::testing::IsEmpty()); }

std::vector<std::string> KvHarness::Broken() {
  std::vector<std::string> broken = audit().Check();
  for (const std::string& problem : backend_.problems()) broken.push_back(problem);
  for (const std::string& problem : tags_.problems()) broken.push_back(problem);
  for (Node* node : audit().ResidentNodes()) {
    for (const PageRef& page : node->pages) {
      if (!page) continue;
      const auto layer = static_cast<int>(&page - node->pages.data());
      const int rows = node->rows[node->layout->group_of_layer[layer]];
      Seen& seen = seen_[static_cast<size_t>(page.id())];
      const uint64_t checksum = backend_.PageChecksum(page.id(), rows);
      if (seen.generation == tags_.generation(page.id()) && seen.rows == rows) {
        if (checksum != seen.checksum) broken.push_back("a page of a node changed");
        continue;
      }
      seen = {tags_.generation(page.id()), rows, checksum};
      if (!RowsAreRight(node, layer)) broken.push_back("rows of a node differ from the reference");
    }
  }
  return broken;
}

bool KvHarness::RowsAreRight(Node* node, int layer) {
  const int64_t begin = node->index * options_.page_tokens;
  const int rows = node->rows[node->layout->group_of_layer[layer]];
  const testing::FakeReference& reference =
      Reference(node->layout->policy, AllTokens(node, begin + rows));
  for (int row = 0; row < rows; ++row) {
    if (backend_.RowValue(node->pages[layer].id(), row) != reference.Kv(layer, begin + row)) {
      return false;
    }
  }
  return true;
}

std::string Metadata(const absl::Status& status, absl::string_view key) {
  const auto info = base::GetErrorInfo(status);
  if (!info) return "no reason";
  for (const auto& [name, value] : info->metadata) {
    if (name == key) return value;
  }
  return "absent";
}

}  // namespace tokend::kv
