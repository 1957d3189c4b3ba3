// Registry: finds blocks by id, from any thread, in constant time and without a lock.
//
// An id is a slot (24 bits) and a generation (40 bits, from 1). A generation never comes back: a slot that has used up
// its own is retired.
//
// Looking up while another thread drops the last reference is safe because a slot, whose memory lives as long as the
// registry, counts the holders of its block: one for the block's own reference count being above 0, one for each
// look-up under way. Generation and count are one word, so that a look-up counts itself in only if it is still that
// generation and somebody holds it. Then:
//   - insert      stores the block, then the word with a count of 1 (release).
//   - hold(id)    counts itself in (acquire: sees the block). The block cannot be destroyed until let_go().
//                 Its own reference count may be 0 by now: pin_if_alive() says so.
//   - let_go(id)  counts down (acquire and release), after a look-up, and by the owner when the block's own count
//                 reached 0. Whoever brings it to 0 is told, is the only one who can reach the block, destroys it and
//                 calls recycle(id), which moves the slot to its next generation.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "weir/pin.h"

namespace weir::buffer {

struct Block;

class Registry {
 public:
  static constexpr std::uint32_t kSegmentSlots = 1'024;
  static constexpr std::uint32_t kMaxSegments = 1'024;
  static constexpr std::uint32_t kMaxSlots = kSegmentSlots * kMaxSegments;
  static constexpr std::uint64_t kLastGeneration = (std::uint64_t{1} << 40) - 1;

  // At most `max_slots` blocks at a time. `first_generation` is for tests.
  explicit Registry(std::uint32_t max_slots = kMaxSlots, std::uint64_t first_generation = 1);
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;
  ~Registry();

  // 0: it is full.
  [[nodiscard]] std::uint64_t insert(Block& block);
  // Null: no such id (any number will do). Otherwise let_go() follows.
  [[nodiscard]] Block* hold(std::uint64_t id);
  // True: the caller was the last.
  [[nodiscard]] bool let_go(std::uint64_t id);
  void recycle(std::uint64_t id);

  std::uint32_t size() const;

 private:
  struct Slot {
    std::atomic<std::uint64_t> word = 0;  // generation << 24 | holders
    std::atomic<Block*> block = nullptr;
    std::uint32_t next_free = 0;  // under mutex_
  };
  using Segment = std::array<Slot, kSegmentSlots>;

  Slot* find(std::uint32_t index);

  std::array<std::atomic<Segment*>, kMaxSegments> segments_{};
  const std::uint32_t max_slots_;
  const std::uint64_t first_generation_;
  mutable std::mutex mutex_;  // of what follows: slots come and go with whole buffers, look-ups do not need it
  std::uint32_t made_ = 0;
  std::uint32_t first_free_ = 0;  // index + 1; 0: none
  std::uint32_t size_ = 0;
};

// A reference, if somebody has one still. The caller keeps the object's memory alive by other means.
inline bool pin_if_alive(detail::Pin& pin) {
  std::uint32_t references = pin.references.load(std::memory_order_relaxed);
  while (references != 0) {
    // Orders nothing, as weir::detail::pin does not: what is read next was published by other means.
    if (pin.references.compare_exchange_weak(references, references + 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

}  // namespace weir::buffer
