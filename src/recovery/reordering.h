// How late packets are on a path because others overtake them (docs/protocol.md, rule A-6), in the manner of RFC 8985.
//
// A packet that is acknowledged after a later one was overtaken, whether it had been declared lost meanwhile or not.
// How long after it was sent says how long to wait for others. What was seen is forgotten slowly: by a part in each
// round trip in which something is acknowledged. Where packets overtake each other their numbers say nothing about
// losses.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/time.h"

namespace weir::recovery {

// One per path; single-threaded.
class Reordering {
 public:
  static constexpr std::int64_t kMarginPart = 4;       // of the longest time seen
  static constexpr std::int64_t kForgottenPart = 512;  // of that, in a round trip

  bool is_known() const { return longest_.count() != 0; }
  // The longest time from sending to acknowledgement of a packet that was overtaken, and a margin; zero: none was.
  Duration delay() const { return longest_ + longest_ / kMarginPart; }

  void on_overtaken(Duration took) { longest_ = std::max(longest_, took); }

  // Something was acknowledged. `round_trip`: how long one takes at present.
  void on_ack(Duration round_trip, Instant now) {
    if (now < forget_at_) return;
    forget_at_ = now + round_trip;
    longest_ -= longest_ / kForgottenPart;
    // What an ordinary wait covers need not be known.
    if (delay() < round_trip) longest_ = {};
  }

 private:
  Duration longest_{};
  Instant forget_at_{};
};

}  // namespace weir::recovery
