// Whether the path carries ECN marks truthfully (docs/protocol.md, rule N-6; after RFC 9000, section 13.4.2). The first
// packets are marked as a test; marks go on only if the peer's counts cover them. A path that bleaches, invents or
// loses marks is not trusted.
#pragma once

#include <cstdint>

#include "recovery/loss_detector.h"

namespace weir::recovery {

// One per path; single-threaded.
class EcnValidator {
 public:
  enum class State : std::uint8_t { testing, capable, failed };
  static constexpr std::uint32_t kTestPackets = 16;

  // The mark for the next packet.
  EcnMark mark() const {
    return state_ == State::capable || (state_ == State::testing && sent_ < kTestPackets) ? EcnMark::ect0
                                                                                          : EcnMark::none;
  }

  void on_sent(EcnMark mark) {
    if (state_ == State::testing && mark != EcnMark::none) ++sent_;
  }

  // A marked packet was declared lost: a path that drops all marked packets must not be mistaken for a congested one.
  void on_lost(EcnMark mark);

  // Another way through the network: it is tested anew. The peer's counts go on.
  void start_over() {
    state_ = State::testing;
    sent_ = lost_ = 0;
  }

  // After every acknowledgement, with what it newly acknowledged. Returns how many more packets arrived with a
  // congestion mark than was known before, 0 if the counts are not to be trusted.
  std::uint64_t on_ack(const AckView& ack, const LossReport& report);

  State state() const { return state_; }

 private:
  State state_ = State::testing;
  std::uint8_t sent_ = 0;  // marked packets, while testing
  std::uint8_t lost_ = 0;
  EcnCounts known_{};
};

}  // namespace weir::recovery
