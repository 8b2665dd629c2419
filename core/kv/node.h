#ifndef TOKEND_CORE_KV_NODE_H_
#define TOKEND_CORE_KV_NODE_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "core/kv/layout.h"
#include "core/kv/page_pool.h"

namespace tokend::kv {

// `page_tokens` positions of a token sequence over all layers. A full node is
// unique for (parent, tokens) and an entry of the prefix index; one that is cut
// short belongs to the version that ends in it and has no children. Tokens never
// change; KV may come and go, for it is a cache.
//
// Changed by NodeTree alone. An owner is a head, a pin or a branch.
struct Node {
  Node* parent = nullptr;  // nullptr: a root, which has no tokens
  Node* jump = nullptr;    // some ancestor; a root's is itself
  int64_t index = -1;      // first position / page_tokens; a root's is -1
  uint64_t digest = 0;     // of the root and all tokens up to here
  const Layout* layout = nullptr;
  absl::InlinedVector<int32_t, 16> tokens;

  // Lifetime: a node goes when it has neither claims nor children nor pages.
  int32_t refs = 0;      // claims on it, and children with refs
  int32_t children = 0;  // all

  // Ownership of pages, by group.
  int32_t chain = 0;  // full group: strong claims on it, and children with chain
  struct Holds {
    int32_t strong = 0;
    int32_t weak = 0;
  };
  std::array<Holds, kMaxGroups> windows = {};  // windowed groups: claims that reach it

  // KV. Bit g of `resident`: group g has its pages; all hold the first `rows`.
  uint32_t resident = 0;
  int32_t rows = 0;
  std::vector<PageRef> pages;  // [layers], or empty

  // The parent's list of children, newest first.
  Node* first_child = nullptr;
  Node* previous_sibling = nullptr;
  Node* next_sibling = nullptr;

  // Pages without an owner, and the list of nodes with such.
  int64_t loose_pages = 0;
  enum class Loose : uint8_t { kNone, kCached, kKept } loose = Loose::kNone;
  Node* loose_previous = nullptr;
  Node* loose_next = nullptr;

  // Scratch of NodeTree::Count and MarkOwned; bits are groups.
  uint64_t mark_epoch = 0;
  uint32_t mark_seen = 0;
  uint32_t mark_shared = 0;
  uint32_t mark_pinned = 0;

  bool is_root() const { return parent == nullptr; }
  bool full() const { return static_cast<int>(tokens.size()) == layout->page_tokens; }
  // Bit g: group g has all rows.
  uint32_t whole() const { return rows == layout->page_tokens ? resident : 0; }
  uint32_t all_groups() const { return (1u << layout->groups.size()) - 1; }
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_NODE_H_
