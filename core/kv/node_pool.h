#ifndef TOKEND_CORE_KV_NODE_POOL_H_
#define TOKEND_CORE_KV_NODE_POOL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "core/kv/node.h"
#include "core/kv/page_pool.h"

namespace tokend::kv {

// Memory of nodes and of their lists of pages, kept from one to the next: a turn
// that goes from node to node takes none from the heap.
class NodePool {
 public:
  // Holds memory for `nodes` nodes with pages from the start.
  NodePool(int layers, int64_t nodes);

  Node* New();
  void Delete(Node* node);

  // [layers], all empty.
  std::vector<PageRef> NewPages();
  // Frees the pages in it.
  void GiveBack(std::vector<PageRef> pages);

 private:
  void AddNodes(int64_t count);

  const int layers_;
  std::vector<std::unique_ptr<Node[]>> slabs_;
  std::vector<Node*> free_;  // room for all nodes
  std::vector<std::vector<PageRef>> spare_;
};

}  // namespace tokend::kv

#endif  // TOKEND_CORE_KV_NODE_POOL_H_
