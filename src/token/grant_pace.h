// GrantPace: how many senders write large messages to one receiver at once, and how much each may have in flight
// (docs/protocol.md, rules G-13 and G-14).
//
// A receiver that knows what its network interface carries lets all senders together have in flight what the interface
// carries in a round trip, and one train. That is enough to keep it busy, and no queue on the way holds more than the
// train. One that does not know it finds out (see GrantWindow), once more than two senders are known. Few write at
// once, so that each may have enough in flight to be acknowledged in time; the others wait in the line of those who
// want memory, by priority. A sender that is told to write and does not is not counted after a while.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>

#include "base/check.h"
#include "base/time.h"
#include "token/grant_window.h"

namespace weir::token {

// One per engine; single-threaded.
class GrantPace {
 public:
  static constexpr std::uint64_t kTrainBytes = 64'000;      // the longest that a sender sends at once
  static constexpr std::uint64_t kLeastShare = 28 * 1'024;  // more than is sent between two acknowledgements
  static constexpr std::uint32_t kFewestWrites = 2;         // one is written while the grant of the next is on its way
  static constexpr std::uint32_t kMostWrites = 64;
  static constexpr Duration kUnknownRoundTrip = std::chrono::microseconds(20);
  static constexpr Duration kStalled = std::chrono::milliseconds(5);  // no byte came for so long: it counts no more
  static constexpr std::uint64_t kFewestSenders = 3;  // of fewer each one's own window is enough, if no rate was told

  // 0: nothing is known of the interface.
  explicit GrantPace(std::uint64_t bytes_per_s)
      : rate_(bytes_per_s), window_({.train_bytes = kTrainBytes, .smallest_bytes = kFewestWrites * kLeastShare}) {}

  bool paces() const { return is_measured_ || rate_ != 0; }
  // No rate was told, and senders are held back by what comes.
  bool is_measured() const { return is_measured_; }
  const GrantWindow& window() const { return window_; }

  // So many senders are known, on other hosts. True: those who write already are to be told of their new shares.
  [[nodiscard]] bool set_senders(std::uint64_t senders);
  void on_marked(std::uint64_t bytes) { window_.on_marked(bytes); }
  void on_missing(std::int64_t packets, GrantWindow::Losses& sender) { window_.on_missing(packets, sender); }
  // New bytes have come. The same.
  [[nodiscard]] bool on_bytes(std::uint64_t bytes, Instant now) {
    return window_.on_bytes(bytes, now) && judge_window();
  }

  // What all together may have in flight.
  std::uint64_t room(Duration round_trip) const {
    if (is_measured_) return window_.bytes();
    if (round_trip <= Duration{}) round_trip = shortest_;
    constexpr std::uint64_t kNsPerS = 1'000'000'000;
    const auto ns = static_cast<unsigned __int128>(std::min<Duration>(round_trip, std::chrono::seconds(1)).count());
    return static_cast<std::uint64_t>(ns * rate_ / kNsPerS) + kTrainBytes;
  }
  // The first bytes that a grant brought came so long after it. Returns the round trip that this shows. What others
  // were granted may have been queued before them, but no more than all may have in flight.
  Duration judge(Duration took) {
    shortest_ = is_known_ ? std::min(shortest_, took) : took;
    is_known_ = true;
    if (rate_ == 0) return took;
    return std::max(shortest_, took - time_of(room(shortest_)));
  }
  // The same, and the shortest round trip to that sender.
  void on_round_trip(Duration took, Duration shortest) { window_.on_round_trip(took, shortest); }
  std::uint32_t most_writes() const { return most_writes_; }
  std::uint32_t writes() const { return writes_; }
  // So many have a region, now or soon.
  std::uint32_t most_at_once() const { return std::max(most_writes_, writes_); }

  // Whether one more message may be given a region to be written into.
  bool may_begin() const { return !paces() || writes_ - stalled_ < most_writes_; }
  // One was. `round_trip`: to its sender. True: those who write already are to be told of their new shares.
  [[nodiscard]] bool on_begin(Duration round_trip) {
    ++writes_;
    if (!paces()) return false;
    const bool is_first = writes_ == 1;
    count_writes(round_trip);
    // Many may be about to ask. Who is alone after all is told so a round trip later.
    if (is_first) parts_ = most_writes_;
    const std::uint32_t before = parts_;
    parts_ = std::max(parts_, parts_for(writes_ - stalled_));
    return parts_ != before;
  }
  // The first bytes of one have come. The same.
  [[nodiscard]] bool on_first_bytes() { return divide(); }
  // It has all come, or its region was taken back. The same.
  [[nodiscard]] bool on_end() {
    WEIR_CHECK(writes_ != 0, "a write ends once");
    --writes_;
    stalled_ = std::min(stalled_, writes_);
    return paces() && writes_ != 0 && divide();
  }
  // So many of them stand still.
  void set_stalled(std::uint32_t stalled) { stalled_ = std::min(stalled, writes_); }

  // A message of which so many bytes are missing ends within a round trip: the grant of the next one takes as long.
  std::uint64_t tail(Duration round_trip) const;

  // What one sender may have in flight.
  std::uint64_t share(Duration round_trip) const { return room(round_trip) / parts_; }

 private:
  Duration time_of(std::uint64_t bytes) const {
    constexpr std::uint64_t kNsPerS = 1'000'000'000;
    return Duration{static_cast<std::int64_t>(static_cast<unsigned __int128>(bytes) * kNsPerS / rate_)};
  }
  bool judge_window();
  void count_writes(Duration round_trip);
  // In powers of two, so that shares seldom change, and never add up to more than there is.
  std::uint32_t parts_for(std::uint32_t active) const {
    return std::bit_ceil(std::clamp<std::uint32_t>(active, 1, most_writes_));
  }
  bool divide() {
    const std::uint32_t active = writes_ - stalled_, needed = parts_for(active);
    if (needed == parts_ || (needed < parts_ && active > parts_ / 2 - parts_ / 8 && parts_ <= most_writes_))
      return false;
    parts_ = needed;
    return true;
  }

  static constexpr std::uint64_t kToldPart = 4;  // a share that differs by less is not told

  const std::uint64_t rate_;
  GrantWindow window_;
  bool is_measured_ = false;
  std::uint64_t told_share_ = 0;           // to those who write
  Duration shortest_ = kUnknownRoundTrip;  // round trip to any sender
  bool is_known_ = false;
  std::uint32_t most_writes_ = kFewestWrites;
  std::uint32_t writes_ = 0;   // regions that are being written
  std::uint32_t stalled_ = 0;  // of these
  std::uint32_t parts_ = 1;
};

}  // namespace weir::token
