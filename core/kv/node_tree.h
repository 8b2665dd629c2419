#ifndef TOKEND_CORE_KV_NODE_TREE_H_
#define TOKEND_CORE_KV_NODE_TREE_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "core/base/check.h"
#include "core/kv/heavy_set.h"
#include "core/kv/node.h"
#include "core/kv/node_pool.h"
#include "core/kv/page_pool.h"

namespace tokend::kv {

// What someone wants of the nodes up to `node`: their tokens, and, weakly (an
// older version) or strongly (a head, a branch), the KV that a query at
// `position` or later can reach up to `node`. Given back to its tree before it
// dies.
class Claim {
 public:
  enum class Kind : uint8_t { kTokens, kWeak, kStrong };

  Claim() = default;
  Claim(Claim&& other) noexcept
      : node_(std::exchange(other.node_, nullptr)),
        position_(other.position_),
        kind_(other.kind_),
        lease_(std::move(other.lease_)),
        heavy_(std::move(other.heavy_)) {}
  Claim& operator=(Claim&& other) noexcept {
    TOKEND_CHECK(node_ == nullptr);
    node_ = std::exchange(other.node_, nullptr);
    position_ = other.position_;
    kind_ = other.kind_;
    lease_ = std::move(other.lease_);
    heavy_ = std::move(other.heavy_);
    return *this;
  }
  ~Claim() { TOKEND_CHECK(node_ == nullptr); }

  explicit operator bool() const { return node_ != nullptr; }
  Node* node() const { return node_; }
  int64_t position() const { return position_; }
  Kind kind() const { return kind_; }
  // nullptr: no full group, or tokens alone.
  const Lease* lease() const { return lease_.get(); }
  // A strong claim's KV that no node has; nullptr: none.
  const HeavySet* heavy() const { return heavy_.get(); }

 private:
  friend class NodeTree;
  Claim(Node* node, int64_t position, Kind kind) : node_(node), position_(position), kind_(kind) {}

  Node* node_ = nullptr;
  int64_t position_ = 0;
  Kind kind_ = Kind::kTokens;
  std::unique_ptr<Lease> lease_;
  std::shared_ptr<const HeavySet> heavy_;
};

// The jump of a child of `parent`. Skip pointers with one a node: Myers 1983, "An
// applicative random-access stack".
Node* JumpFrom(Node* parent);

// All nodes, the prefix index and the pages' owners. Not thread-safe: the
// store's mutex guards it. The functions marked [engine] take or free pages, or
// free nodes, and belong to the engine thread; the others may be called from any.
class NodeTree {
 public:
  // `pool` outlives the tree. `local_windows` [layers] and `digest_bits`: see
  // StoreOptions.
  NodeTree(PagePool* pool, std::vector<int64_t> local_windows, int page_tokens, int digest_bits);
  ~NodeTree();
  NodeTree(const NodeTree&) = delete;
  NodeTree& operator=(const NodeTree&) = delete;

  int page_tokens() const { return page_tokens_; }
  int64_t node_count() const { return node_count_; }  // without roots
  // Grows by one for each node that is looked at on the way to another or changed.
  int64_t touched() const { return touched_; }

  // --- Tokens. ---

  // Of tokens that a chain may forget; see SetHistory.
  struct History {
    int64_t tokens = 0;  // 0: it keeps all
    int64_t look_back = 0;
  };
  // The root of `key`, made if it is not there. It stays while it is claimed or
  // has children.
  Node* Root(const std::string& key, uint64_t digest, const RetentionPolicy& policy,
             const History& history);
  // `index` in [-1, node->index]. O(log n). Where the chain has forgotten that node:
  // the last one with sinks.
  Node* Ancestor(Node* node, int64_t index) const;
  // The nodes up to `node` whose index is at least `begin`, oldest first.
  std::vector<Node*> Chain(Node* node, int64_t begin) const;
  // Appends the tokens of positions [begin, end), all at or before `node`.
  void ReadTokens(Node* node, int64_t begin, int64_t end, std::vector<int32_t>* out) const;
  // The full child with these tokens, or nullptr.
  Node* FindChild(Node* parent, absl::Span<const int32_t> tokens) const;
  // Makes a child, full or cut short; a full one must not be there yet. Claim it
  // before the next Drain.
  Node* AddChild(Node* parent, absl::Span<const int32_t> tokens);
  // Of the nodes `own` (may be nullptr) and some children of `parent`, the one
  // with the most KV rows for these tokens. {nullptr, 0} if none has one.
  std::pair<Node*, int> FindDonor(Node* parent, Node* own, absl::Span<const int32_t> tokens) const;

