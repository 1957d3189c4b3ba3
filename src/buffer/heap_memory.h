// HeapMemory: pieces straight from the process's heap, up to a bound. What every machine has.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "buffer/memory.h"

namespace weir::buffer {

class HeapMemory final : public Memory {
 public:
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;

  explicit HeapMemory(std::uint64_t bound_bytes) : budget_(bound_bytes) {}
  ~HeapMemory() override;

  Piece take(std::size_t bytes, int numa_node = -1) override;
  void give_back(const Piece& piece) noexcept override;

  std::uint64_t taken_bytes() const { return budget_.used(); }

 private:
  Budget budget_;
};

}  // namespace weir::buffer
