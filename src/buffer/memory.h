// Memory: where large messages and buffers live. Behind one interface, so that heap, huge pages and files are the same
// to those who use it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace weir::buffer {

inline constexpr std::size_t kPieceAlignment = 64;
inline constexpr std::size_t kLargestPieceBytes = std::size_t{1} << 45;  // keeps sums of sizes far from an overflow

// A piece of at least one unit; `unit` is a power of two.
inline constexpr std::size_t rounded_up(std::size_t bytes, std::size_t unit) {
  return bytes == 0 ? unit : (bytes + unit - 1) & ~(unit - 1);
}

// A piece of memory that somebody holds; `token` is its memory's own.
struct Piece {
  std::byte* data = nullptr;  // aligned to 64 bytes; null: there was none
  std::size_t bytes = 0;      // at least what was asked for
  std::uint64_t token = 0;
  int numa_node = -1;  // where it was bound to; -1: nowhere

  explicit operator bool() const { return data != nullptr; }
};

// How many bytes a memory may hand out, and has. Any thread.
class Budget {
 public:
  explicit Budget(std::uint64_t bound) : bound_(bound) {}

  // Relaxed throughout: it is a count and publishes nothing.
  [[nodiscard]] bool charge(std::uint64_t bytes) {
    std::uint64_t used = used_.load(std::memory_order_relaxed);
    do {
      if (bytes > bound_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
    return true;
  }
  void refund(std::uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  std::uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  std::uint64_t bound() const { return bound_; }

 private:
  std::uint64_t bound_;
  std::atomic<std::uint64_t> used_ = 0;
};

// Any thread may take and give back.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;

  // No piece if the bound is reached or the system has no more. `numa_node` is a wish; -1: wherever.
  [[nodiscard]] virtual Piece take(std::size_t bytes, int numa_node = -1) = 0;
  virtual void give_back(const Piece& piece) noexcept = 0;

  // What a wish for a node comes to here: -1 where nodes make no difference.
  virtual int node_for(int /*wish*/) const { return -1; }
};

}  // namespace weir::buffer
