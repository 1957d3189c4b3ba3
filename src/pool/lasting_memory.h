// LastingMemory: memory that stays for as long as somebody holds a piece of it. Bodies of large messages may outlive
// the pool that received them, and know nothing of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "buffer/memory.h"

namespace weir::pool {

// Any thread may take and give back.
class LastingMemory final : public buffer::Memory {
 public:
  // The last copy of the handle may go before the last piece is back.
  static std::shared_ptr<buffer::Memory> create(std::shared_ptr<buffer::Memory> inner) {
    return {new LastingMemory(std::move(inner)), [](LastingMemory* memory) { memory->let_go(); }};
  }

  buffer::Piece take(std::size_t bytes, int numa_node = -1) override {
    const buffer::Piece piece = inner_->take(bytes, numa_node);
    // Relaxed: whoever takes is held by the handle.
    if (piece) holders_.fetch_add(1, std::memory_order_relaxed);
    return piece;
  }
  void give_back(const buffer::Piece& piece) noexcept override {
    inner_->give_back(piece);
    let_go();
  }
  int node_for(int wish) const override { return inner_->node_for(wish); }

 private:
  explicit LastingMemory(std::shared_ptr<buffer::Memory> inner) : inner_(std::move(inner)) {}
  ~LastingMemory() override = default;

  void let_go() noexcept {
    // Acquire-release: the last one sees what all others did.
    if (holders_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  const std::shared_ptr<buffer::Memory> inner_;
  std::atomic<std::uint64_t> holders_{1};  // the handle, and every piece that is out
};

}  // namespace weir::pool
