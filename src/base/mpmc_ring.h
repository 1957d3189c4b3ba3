// A bounded queue of small numbers, first in, first out, for any number of threads on either side, without a lock.
//
// Each cell has a turn: it says which push or pop of all may use the cell next. Whoever brings the shared position
// forward owns the cell of that position, and passes the turn on when the number is in or out.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "base/sync.h"

namespace weir {

class MpmcRing {
 public:
  explicit MpmcRing(std::uint32_t capacity) : mask_(capacity - 1), cells_(new Cell[capacity]) {
    WEIR_CHECK(std::has_single_bit(capacity) && capacity >= 2, "the capacity of a ring is a power of two");
    for (std::uint32_t i = 0; i < capacity; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }
  MpmcRing(const MpmcRing&) = delete;
  MpmcRing& operator=(const MpmcRing&) = delete;

  // False: it is full, or a pop that is under way has not made room yet.
  [[nodiscard]] bool try_push(std::uint32_t value) {
    std::uint32_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at & mask_];
      // Acquire: whoever had the cell is through with it.
      const auto ahead = static_cast<std::int32_t>(cell.turn.load(std::memory_order_acquire) - at);
      if (ahead < 0) return false;
      if (ahead == 0 && tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        cell.value = value;
        cell.turn.store(at + 1, std::memory_order_release);  // publishes the value
        return true;
      }
      if (ahead > 0) at = tail_.load(std::memory_order_relaxed);
    }
  }

  // False: it is empty, or a push that is under way has not put its number in yet.
  [[nodiscard]] bool try_pop(std::uint32_t& value) {
    std::uint32_t at = head_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at & mask_];
      // Acquire: sees the value.
      const auto ahead = static_cast<std::int32_t>(cell.turn.load(std::memory_order_acquire) - (at + 1));
      if (ahead < 0) return false;
      if (ahead == 0 && head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        value = cell.value;
        cell.turn.store(at + mask_ + 1, std::memory_order_release);  // the next round may overwrite it
        return true;
      }
      if (ahead > 0) at = head_.load(std::memory_order_relaxed);
    }
  }

 private:
  struct Cell {
    sync::Atomic<std::uint32_t> turn{0};
    std::uint32_t value = 0;
  };

  const std::uint32_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(64) sync::Atomic<std::uint32_t> head_{0};
  alignas(64) sync::Atomic<std::uint32_t> tail_{0};
};

}  // namespace weir
