#include "tests/core/kv/kv_harness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
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
                .vocabulary_size = kVocabulary}) {
  EXPECT_TRUE(backend_.AllocateArena(options_.pages).ok());
  options_.hooks = &hooks_;
  auto store = SessionStore::Create(options_, &backend_, &clock_, &observer_);
  EXPECT_TRUE(store.ok()) << store.status();
  store_ = *std::move(store);
}

const testing::FakeReference& KvHarness::Reference(const RetentionPolicy& policy,
                                                   const Tokens& tokens) {
  if (references_.size() > 20000) references_.clear();
  const std::string name = absl::StrCat(static_cast<int>(policy.kind), ",", policy.sink_tokens, ",",
                                        policy.window_tokens, ",", policy.full_layers);
  const auto found = references_.find({name, tokens});
  if (found != references_.end()) return found->second;
  std::vector<ops::AttentionMask> masks;
  for (int layer = 0; layer < options_.layers; ++layer) masks.push_back(policy.Mask(layer));
  testing::FakeReference reference(kVocabulary, masks);
  reference.Append(tokens);
  return references_.emplace(std::make_pair(name, tokens), std::move(reference)).first->second;
}

absl::Status KvHarness::Compute(Branch* branch, int chunk, int64_t end) {
  if (end == 0) end = branch->tokens();
  Tokens all;
  branch->ReadTokens(0, end, &all);
  const testing::FakeReference& reference = Reference(branch->retention(), all);
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
        backend_.Forward({.tokens = tokens,
                          .sequences = absl::MakeConstSpan(&sequence, 1),
                          .logit_rows = absl::MakeConstSpan(&last, has_logits ? 1 : 0)}));
    if (has_logits && absl::MakeConstSpan(reference.Logits(at + count - 1)) != output.logits) {
      return absl::InternalError("logits differ from the reference");
    }
    branch->Advance(count);
  }
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

void KvHarness::Audit() {
  EXPECT_THAT(audit().Check(), ::testing::IsEmpty());
  EXPECT_THAT(backend_.problems(), ::testing::IsEmpty());
  int wrong = 0;
  for (const StoreAudit::ResidentPage& page : audit().ResidentPages()) {
    const testing::FakeReference& reference = Reference(page.policy, page.tokens);
    for (int row = 0; row < page.rows; ++row) {
      const uint64_t want = reference.Kv(page.layer, page.first_position + row);
      if (backend_.RowValue(page.page, row) != want) ++wrong;
    }
  }
  EXPECT_EQ(wrong, 0) << "rows of resident pages differ from the reference";
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
