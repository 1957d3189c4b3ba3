// A model of the link that several paths share: how many bytes may be on the way to it at a time, and how fast they may
// leave (docs/protocol.md, rules N-8 to N-11).
//
// The model follows Swift (Kumar et al., SIGCOMM 2020): the time that packets wait in the link's queue decides, and
// losses are the second sign. It has one purpose more: its window is that of a sum of paths, because a hundred paths
// with a window each cannot keep a queue short that has room for forty packets.
//
// - `searching`: nothing has shown a limit. The window doubles each round trip while it is used, and nothing is paced.
//   A queue or losses end the search.
// - `following`: once per round trip the window grows by part of the square root of itself, or shrinks by what waits in
//   the queue beyond the target. So windows of unequal size that share a link approach each other. A window may be
//   smaller than a packet: what is sent is paced at one window per round trip.
//
// The target is longer for small windows, or the sender that has seen the shortest round trip would have nothing.
// Losses show how long the queue of the link can become; the target stays below half of that.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/time.h"

namespace weir::recovery {

// One per engine and network prefix; single-threaded.
class Bottleneck {
 public:
  // Names an instant of sending. 0: none.
  using Stamp = std::uint32_t;
  static constexpr Duration kShortestStamp = std::chrono::microseconds(1);
  struct Options {
    std::uint32_t packet_bytes = 1'472;         // of a full packet: the unit of small windows
    std::uint64_t initial_window = 64 * 1024;   // of all paths together
    std::uint64_t largest_window = 1ull << 30;  // of all paths together
    std::uint64_t nic_rate = 0;                 // bytes per second that the host's own interface carries; 0: not known
    Stamp first_stamp = 1;
    Duration shortest_stamp = kShortestStamp;  // no two are nearer to each other
  };
  enum class Phase : std::uint8_t { searching, following };

  // What an acknowledgement or a timer found out about packets of one path.
  struct Outcome {
    std::uint64_t delivered_bytes = 0;
    std::uint64_t left_bytes = 0;  // that are not on the way any more, for whatever reason
    std::uint64_t lost_bytes = 0;
    std::uint32_t lost_packets = 0;
    std::uint32_t spurious_packets = 0;  // told lost before
    Instant lost_sent_at{};              // of the lost packets, when the last one was sent
    Stamp newest = 0;                    // of the acknowledged packets, the stamp of the one that was sent last
    Duration rtt{};                      // measured now; 0: none
    // The same without the time for which the receiver says that it waited. 0: it says nothing about this link's queue.
    Duration prompt_rtt{};
    Duration path_rtt{};  // the shortest of that path, likewise
  };

  static constexpr std::size_t kStamps = 256;                          // that are remembered
  static constexpr Duration kRttLife = std::chrono::seconds(30);       // a minimum is forgotten after one or two
  static constexpr Duration kNearby = std::chrono::microseconds(250);  // paths of one link differ by so much
  static constexpr Duration kForget = std::chrono::seconds(3);         // without being limited
  static constexpr Duration kLossMemory = std::chrono::seconds(1);
  static constexpr Duration kLeastTarget = std::chrono::microseconds(250);   // of the time in the queue
  static constexpr Duration kTargetSpread = std::chrono::microseconds(750);  // more, for a window of one packet
  static constexpr std::uint32_t kLossPart = 50;     // more than one byte of so many lost: too much, queue or not
  static constexpr std::uint32_t kSearchLosses = 8;  // packets that end the search
  static constexpr std::uint64_t kUsedPart = 4;      // of the initial window, below which nothing ends the search
  // Rounds in a row with a queue end the search, though the window has room: the windows of the paths keep that queue.
  static constexpr std::uint32_t kFullRounds = 16;
  static constexpr std::uint64_t kEpochPackets = 100;  // after so many, losses count half
  static constexpr std::uint64_t kLargestFirstWindow = 256 * 1024;
  static constexpr std::uint32_t kMarkMemory = 32;    // rounds in which the absence of marks is a sign
  static constexpr std::uint32_t kSmallestGroup = 4;  // round trips of which the shortest counts
  static constexpr std::uint32_t kLargestGroup = 32;  // likewise
  static constexpr double kSmallestPackets = 1.0 / 32;
  // What threads that are late look like, too. Delay alone leaves so much, unless something was lost lately.
  static constexpr double kLosslessWindow = 16.0 * 1024;

  explicit Bottleneck(Options options)
      : options_(options),
        window_(static_cast<double>(options.initial_window)),
        last_stamp_(options.first_stamp - 1),
        stamp_interval_(options.shortest_stamp) {}

  // ---- may something be sent? ----
  bool is_searching() const { return phase_ == Phase::searching; }
  bool has_room() const { return in_flight_ < window(); }
  std::uint64_t window() const { return static_cast<std::uint64_t>(window_); }
  std::uint64_t in_flight() const { return in_flight_; }
  // Bytes per second; 0: no limit.
  std::uint64_t pacing_rate() const { return pacing_rate_; }

