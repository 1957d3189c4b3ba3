// ForwardRing: datagrams that other workers hand to one that shares their port (docs/protocol.md, rule P-14). Bounded,
// without a lock; what finds it full is lost, as in a network.
//
// Each slot has a turn, as in MpmcRing: it says which push may write the slot next, or that its datagram may be read.
// The worker looks at datagrams where they lie and gives the slots back later, because what a datagram carries is read
// until it was delivered.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/address.h"
#include "base/bytes.h"

namespace weir::worker {

// push() is for any thread, the rest for the worker's.
class ForwardRing {
 public:
  static constexpr std::uint32_t kSlots = 128;
  static constexpr std::uint32_t kStrangerSlots = kSlots / 4;  // of which strangers may fill
  static constexpr std::size_t kLargestDatagram = 65'536;
  static constexpr std::size_t kMostBytes = kSlots * kLargestDatagram;  // slots keep their memory

  struct Datagram {
    MutableByteSpan bytes;
    Address from;
    std::uint8_t ecn = 0;
  };

  ForwardRing() {
    for (std::uint32_t i = 0; i < kSlots; ++i) slots_[i].turn.store(i, std::memory_order_relaxed);
  }
  ForwardRing(const ForwardRing&) = delete;
  ForwardRing& operator=(const ForwardRing&) = delete;

  // Copies it. False: there is no room. Allocates only for a datagram that is larger than all that its slot has held.
  [[nodiscard]] bool push(ByteSpan datagram, const Address& from, std::uint8_t ecn, bool is_strangers = false) {
    if (datagram.size() > kLargestDatagram) return false;
    if (!is_strangers) return push_any(datagram, from, ecn, false);
    // Relaxed: a count that publishes nothing.
    if (strangers_.fetch_add(1, std::memory_order_relaxed) < kStrangerSlots && push_any(datagram, from, ecn, true)) {
      return true;
    }
    strangers_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }

  // The next one; its bytes stay until give_back(). False: there is none, or its push is still under way.
  [[nodiscard]] bool take(Datagram& out) {
    const std::uint32_t at = head_ + taken_;
    Slot& slot = slots_[at % kSlots];
    // Acquire: sees the datagram.
    if (taken_ == kSlots || slot.turn.load(std::memory_order_acquire) != at + 1) return false;
    ++taken_;
    out = {{slot.bytes.get(), slot.size}, slot.from, slot.ecn};
    return true;
  }

  // All that were taken.
  void give_back() {
    std::uint32_t strangers = 0;
    for (; taken_ != 0; --taken_, ++head_) {
      Slot& slot = slots_[head_ % kSlots];
      strangers += slot.is_strangers ? 1 : 0;
      slot.turn.store(head_ + kSlots, std::memory_order_release);  // may be written again
    }
    if (strangers != 0) strangers_.fetch_sub(strangers, std::memory_order_relaxed);
  }

 private:
  static_assert(std::has_single_bit(kSlots), "positions run over");

  struct Slot {
    std::atomic<std::uint32_t> turn{0};
    std::uint32_t size = 0;
    std::uint32_t capacity = 0;
    std::uint8_t ecn = 0;
    bool is_strangers = false;
    Address from;
    std::unique_ptr<std::byte[]> bytes;

    void hold(ByteSpan datagram) {
      constexpr std::size_t kStep = 2'048;
      if (capacity < datagram.size()) {
        const std::size_t rounded = (datagram.size() + kStep - 1) / kStep * kStep;
        bytes.reset(new std::byte[rounded]);
        capacity = static_cast<std::uint32_t>(rounded);
      }
      std::memcpy(bytes.get(), datagram.data(), datagram.size());
      size = static_cast<std::uint32_t>(datagram.size());
    }
  };

  bool push_any(ByteSpan datagram, const Address& from, std::uint8_t ecn, bool is_strangers) {
    std::uint32_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Slot& slot = slots_[at % kSlots];
      // Acquire: the worker is through with the slot.
      const auto ahead = static_cast<std::int32_t>(slot.turn.load(std::memory_order_acquire) - at);
      if (ahead < 0) return false;
      if (ahead == 0 && tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        slot.hold(datagram);
        slot.from = from;
        slot.ecn = ecn;
        slot.is_strangers = is_strangers;
        slot.turn.store(at + 1, std::memory_order_release);  // publishes the datagram
        return true;
      }
      if (ahead > 0) at = tail_.load(std::memory_order_relaxed);
    }
  }

  std::array<Slot, kSlots> slots_;
  alignas(64) std::atomic<std::uint32_t> tail_{0};
  std::atomic<std::uint32_t> strangers_{0};  // slots that they fill, or try to
  alignas(64) std::uint32_t head_ = 0;       // the worker's: the first slot that was not given back
  std::uint32_t taken_ = 0;                  // the worker's: slots from there on whose datagrams it looks at
};

}  // namespace weir::worker
