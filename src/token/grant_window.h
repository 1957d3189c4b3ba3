// GrantWindow: how many bytes of large messages all senders together may have in flight to a receiver that is not told
// what its network interface carries (docs/protocol.md, rule G-14).
//
// The receiver sees every packet that comes: how many bytes come in a round trip, which of them carry congestion marks,
// and which numbers are missing. The window fits if it holds what came in a round trip, at the rate at which it came,
// and one train. It grows to what fits, and beyond that while it is filled and nothing shows a limit: by half of itself
// in each round trip until the first sign, slowly afterwards. Marks take it back to what fits, losses below.
//
// Delay is no sign. A receiver measures it from a grant to the first bytes, and has the time in it for which the
// threads of both hosts were late: more than the whole queue of a switch takes to drain.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "base/time.h"

namespace weir::token {

// One per engine; single-threaded.
class GrantWindow {
 public:
  static constexpr std::uint64_t kFirstBytes = 64 * 1024;
  static constexpr std::uint64_t kLargestBytes = 64u << 20;
  static constexpr Duration kShortestRound = std::chrono::microseconds(20);
  static constexpr Duration kLongestRound = std::chrono::seconds(1);
  static constexpr Duration kLatest = std::chrono::milliseconds(10);  // that first bytes count, or two round trips
  static constexpr Duration kIdle = std::chrono::milliseconds(1);     // no byte for so long: many may begin at once
  static constexpr Duration kLongestQueue = std::chrono::milliseconds(1);  // then the window grows no more
  static constexpr std::uint64_t kSignPart = 50;       // one byte of so many lost or marked is a sign of a limit
  static constexpr std::uint32_t kFewestLosers = 2;    // senders that lost packets in one round: one may be a liar
  static constexpr std::uint64_t kSlowGrowPart = 32;   // of the window, in a round without a sign
  static constexpr std::uint64_t kLossPart = 4;        // of the window, for a round with losses
  static constexpr std::uint64_t kRateMemory = 16;     // rounds
  static constexpr std::int64_t kRoundTripMemory = 4;  // grants

  struct Options {
    std::uint64_t train_bytes = 0;      // the longest that a sender sends at once
    std::uint64_t smallest_bytes = 0;   // the window is never below
    std::uint64_t packet_bytes = 1472;  // a missing number stands for so many
  };
  explicit GrantWindow(Options options) : options_(options) {}

  std::uint64_t bytes() const { return bytes_; }
  bool is_searching() const { return is_searching_; }
  // Bytes per second, as they came when most came; 0: not known.
  std::uint64_t rate() const { return rate_; }
  // Of the window, what is not in a queue.
  std::uint64_t bytes_under_way() const;

  // The first bytes that a grant has brought came after so long; `shortest`: to that sender.
  void on_round_trip(Duration took, Duration shortest);
  void on_marked(std::uint64_t bytes) { marked_ += bytes; }
  // What a sender has lost. It owns this.
  struct Losses {
    std::uint32_t round = 0;    // in which it lost packets the last time
    std::uint32_t packets = 0;  // so many in that round
  };
  // Numbers of packets that have not come; negative: so many have come, after all. They take back no more than this
  // sender lost in this round.
  void on_missing(std::int64_t packets, Losses& sender) {
    if (sender.round != round_number_) {
      if (packets < 0) return;
      sender = {.round = round_number_};
      ++losers_;
    }
    packets = std::max(packets, -std::int64_t{sender.packets});
    sender.packets = static_cast<std::uint32_t>(sender.packets + packets);
    missing_ += packets;
  }
  // New bytes of some message. True: the window is another one than before.
  bool on_bytes(std::uint64_t bytes, Instant now) {
    if (now - last_at_ > std::max(kIdle, 2 * round_trip_)) begin_again(now);
    last_at_ = now;
    delivered_ += bytes;
    return now - round_from_ >= round_trip_ && end_round(now);
  }

 private:
  std::uint64_t fitting_bytes() const;
  void begin_again(Instant now);
  void begin_round(Instant now);
  bool end_round(Instant now);
  bool is_lossy() const;
  bool is_filled(Duration took) const;

  const Options options_;
  std::uint64_t bytes_ = kFirstBytes;
  std::uint64_t rate_ = 0;
  bool is_searching_ = true;
  Duration round_trip_ = kShortestRound;  // as it is now, queues included
  Duration shortest_ = kShortestRound;    // without queues
  Instant last_at_{};
  // ---- the round: a round trip long ----
  std::uint32_t round_number_ = 1;
  std::uint32_t losers_ = 0;  // senders
  Instant round_from_{};
  std::uint64_t delivered_ = 0;
  std::uint64_t marked_ = 0;
  std::int64_t missing_ = 0;  // packets
};

}  // namespace weir::token
