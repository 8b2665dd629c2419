#ifndef TOKEND_CORE_KV_NODE_H_
#define TOKEND_CORE_KV_NODE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/kv/layout.h"
#include "core/kv/page_pool.h"

namespace tokend::kv {

struct Node;

// What a weak or strong claim has of its KV in a full group: that of all nodes up
// to `tip`. An entry of the tip's list.
struct Lease {
  Node* end = nullptr;  // the claim's node
  Node* tip = nullptr;  // the last node up to `end` that has KV, or the root
  bool strong = false;
  Lease* previous = nullptr;
  Lease* next = nullptr;
};

// `page_tokens` positions of a token sequence over all layers. A full node is
// unique for (parent, tokens) and an entry of the prefix index; one that is cut
// short belongs to the version that ends in it and has no children. Tokens never
// change; KV may come and go, for it is a cache.
//
// Changed by NodeTree alone. An owner is a head, a pin or a branch.
struct Node {
  Node* parent = nullptr;  // nullptr: a root, which has no tokens; see behind_gap()
  Node* jump = nullptr;    // some ancestor; a root's is itself
  Node* sinks = nullptr;   // up to here, the last node with sinks; the root: none yet
  int64_t index = -1;      // first position / page_tokens; a root's is -1
  uint64_t digest = 0;     // of the root and all tokens up to here
  const Layout* layout = nullptr;
  absl::InlinedVector<int32_t, 32> tokens;

  // Lifetime: a node goes when it has neither claims nor children nor pages.
  int32_t refs = 0;      // claims on it, and children with refs
  int32_t children = 0;  // all

  // Ownership of the full group's pages. Where a node has some, its parent has all
  // of its rows, and last nodes go first. So what lies before a tip stays as long
  // as the tip does, and an owner counts at its tip alone.
  Lease* leases = nullptr;        // that have their tip here
  int32_t owners = 0;             // of them, the strong
  int32_t resident_children = 0;  // with KV in the full group

  // Ownership of windowed groups' pages.
  struct Holds {
    int32_t strong = 0;
    int32_t weak = 0;
  };
  std::array<Holds, kMaxGroups> windows = {};  // claims that reach it

  // KV. Bit g of `resident`: group g has its pages, of which the first rows[g] rows
  // are filled.
  uint32_t resident = 0;
  std::array<int32_t, kMaxGroups> rows = {};
  std::vector<PageRef> pages;  // [layers], or empty

  // The parent's list of children, newest first.
  Node* first_child = nullptr;
  Node* previous_sibling = nullptr;
  Node* next_sibling = nullptr;

  // Pages that may go at once, and the list of nodes with such.
  int64_t loose_pages = 0;
  int64_t last_use = 0;  // a count of the tree's
  enum class Loose : uint8_t { kNone, kCached, kKept } loose = Loose::kNone;
  Node* loose_previous = nullptr;
  Node* loose_next = nullptr;

  // Scratch of NodeTree::Count; bits are groups.
  uint64_t mark_epoch = 0;
  uint32_t mark_seen = 0;
  uint32_t mark_shared = 0;
  uint32_t mark_pinned = 0;
  std::array<uint32_t, kMaxGroups> mark_by = {};  // the claimant who saw it first

  bool is_root() const { return parent == nullptr; }
  // Its chain has forgotten the tokens between its parent and it. Then no one finds
  // it by its tokens.
  bool behind_gap() const { return !is_root() && index != parent->index + 1; }
  bool full() const { return static_cast<int>(tokens.size()) == layout->page_tokens; }
  // Whether it has KV in the full group; a root needs none.
  bool has_full_kv() const { return is_root() || (resident & layout->full_groups) != 0; }
  // Bit g: group g has all rows.
  uint32_t whole() const {
    uint32_t groups = 0;
    for (int g = 0; g < kMaxGroups; ++g) groups |= (rows[g] == layout->page_tokens ? 1u : 0) << g;
    return groups;
  }
  // Rows that all groups have.
  int32_t rows_of_all() const {
    return *std::min_element(rows.begin(), rows.begin() + layout->groups.size());
  }
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_NODE_H_
