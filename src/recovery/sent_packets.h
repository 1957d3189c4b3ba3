// Sender side: the packets in flight, a ring indexed by packet number. Its bound is that of rule L-3
// (docs/protocol.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "base/time.h"

namespace weir::recovery {

inline constexpr std::uint64_t kNoPacket = ~std::uint64_t{0};

enum class PacketState : std::uint8_t {
  outstanding,  // not heard of
  acked,
  lost,  // kept for a while: a late acknowledgement shows that the loss was spurious
};

// What the two ECN bits of the IP header say.
enum class EcnMark : std::uint8_t { none = 0, ect1 = 1, ect0 = 2, ce = 3 };

struct SentPacket {
  Instant sent_at{};
  std::uint64_t frames_begin = 0;  // in the caller's frame ring, counted without wrapping; see LossDetector::lost
  std::uint64_t ack_largest = kNoPacket;  // largest number that this packet acknowledged, for pruning
  std::uint32_t bytes = 0;                // on the wire
  std::uint32_t stamp = 0;                // of the shared link's model when it was sent (bottleneck.h); 0: none
  std::uint16_t acked_below = 0;          // private to SentPackets' user: so many numbers right below are acked too
  std::uint16_t frames_count = 0;
  bool ack_eliciting : 1 = true;
  bool in_flight : 1 = true;  // counts against the congestion window
  bool mtu_probe : 1 = false;
  bool probed : 1 = false;      // was the oldest one outstanding when a probe timeout expired
  bool repeated : 1 = false;    // later packets have its frames, or will
  bool has_slices : 1 = false;  // the caller's, once it is lost
  EcnMark ecn = EcnMark::none;
  PacketState state = PacketState::outstanding;
};
static_assert(sizeof(SentPacket) == 40);

// One per path, owned by its LossDetector. Doubles from kInitialCapacity up to the bound given; single-threaded.
class SentPackets {
 public:
  static constexpr std::size_t kInitialCapacity = 1;  // an idle path keeps no more
  static constexpr std::size_t kDefaultBound = 32'768;

  // `bound` is rounded up to a power of two.
  explicit SentPackets(std::size_t bound = kDefaultBound);

  // The numbers kept are [first(), end()).
  std::uint64_t first() const { return first_; }
  std::uint64_t end() const { return end_; }
  std::size_t size() const { return static_cast<std::size_t>(end_ - first_); }
  bool empty() const { return first_ == end_; }
  // At the bound: nothing may be pushed before something was popped.
  bool full() const { return size() >= bound_; }
  std::size_t capacity() const { return std::size_t{mask_} + 1; }
  std::size_t bound() const { return bound_; }
  bool contains(std::uint64_t number) const { return number >= first_ && number < end_; }

  // `number` must be kept.
  SentPacket& operator[](std::uint64_t number) { return ring_[number & mask_]; }
  const SentPacket& operator[](std::uint64_t number) const { return ring_[number & mask_]; }

  // Takes end() as its number.
  SentPacket& push(const SentPacket& packet) {
    if (size() > mask_) [[unlikely]]
      grow();
    SentPacket& record = ring_[end_++ & mask_];
    record = packet;
    return record;
  }

  void pop_front() { ++first_; }

  // Of an empty ring: continue at `number`.
  void start_at(std::uint64_t number) {
    WEIR_CHECK(empty() && number >= end_, "packet numbers only grow, and only an empty ring can jump");
    first_ = end_ = number;
  }

  // Back to the initial capacity if nothing is kept.
  void release_memory();

 private:
  void grow();

  std::unique_ptr<SentPacket[]> ring_;
  std::uint64_t first_ = 0;
  std::uint64_t end_ = 0;
  std::uint32_t mask_;  // as many as the bound, which fits into 32 bits, too
  std::uint32_t bound_;
};

}  // namespace weir::recovery