  // node_history.cc: chains that forget what lies between their sinks and a node.
  // The first position of the chain that turns may start at; behind it are all tokens,
  // and before it what computing these takes. 0: all are there. O(log n).
  int64_t FirstPosition(Node* node) const;
  // Behind the sinks, the first position whose token is there; 0: all are. O(log n).
  int64_t KeptFrom(Node* node) const;
  // The last node before which the chain may forget: from there on it keeps at least
  // `keep_nodes` nodes that are on the way to `end` alone, and that no claim is on or
  // reaches. nullptr: there is none. O(nodes up to it).
  Node* FindCut(Node* end) const;
  // Forgets what lies before a node that FindCut found. O(nodes behind it).
  void Cut(Node* node);

  // The last node up to `node` that has KV in the full group. O(log n).
  Node* FullTip(Node* node) const;
  // Nodes whose pages in a group with this mask a claim reaches, oldest first.
  std::vector<Node*> Reach(Node* node, int64_t position, const ops::AttentionMask& mask) const;

  // --- Claims. ---

  // `whole`, if there is one, is a weak or strong claim on `node` or behind it;
  // then the cost does not depend on how much KV is missing. A strong claim shares
  // its heavy set, or where that reaches beyond `position`, what it was at its epoch's
  // start.
  Claim Take(Node* node, int64_t position, Claim::Kind kind, const Claim* whole = nullptr);
  void Change(Claim* claim, Claim::Kind kind);
  // A strong claim's from now on.
  void Hang(Claim* claim, std::shared_ptr<const HeavySet> heavy) {
    claim->heavy_ = std::move(heavy);
  }
  // Moves a strong claim on to a child of its node. [engine]
  void Extend(Claim* claim, Node* child);
  // Moves a strong claim's position forward; windowed pages that it leaves and
  // that none else claims are free. Their number. [engine]
  int64_t Slide(Claim* claim, int64_t position);
  // [engine]
  void Drop(Claim claim);

  // Frees up to `budget` nodes that Drop left without claims; false: none is
  // left. [engine]
  bool Drain(int64_t budget);

  // --- Pages. ---

  // A list for the pages of a node that is still to be filled, [layers], all empty.
  std::vector<PageRef> NewPages() { return nodes_.NewPages(); }
  // Frees what the list holds. [engine]
  void GiveBack(std::vector<PageRef> pages) { nodes_.GiveBack(std::move(pages)); }
  // Gives the node the pages, [layers], all or none of a group, of which it keeps
  // those that it lacks or that have more rows; the rest is freed. [engine]
  void Attach(Node* node, std::vector<PageRef> pages, int rows);
  // Drops a strong claim and gives the pages of its node, [layers], which are all there,
  // and which the node is then without, if no other claim owns one. Else empty, and
  // nothing changes. The first `rows` rows are all that is wanted of them. [engine]
  std::vector<PageRef> TakePages(Claim* claim, int rows);
  // Pages without an owner that may go at once; behind them there may be more.
  int64_t loose_pages() const { return loose_pages_; }
  // Frees pages without an owner until `free` are free, a full group's last nodes
  // first: those that no version keeps first, and each time the least recently
  // owned. False: there were not enough. [engine]
  bool Evict(int64_t free);

  // Owned pages of each kind among those that the claims reach; pinned claims
  // come first. What `dying` claims alone reach counts as owned once. Those that
  // branches still fill are not among them.
  struct Owned {
    int64_t once = 0;
    int64_t shared = 0;
    int64_t pinned = 0;
  };
  // One owner with one or two claims.
  struct Claimant {
    const Claim* claim = nullptr;
    const Claim* other = nullptr;
  };
  Owned Count(absl::Span<const Claim* const> pinned, absl::Span<const Claimant> others,
              absl::Span<const Claim> dying);
  // Positions below `end` whose KV is there, of those that the claim reaches.
  int64_t ResidentRows(const Claim& claim, int64_t end) const;

