// BalancedMemory: where nobody wishes for a NUMA node, the nodes take turns, so that their memory fills evenly and all
// of their channels work. With one node it does nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "buffer/memory.h"

namespace weir::buffer {

class BalancedMemory final : public Memory {
 public:
  BalancedMemory(std::shared_ptr<Memory> inner, std::vector<int> nodes)
      : inner_(std::move(inner)), nodes_(std::move(nodes)) {}

  Piece take(std::size_t bytes, int numa_node = -1) override {
    if (numa_node == -1 && nodes_.size() > 1) {
      // Relaxed: only that the turns are about even matters.
      numa_node = nodes_[turn_.fetch_add(1, std::memory_order_relaxed) % nodes_.size()];
    }
    return inner_->take(bytes, numa_node);
  }
  void give_back(const Piece& piece) noexcept override { inner_->give_back(piece); }
  int node_for(int wish) const override { return inner_->node_for(wish); }

 private:
  const std::shared_ptr<Memory> inner_;
  const std::vector<int> nodes_;
  std::atomic<std::uint32_t> turn_ = 0;
};

}  // namespace weir::buffer
