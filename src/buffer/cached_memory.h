// CachedMemory: keeps what is given back, by size class, and hands out what came back last, which is warm. Pieces above
// the largest class pass through. It keeps up to a bound of bytes, and nothing while its inner memory has none to give.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "buffer/memory.h"
#include "buffer/size_class.h"

namespace weir::buffer {

class CachedMemory final : public Memory {
 public:
  CachedMemory(std::shared_ptr<Memory> inner, std::uint64_t keep_bytes);
  ~CachedMemory() override;

  Piece take(std::size_t bytes, int numa_node = -1) override;
  void give_back(const Piece& piece) noexcept override;
  int node_for(int wish) const override { return inner_->node_for(wish); }

  // Gives back all that is kept.
  void trim() noexcept;

  std::uint64_t kept_bytes() const { return kept_.used(); }

 private:
  static constexpr std::size_t kNodeSlots = 9;  // no node, and 8 nodes; more than that share

  // At the front of a kept piece: what it takes to hand it out again.
  struct Kept {
    Kept* next;
    Piece piece;
  };
  struct alignas(64) Stack {
    std::mutex mutex;
    Kept* top = nullptr;
  };
  using Stacks = std::array<Stack, kSizeClasses>;

  Stacks& stacks_of(int numa_node);
  Piece pop(Stack& stack);

  const std::shared_ptr<Memory> inner_;
  Budget kept_;
  std::unique_ptr<std::array<Stacks, kNodeSlots>> stacks_;
};

}  // namespace weir::buffer