 private:
  friend class StoreAudit;

  struct RootRecord {
    std::string key;
    Layout layout;
    Node node;
  };
  struct ChildKey {
    const Node* parent;
    absl::Span<const int32_t> tokens;
    uint64_t digest;
  };
  struct ChildHash {
    using is_transparent = void;
    size_t operator()(const Node* node) const { return node->digest; }
    size_t operator()(const ChildKey& key) const { return key.digest; }
  };
  struct ChildEqual {
    using is_transparent = void;
    bool operator()(const Node* a, const Node* b) const { return a == b; }
    bool operator()(const ChildKey& key, const Node* node) const {
      return node->parent == key.parent && absl::MakeConstSpan(node->tokens) == key.tokens;
    }
    bool operator()(const Node* node, const ChildKey& key) const { return (*this)(key, node); }
  };

  // As many as the pool can fill.
  int64_t Nodes() const { return pool_->total() / static_cast<int64_t>(local_windows_.size()); }
  uint64_t Digest(const Node* parent, absl::Span<const int32_t> tokens) const;
  void AddRef(Node* node);
  void DropRef(Node* node);
  // Deletes the node if nothing needs it any more, then its parent, and so on.
  void DeleteIfUnused(Node* node);
  void Link(Node* node, Node* parent);
  void Unlink(Node* node);

  // Calls fn(node), newest first, for each node whose pages in a group with this
  // mask a claim reaches.
  template <typename Fn>
  void ForReach(Node* node, int64_t position, const ops::AttentionMask& mask, Fn fn) const;
  void Hold(Claim* claim, const Claim* whole);
  void Release(Claim* claim);
  void HoldWindows(const Claim& claim, int delta);
  void FreePages(Node* node, uint32_t groups);

  // The full group: a claim's lease, and the leases whose tip moves with KV that
  // comes to a node or has gone from it.
  void OpenLease(Claim* claim, const Claim* whole);
  void CloseLease(Claim* claim);
  void Enlist(Lease* lease, Node* tip);
  void Delist(Lease* lease);
  void MoveLeasesTo(Node* node);
  void MoveLeasesFrom(Node* node);

  // Groups whose pages may go at once.
  uint32_t LooseGroups(const Node* node) const;
  // Brings the node's place among the loose nodes up to date; it was used now, or
  // at `last_use`.
  void Update(Node* node) { Update(node, ++uses_); }
  void Update(Node* node, int64_t last_use);
  void Unlist(Node* node);

  enum class Owner : uint8_t { kPinned, kOther, kDying };
  void Visit(const Claim& claim, Owner owner, Owned* owned);
  void Mark(Node* node, int group, Owner owner, bool* stop, Owned* owned);
  void VisitHeavy(const HeavySet& heavy, Owner owner, Owned* owned);

  PagePool* const pool_;
  const std::vector<int64_t> local_windows_;  // [layers]
  const int page_tokens_;
  const uint64_t digest_mask_;
  NodePool nodes_;
  std::map<std::string, std::unique_ptr<RootRecord>> roots_;
  absl::flat_hash_set<Node*, ChildHash, ChildEqual> index_;
  int64_t node_count_ = 0;

  mutable int64_t touched_ = 0;
  std::vector<Node*> dropped_;  // each lost a ref

  struct LooseList {
    Node* oldest = nullptr;  // by last_use
    Node* newest = nullptr;
  };
  LooseList& ListOf(Node::Loose loose) { return loose == Node::Loose::kCached ? cached_ : kept_; }
  LooseList cached_;  // no version keeps the tokens
  LooseList kept_;
  int64_t loose_pages_ = 0;
  int64_t uses_ = 0;
  uint64_t mark_epoch_ = 0;
  uint32_t claimant_ = 0;  // the one at hand

  std::vector<std::shared_ptr<const HeavySet>> retired_;  // wait for the engine thread
  // By page of heavy sets; see Node's.
  struct PageMark {
    uint64_t epoch = 0;
    bool shared = false;
    bool pinned = false;
  };
  std::vector<PageMark> page_marks_;  // [pages], once there was a heavy set
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_NODE_TREE_H_
