// CallSlots: a path's table from slot to call.
//
// One word for each slot, because there is one for each outstanding call: where no call is, the word links the free
// slots, or remembers the cancelled generation that the slot is held for. Grows by an eighth, so that no size of it
// pays for twice as many.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "transfer/outgoing_call.h"

namespace weir::engine {

// One per path. Owns no calls. Single-threaded.
class CallSlots {
 public:
  // Slots that were ever taken.
  std::size_t size() const { return words_.size(); }
  // Slots that name a call or are held.
  std::size_t taken() const { return taken_; }
  // Null where the slot is free or held. `slot` must be below size().
  transfer::OutgoingCall* operator[](std::size_t slot) const {
    const std::uint64_t word = words_[slot];
    return (word & kMark) == 0 ? reinterpret_cast<transfer::OutgoingCall*>(word) : nullptr;
  }

  // The slot that was freed last, or a new one.
  std::uint32_t take(transfer::OutgoingCall& call) {
    ++taken_;
    const auto word = reinterpret_cast<std::uint64_t>(&call);
    if (free_ != kNone) [[likely]] {
      const std::uint32_t slot = free_;
      free_ = static_cast<std::uint32_t>(words_[slot] >> kMarkBits);
      words_[slot] = word;
      return slot;
    }
    if (words_.size() == words_.capacity()) words_.reserve(words_.size() + std::max(kFirst, words_.size() / 8));
    words_.push_back(word);
    return static_cast<std::uint32_t>(words_.size() - 1);
  }

  void free(std::uint32_t slot) {
    words_[slot] = std::uint64_t{free_} << kMarkBits | kFree;
    free_ = slot;
    --taken_;
  }

  // Its call is gone, but the slot names no other one until free_held().
  void hold(std::uint32_t slot, std::uint64_t generation) { words_[slot] = generation << kMarkBits | kHeld; }
  // False if the slot is not held for that generation (any more). Both may come from a peer.
  bool free_held(std::size_t slot, std::uint64_t generation) {
    if (slot >= words_.size() || words_[slot] != (generation << kMarkBits | kHeld)) return false;
    free(static_cast<std::uint32_t>(slot));
    return true;
  }

  // Slots start over. None may be taken.
  void release_memory() {
    WEIR_CHECK(taken_ == 0, "slots can start over only when none is taken");
    words_ = std::vector<std::uint64_t>();
    free_ = kNone;
  }

 private:
  static constexpr std::size_t kFirst = 16;
  static constexpr unsigned kMarkBits = 2;
  static constexpr std::uint64_t kMark = 3, kFree = 1, kHeld = 2;  // in the low bits, which pointers leave at zero
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static_assert(alignof(transfer::OutgoingCall) > kMark);

  std::vector<std::uint64_t> words_;
  std::uint32_t free_ = kNone;
  std::uint32_t taken_ = 0;
};

}  // namespace weir::engine
