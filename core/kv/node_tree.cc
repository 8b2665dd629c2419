#include "core/kv/node_tree.h"

#include <algorithm>

#include "core/kv/lead_in.h"

namespace tokend::kv {
namespace {

// A node's newest children among which a donor of single rows is looked for.
constexpr int kDonorCandidates = 64;

// Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

Node* JumpFrom(Node* parent) {
  Node* const jump = parent->jump;
  return parent->index - jump->index == jump->index - jump->jump->index ? jump->jump : parent;
}

NodeTree::NodeTree(PagePool* pool, std::vector<int64_t> local_windows, int page_tokens,
                   int digest_bits)
    : pool_(pool),
      local_windows_(std::move(local_windows)),
      page_tokens_(page_tokens),
      digest_mask_(digest_bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << digest_bits) - 1),
      nodes_(static_cast<int>(local_windows_.size()), Nodes()) {
  index_.reserve(static_cast<size_t>(Nodes()));
}

NodeTree::~NodeTree() {
  while (Drain(1 << 20)) {
  }
  Evict(pool_->total());
  TOKEND_CHECK(node_count_ == 0);
}

Node* NodeTree::Root(const std::string& key, uint64_t digest, const RetentionPolicy& policy,
                     const History& history) {
  std::unique_ptr<RootRecord>& root = roots_[key];
  if (root == nullptr) {
    root = std::make_unique<RootRecord>();
    root->key = key;
    root->layout = MakeLayout(policy, local_windows_, page_tokens_);
    if (history.tokens > 0) SetHistory(history.tokens, history.look_back, &root->layout);
    root->node.jump = root->node.sinks = &root->node;
    root->node.digest = digest;
    root->node.layout = &root->layout;
  }
  return &root->node;
}

Node* NodeTree::Ancestor(Node* node, int64_t index) const {
  for (; node->index > index; ++touched_) {
    node = node->jump->index >= index ? node->jump : node->parent;
  }
  return node;
}

void NodeTree::ReadTokens(Node* node, int64_t begin, int64_t end, std::vector<int32_t>* out) const {
  if (begin >= end) return;
  const size_t base = out->size();
  out->resize(base + (end - begin));
  node = Ancestor(node, (end - 1) / page_tokens_);
  for (; !node->is_root(); node = node->parent, ++touched_) {
    const int64_t start = node->index * page_tokens_;
    const int64_t from = std::max(begin, start);
    const int64_t to = std::min<int64_t>(end, start + static_cast<int64_t>(node->tokens.size()));
    std::copy(node->tokens.begin() + (from - start), node->tokens.begin() + (to - start),
              out->begin() + base + (from - begin));
    if (start <= begin) break;
  }
}

uint64_t NodeTree::Digest(const Node* parent, absl::Span<const int32_t> tokens) const {
  uint64_t digest = parent->digest;
  for (int32_t token : tokens) digest = Mix(digest ^ static_cast<uint32_t>(token));
  return digest & digest_mask_;
}

Node* NodeTree::FindChild(Node* parent, absl::Span<const int32_t> tokens) const {
  const ChildKey key = {.parent = parent, .tokens = tokens, .digest = Digest(parent, tokens)};
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : *found;
}

Node* NodeTree::AddChild(Node* parent, absl::Span<const int32_t> tokens) {
  Node* node = nodes_.New();
  Link(node, parent);
  node->jump = JumpFrom(parent);
  node->index = parent->index + 1;
  node->sinks = node->index < parent->layout->sink_pages ? node : parent->sinks;
  node->digest = Digest(parent, tokens);
  node->layout = parent->layout;
  node->tokens.assign(tokens.begin(), tokens.end());
  ++node_count_;
  if (node->full()) TOKEND_CHECK(index_.insert(node).second);
  return node;
}

std::vector<Node*> NodeTree::Chain(Node* node, int64_t begin) const {
  std::vector<Node*> nodes;
  for (; node->index >= begin && !node->is_root(); node = node->parent, ++touched_) {
    nodes.push_back(node);
  }
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

std::pair<Node*, int> NodeTree::FindDonor(Node* parent, Node* own,
                                          absl::Span<const int32_t> tokens) const {
  std::pair<Node*, int> best = {nullptr, 0};
  const auto try_node = [&](Node* node) {
    if (node->behind_gap()) return;
    const size_t most = std::min<size_t>(tokens.size(), node->rows_of_all());
    size_t rows = 0;
    while (rows < most && node->tokens[rows] == tokens[rows]) ++rows;
    if (static_cast<int>(rows) > best.second) best = {node, static_cast<int>(rows)};
  };
  if (own != nullptr) try_node(own);
  int candidates = 0;
  for (Node* child = parent->first_child; child != nullptr && candidates < kDonorCandidates;
       child = child->next_sibling, ++candidates) {
    try_node(child);
  }
  return best;
}

void NodeTree::Link(Node* node, Node* parent) {
  node->parent = parent;
  node->previous_sibling = nullptr;
  node->next_sibling = parent->first_child;
  if (node->next_sibling != nullptr) node->next_sibling->previous_sibling = node;
  parent->first_child = node;
  ++parent->children;
}

void NodeTree::Unlink(Node* node) {
  if (node->next_sibling != nullptr) {
    node->next_sibling->previous_sibling = node->previous_sibling;
  }
  (node->previous_sibling == nullptr ? node->parent->first_child
                                     : node->previous_sibling->next_sibling) = node->next_sibling;
  --node->parent->children;
}

void NodeTree::AddRef(Node* node) {
  for (; node != nullptr && node->refs++ == 0; node = node->parent) Update(node);
}

void NodeTree::DropRef(Node* node) {
  if (--node->refs > 0) return;
  // A node that is cut short is no entry of the index: nobody would find it.
  if (!node->is_root() && !node->full()) FreePages(node, node->resident);
  Update(node);
  if (node->parent != nullptr) dropped_.push_back(node->parent);
  DeleteIfUnused(node);
}

bool NodeTree::Drain(int64_t budget) {
  retired_.clear();
  for (; budget > 0 && !dropped_.empty(); --budget) {
    Node* node = dropped_.back();
    dropped_.pop_back();
    DropRef(node);
  }
  return !dropped_.empty();
}

void NodeTree::DeleteIfUnused(Node* node) {
  while (node->refs == 0 && node->children == 0 && node->resident == 0) {
    if (node->is_root()) {
      const auto found = std::find_if(roots_.begin(), roots_.end(), [&](const auto& entry) {
        return &entry.second->node == node;
      });
      roots_.erase(found);
      return;
    }
    Node* parent = node->parent;
    if (node->full()) index_.erase(node);
    Unlink(node);
    --node_count_;
    nodes_.Delete(node);
    node = parent;
  }
}

}  // namespace tokend::kv
