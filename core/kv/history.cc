// Sessions that forget: their specs, their tokens and their messages.
#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/kv/branch_state.h"
#include "core/kv/store_state.h"

namespace tokend::kv {

absl::Status ValidateSpec(const SessionSpec& spec, const StoreOptions& options) {
  TOKEND_RETURN_IF_ERROR(CheckRetention(spec.retention, options));
  if (spec.history_tokens < 0) return base::InvalidField("session.history_tokens", "is negative");
  // A layer that sees all computes its KV from all tokens.
  const bool forgets = spec.retention.kind == RetentionPolicy::Kind::kSlidingWindow;
  if (spec.history_tokens > 0 && !forgets) {
    return base::InvalidField("session.history_tokens", "is for sessions with a sliding window");
  }
  return absl::OkStatus();
}

bool StoreState::CanCut(Node* node) {
  const int64_t kept = (node->index + node->layout->keep_nodes) * options.page_tokens;
  for (const BranchState* branch : branches) {
    if (&branch->layout() != node->layout) continue;
    int claims = 0, behind = 0;
    for (const Claim* claim : branch->claims()) {
      if (!*claim) continue;
      ++claims;
      Node* const at = claim->node();
      if (at->index >= node->index && tree.Ancestor(at, node->index) == node) ++behind;
    }
    if (behind == 0) continue;
    // E.g. on its way through the sinks, or from a base far before.
    if (behind < claims || std::min(branch->base().tokens, branch->peak()) < kept) return false;
  }
  return true;
}

void StoreState::Forget(Session* session) {
  if (session->versions.empty()) return;
  Node* const end = session->versions.back().claim.node();
  Node* const cut = tree.FindCut(end);
  if (cut != nullptr && CanCut(cut)) tree.Cut(cut);
  const int64_t left = session->tokens() - tree.KeptFrom(end);
  session->forget_at =
      session->tokens() + std::max(end->layout->keep_nodes * options.page_tokens, left / 2);
}

void StoreState::Forget() {
  while (true) {
    {
      base::MutexLock lock(&mu);
      if (grown.empty()) return;
      Session* const session = *grown.begin();
      grown.erase(grown.begin());
      Forget(session);
    }
    Drain();
  }
}

Conversation ForgetMessages(const Conversation& conversation, int64_t first_position) {
  if (conversation == nullptr || conversation->empty() || first_position == 0) return conversation;
  const auto kept =
      std::find_if(conversation->begin(), std::prev(conversation->end()),
                   [&](const ChatMessage& message) { return message.end > first_position; });
  if (kept == conversation->begin()) return conversation;
  return std::make_shared<std::vector<ChatMessage>>(kept, conversation->end());
}

}  // namespace tokend::kv
