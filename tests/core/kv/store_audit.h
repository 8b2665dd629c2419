#ifndef TOKEND_TESTS_CORE_KV_STORE_AUDIT_H_
#define TOKEND_TESTS_CORE_KV_STORE_AUDIT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/kv/session_store.h"
#include "core/kv/store_state.h"

namespace tokend::kv {

// Looks inside a store and recounts everything from its roots, naively. Engine
// thread.
class StoreAudit {
 public:
  explicit StoreAudit(SessionStore* store) : state_(store->state_.get()) {}

  // What is broken; empty: nothing.
  std::vector<std::string> Check();

  // The nodes whose KV the store would reuse, and the tokens up to `end` on the
  // way to one.
  std::vector<Node*> ResidentNodes();
  void ReadTokens(Node* node, int64_t end, std::vector<int32_t>* out);

  // Distinct pages of the principal's pinned sessions but `except`, and of a version.
  int64_t PinnedPages(absl::string_view principal, absl::string_view except);
  int64_t VersionPages(absl::string_view principal, absl::string_view id, int64_t version);
  // Of the pages of the principal's sessions with this policy; see PageTag.
  uint64_t RootDigest(absl::string_view principal, const RetentionPolicy& policy) {
    return RootNamer::Digest(state_->namer.Key(principal, policy, ""));
  }
  // Keeps other threads out; all else here takes no lock.
  std::unique_ptr<base::MutexLock> Lock();
  // On which a branch's base ends.
  Node* BaseNode(const Branch& branch);

  int64_t nodes();
  int64_t touched();  // NodeTree::touched
  // Most pages of one layer that one claim of the session's head owns.
  int64_t HeadPages(absl::string_view principal, absl::string_view id, int layer);

 private:
  struct Owner {
    std::vector<const Claim*> claims;
    std::vector<base::PageId> pages;  // beside the tree
    std::vector<base::PageId> heavy;  // of heavy sets
    bool pinned = false;
    bool runs = false;  // a session on which a branch is that is not parked
    bool busy = false;  // a branch
    const Session* session = nullptr;
  };

  void Broken(std::string what);
  static void AddHeavy(const Claim& claim, std::vector<base::PageId>* pages);
  std::vector<Node*> AllNodes();  // roots included, parents first
  std::vector<Owner> Owners();
  std::vector<const Claim*> AllClaims();
  void AddPages(const Claim& claim, std::set<base::PageId>* pages) const;
  bool Reaches(const Claim& claim, const Node* node, const LayerGroup& group) const;
  // The same for a node on the way from the claim's to the root.
  bool InReach(const Claim& claim, const Node* node, const LayerGroup& group) const;
  void CheckCounts(const std::vector<Node*>& nodes);
  void CheckNode(const Node* node);
  void CheckPages(const std::vector<Node*>& nodes);
  void CheckLeases(const std::vector<Node*>& nodes);
  void CheckLoose(const std::vector<Node*>& nodes);
  // store_audit_quotas.cc: what each principal can have.
  void CheckQuotas(const std::vector<Owner>& owners);
  std::set<base::PageId> KeptFrom(const std::string& principal, const std::vector<Owner>& owners,
                                  const std::vector<std::set<base::PageId>>& owned);
  void CheckIndex(const std::vector<Node*>& nodes);
  void CheckSessions();
  void CheckForgetting();
  void CheckEnd(const Claim& claim, int64_t tokens, int64_t computed);

  StoreState* const state_;
  std::vector<std::string> broken_;
};

}  // namespace tokend::kv

#endif  // TOKEND_TESTS_CORE_KV_STORE_AUDIT_H_
