#include "core/kv/branch.h"

#include <utility>

#include "core/kv/branch_state.h"

namespace tokend::kv {

Branch::Branch(std::unique_ptr<BranchState> state) : state_(std::move(state)) {}
Branch::~Branch() = default;

const std::string& Branch::base_version_name() const { return state_->base().version_name; }
int64_t Branch::base_tokens() const { return state_->base().tokens; }
int64_t Branch::tokens() const { return state_->tokens(); }
int64_t Branch::first_position() const { return state_->first_position(); }
int64_t Branch::computed() const { return state_->computed(); }
int64_t Branch::step_rows() const { return state_->step_rows(); }
const RetentionPolicy& Branch::retention() const { return state_->layout().policy; }
const Conversation& Branch::conversation() const { return state_->base().conversation; }
void Branch::Reserve(int64_t tokens) { state_->Reserve(tokens); }
void Branch::Append(absl::Span<const int32_t> tokens) { state_->Append(tokens); }
void Branch::ReadTokens(int64_t begin, int64_t end, std::vector<int32_t>* out) const {
  state_->ReadTokens(begin, end, out);
}
void Branch::MatchPrefix() { state_->MatchPrefix(); }
absl::Status Branch::Prepare(int64_t count) { return state_->Prepare(count); }
bool Branch::PrepareAhead() { return state_->PrepareAhead(); }
absl::Span<const ops::LayerKv> Branch::layers() const { return state_->views(); }
void Branch::Advance(int64_t count) { state_->Advance(count); }
int64_t Branch::PagesNeeded(int64_t tokens, int64_t chunk_tokens) const {
  return state_->PagesNeeded(tokens, chunk_tokens);
}
void Branch::Park() { state_->Park(); }
bool Branch::parked() const { return state_->parked(); }
int64_t Branch::PagesInAll(int64_t tokens, int64_t chunk_tokens) const {
  return state_->PagesInAll(tokens, chunk_tokens);
}
int64_t Branch::PagesBesideHead(int64_t tokens, int64_t chunk_tokens) const {
  return state_->PagesBesideHead(tokens, chunk_tokens);
}
BranchStats Branch::stats() const { return state_->stats(); }

}  // namespace tokend::kv