  // ---- what happens ----
  Stamp on_sent(std::uint64_t bytes, Instant now) {
    const Stamp now_stamp = stamp(now);
    add_in_flight(bytes);
    return now_stamp;
  }
  // The same in two steps, for several messages that are sent at one instant.
  Stamp stamp(Instant now);
  void add_in_flight(std::uint64_t bytes) {
    in_flight_ += bytes;
    most_in_flight_ = std::max(most_in_flight_, in_flight_);
  }
  void on_outcome(const Outcome& outcome, Instant now);
  // Packets that have not come, seen by their receiver; negative: they have come after all.
  void on_missing(std::int64_t packets);
  // Nothing was heard for long: what was sent is in no queue any more. `is_first`: since something was heard.
  void on_silence(bool is_first, Instant now);
  // So many of the delivered bytes arrived with a congestion mark.
  void on_marked(std::uint64_t bytes) { marked_bytes_ += bytes; }
  // Nobody has anything to send. If the window has room, what is measured now says little about it.
  void on_nothing_to_send() {
    if (has_room()) is_idle_ = was_idle_ = true;
  }

  // ---- what is known ----
  Stamp last_stamp() const { return last_stamp_; }
  // Of a stamp that is among the last kStamps.
  Instant sent_at(Stamp stamp) const { return sent_[stamp % kStamps]; }
  // Whether stamp `a` is later than `b`. Stamps wrap around; 0 is earlier than any.
  static bool is_later(Stamp a, Stamp b) { return a != 0 && (b == 0 || static_cast<std::int32_t>(a - b) > 0); }
  Phase phase() const { return phase_; }
  Duration minimum_rtt() const { return std::min(earlier_rtt_, later_rtt_); }  // Duration::max(): not known
  Duration round_time() const { return round_time_; }
  Duration target() const;

 private:
  static constexpr std::int64_t kStampsPerRtt = 16;
  static constexpr Duration kNoRtt = Duration::max();

  double packet() const { return options_.packet_bytes; }
  bool remembers(Stamp stamp) const { return stamp != 0 && last_stamp_ - stamp < kStamps; }
  void take_rtt(const Outcome& outcome, Instant now);
  void take_losses(const Outcome& outcome, Instant now);
  void judge_losses(Instant now);
  void end_round(Instant now, Duration newest);
  void begin_round(Instant now);
  void adjust(Instant now);
  void take_marks();
  void stop_searching(Instant now);
  double first_window() const;
  // Who sends less has filled no queue, and what it sends says nothing about a limit.
  bool is_used() const { return std::max(most_in_flight_, round_bytes_) >= options_.initial_window / kUsedPart; }
  void reduce(double factor, Instant now);
  void update_limits();

  Options options_;
  Phase phase_ = Phase::searching;
  double window_;  // bytes
  std::uint64_t pacing_rate_ = 0;
  std::uint64_t in_flight_ = 0;
  bool is_idle_ = true;   // there is nothing to send
  bool was_idle_ = true;  // in this round
  Instant last_limited_at_{};
  double calm_ = 0;  // rounds without a queue; the window grows faster with each

  // ---- stamps ----
  std::array<Instant, kStamps> sent_{};
  Stamp last_stamp_;
  Duration stamp_interval_;

  // ---- round trips ----
  Duration earlier_rtt_ = kNoRtt;
  Duration later_rtt_ = kNoRtt;
  Instant rtt_rotated_at_{};
  double typical_rtt_ns_ = 0;  // of the paths' shortest ones, the mean
  Duration round_time_{};      // with whatever the receivers wait before they acknowledge

  // ---- the round: from now until a packet that was sent in it is acknowledged ----
  Instant round_from_{};
  std::uint64_t round_bytes_ = 0;
  std::uint64_t most_in_flight_ = 0;
  std::uint64_t marked_bytes_ = 0;
  std::uint32_t samples_ = 0;
  std::uint32_t in_group_ = 0;
  std::uint32_t group_size_ = kSmallestGroup;
  std::uint32_t groups_ = 0;
  std::uint32_t full_rounds_ = 0;  // of the search, in a row
  Duration group_delay_ = kNoRtt;  // the shortest time in the queue
  Duration delay_sum_{};           // of the groups
  Duration longest_delay_{};       // of all samples
  Duration last_longest_delay_{};  // of the round before

  // ---- marks ----
  double marked_part_ = 0;         // of the bytes, over some rounds
  std::uint32_t mark_rounds_ = 0;  // left until marks are forgotten

  // ---- losses ----
  double target_part_ = 1;  // of the target, after the shortest queue that overflowed
  std::uint32_t epoch_losses_ = 0;
  std::int64_t missing_ = 0;                         // seen by the receiver, in this round
  Instant reduced_at_{-1};                           // losses of packets sent before were answered
  Instant lost_at_{-Duration(kLossMemory).count()};  // the last time
  std::uint64_t epoch_bytes_ = 0;
};

}  // namespace weir::recovery
