// For tests: what becomes of the store's pages, and where it can be made to fail.
#ifndef TOKEND_CORE_KV_STORE_HOOKS_H_
#define TOKEND_CORE_KV_STORE_HOOKS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "core/base/page_id.h"

namespace tokend::kv {

struct Node;

// What a page was taken for.
struct PageTag {
  // Differs where the principal, the model, the KV dtype or the policy does;
  // with share_prefixes not where only the principal does.
  uint64_t root = 0;
  int64_t index = 0;  // first position / page_tokens
  int layer = 0;

  bool operator==(const PageTag&) const = default;
};

// Where the store can be made to fail. What fails there changes nothing.
enum class FaultPoint {
  kTakePages,   // Branch::Prepare, where pages are missing
  kAddSession,  // CreateSession, Fork, Admit
  kSealNode,    // Commit: before each node that it makes or finds
  kPublish,     // Commit, Rollback: before the version can be seen
};

// All with the store's mutex held: do not call the store. A page's calls come on
// the engine thread.
class StoreHooks {
 public:
  virtual ~StoreHooks() = default;

  virtual void OnTaken(base::PageId, const PageTag&) {}
  // The page is the node's now; its tokens are what the page's rows stand for.
  virtual void OnAttached(base::PageId, const Node&) {}
  // The page is no node's any more; a branch goes on writing it behind its first rows.
  virtual void OnDetached(base::PageId, int /*rows*/) {}
  virtual void OnFreed(base::PageId) {}
  // What lies between the sinks and the node is about to leave its chain.
  virtual void OnCut(const Node&) {}
  // An error makes the operation fail with it.
  virtual absl::Status Fault(FaultPoint) { return absl::OkStatus(); }
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_STORE_HOOKS_H_
