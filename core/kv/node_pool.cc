#include "core/kv/node_pool.h"

#include <algorithm>
#include <utility>

namespace tokend::kv {
namespace {

constexpr int64_t kSlabNodes = 256;

}  // namespace

NodePool::NodePool(int layers, int64_t nodes) : layers_(layers) {
  AddNodes(nodes);
  spare_.reserve(static_cast<size_t>(nodes));
  for (int64_t i = 0; i < nodes; ++i) spare_.emplace_back(static_cast<size_t>(layers));
}

void NodePool::AddNodes(int64_t count) {
  const auto size = static_cast<size_t>(count);
  Node* const nodes = slabs_.emplace_back(std::make_unique<Node[]>(size)).get();
  free_.reserve(free_.capacity() + size);
  // The lowest is taken first.
  for (size_t i = size; i > 0; --i) free_.push_back(nodes + i - 1);
}

Node* NodePool::New() {
  if (free_.empty()) AddNodes(kSlabNodes);
  Node* const node = free_.back();
  free_.pop_back();
  return node;
}

void NodePool::Delete(Node* node) {
  if (!node->pages.empty()) GiveBack(std::move(node->pages));
  std::destroy_at(node);
  std::construct_at(node);
  free_.push_back(node);
}

std::vector<PageRef> NodePool::NewPages() {
  if (spare_.empty()) return std::vector<PageRef>(static_cast<size_t>(layers_));
  std::vector<PageRef> pages = std::move(spare_.back());
  spare_.pop_back();
  return pages;
}

void NodePool::GiveBack(std::vector<PageRef> pages) {
  for (PageRef& page : pages) page.Reset();
  spare_.push_back(std::move(pages));
}

}  // namespace tokend::kv
