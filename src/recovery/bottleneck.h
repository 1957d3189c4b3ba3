// A model of the link that several paths share: how fast the link delivers, how long a round trip takes while its
// queue is empty, and how many bytes may be on the way (docs/protocol.md, rules N-8 to N-12).
//
// The model follows BBR (draft-ietf-ccwg-bbr), with one difference in purpose: it has a sum over all paths to one
// network, because a hundred paths with a window each cannot keep a queue short that has room for forty packets.
//
// - `searching`: nothing has shown a limit. The window doubles each round trip while it is used, and nothing is paced.
// A
//   round in which more than 2 % of the bytes were lost ends the search.
// - `draining`: sends below the measured rate until no more is on the way than the link holds without a queue. Round
//   trips measured then are round trips without a queue.
// - `cruising`: sends at the measured rate, with at most `window()` bytes on the way.
// - `probing`: sends a quarter faster for some rounds, once every one or two seconds, and raises the bound that losses
//   have set. Ends with the first loss above 2 %, or when the rate does not grow any more.
//
// Rates are measured as the draft does it: what was delivered between the sending of a packet and its acknowledgement,
// over the longer of the times that sending and acknowledging took. The state at sending is kept in a ring of stamps,
// one for each instant of sending, not in each packet.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/random.h"
#include "base/time.h"

namespace weir::recovery {

// One per engine and network prefix; single-threaded.
class Bottleneck {
 public:
  struct Options {
    std::uint32_t packet_bytes = 1'472;         // of a full packet: the unit of the smallest windows
    std::uint64_t initial_window = 64 * 1024;   // of all paths together
    std::uint64_t largest_window = 1ull << 30;  // of all paths together
  };
  enum class Phase : std::uint8_t { searching, draining, cruising, probing };
  // Names an instant of sending. 0: none.
  using Stamp = std::uint32_t;

  // What an acknowledgement or a timer found out about packets of one path.
  struct Outcome {
    std::uint64_t delivered_bytes = 0;
    std::uint64_t left_bytes = 0;  // that are not on the way any more, for whatever reason
    std::uint64_t lost_bytes = 0;
    std::uint32_t lost_packets = 0;
    std::uint64_t spurious_bytes = 0;  // told lost before
    Instant lost_sent_at{};            // of the lost packets, when the last one was sent
    Stamp newest = 0;                  // of the acknowledged packets, the stamp of the one that was sent last
    Duration rtt{};                    // measured now, without the receiver's delay; 0: none
  };

  static constexpr std::size_t kStamps = 256;             // that are remembered
  static constexpr std::uint32_t kLossPart = 50;          // more than one byte of so many lost: too much
  static constexpr std::uint32_t kSearchLosses = 8;       // packets lost in a round that end the search
  static constexpr std::uint64_t kSamplePackets = 16;     // a rate is measured over so many at least
  static constexpr std::uint64_t kLongSamplePackets = 4;  // of a slow link
  static constexpr Duration kLongSample = std::chrono::milliseconds(20);
  static constexpr std::uint32_t kEpochPackets = 50;             // fewer say little about a part of 2 %
  static constexpr std::uint64_t kSmallestPackets = 2;           // a smaller window delays each acknowledgement
  static constexpr std::uint64_t kQuantumPackets = 3;            // that a window has beyond its product
  static constexpr Duration kRttLife = std::chrono::seconds(5);  // a minimum is forgotten after one or two of these
  static constexpr Duration kShortestCruise = std::chrono::milliseconds(250);  // and up to twice that
  static constexpr Duration kQueueDelay =
      std::chrono::microseconds(500);  // a round trip that is longer by so much shows a queue
  static constexpr Duration kSlack =
      std::chrono::milliseconds(1);  // acknowledgements and threads may be late by so much
  static constexpr int kCruisePerProbe = 30;
  static constexpr Duration kCruiseWithoutQueue = std::chrono::milliseconds(25);
  static constexpr std::uint32_t kFastProbeRounds = 4;  // between two probes of which the first found more
  static constexpr Duration kLongestCruise = std::chrono::seconds(10);
  static constexpr std::uint32_t kLongestDrainRounds = 3;
  static constexpr Duration kForget = std::chrono::seconds(3);  // without loss and without being limited

  Bottleneck(Options options, Random& random);

  // ---- may something be sent? ----
  bool is_searching() const { return phase_ == Phase::searching; }
  bool has_room() const { return in_flight_ < window(); }
  std::uint64_t window() const { return window_; }
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
  void add_in_flight(std::uint64_t bytes) { in_flight_ += bytes; }
  // Packets that have not come, seen by their receiver; negative: they have come after all.
  void on_missing(std::int64_t packets, std::uint32_t packet_bytes, Instant now);
  void on_outcome(const Outcome& outcome, Instant now);
  // Packets arrived with a congestion mark, out of so many acknowledged ones.
  void on_marked(std::uint64_t bytes, Instant now);
  // Nobody has anything to send although the window has room: rates measured from now on say little.
  void on_nothing_to_send();

  // ---- what is known ----
  Stamp last_stamp() const { return last_stamp_; }
  // Of a stamp that is among the last kStamps.
  Instant sent_at(Stamp stamp) const { return sent_[stamp % kStamps].sent_at; }
  Phase phase() const { return phase_; }
  std::uint64_t bandwidth() const;  // bytes per second
  Duration minimum_rtt() const { return earlier_rtt_ < later_rtt_ ? earlier_rtt_ : later_rtt_; }
  std::uint64_t inflight_bound() const { return inflight_bound_; }

 private:
  static constexpr std::int64_t kStampsPerRtt = 16;
  static constexpr Duration kNoRtt = Duration::max();

  struct SendState {
    Stamp stamp = 0;
    std::uint64_t delivered = 0;
    Instant sent_at{};
  };

  std::uint64_t best_rate() const { return std::max(best_rates_[0], best_rates_[1]); }
  void take_rtt(Duration rtt, Instant now);
  void begin_measuring(Instant now);
  bool take_rate(std::uint64_t least_packets, Instant now);
  void track_acknowledged(std::uint64_t bytes, Instant now);
  void end_round(Instant now);
  bool is_lossy() const;
  bool has_queue() const {
    const Duration rtt = minimum_rtt();
    return sampled_rtt_ > rtt + std::max<Duration>(rtt / 4, kQueueDelay);
  }
  void on_lossy_epoch(Instant now);
  void begin_epoch();
  void enter(Phase phase, Instant now);
  void begin_cruise(Duration length, Instant now);
  void advance(const Outcome& outcome, Instant now);
  std::uint64_t product(std::uint64_t rate, Duration rtt) const;
  std::uint64_t smallest_window() const { return kSmallestPackets * options_.packet_bytes; }
  void update_limits();

  Options options_;
  Random& random_;
  Phase phase_ = Phase::searching;
  std::uint64_t window_;
  std::uint64_t pacing_rate_ = 0;
  std::uint64_t in_flight_ = 0;

  // ---- delivery ----
  std::uint64_t delivered_ = 0;
  std::uint64_t lost_ = 0;
  std::array<SendState, kStamps> sent_{};
  Stamp last_stamp_ = 0;
  Duration stamp_interval_{1};  // stamps are no nearer to each other

  // ---- rate and round trip ----
  std::array<std::uint64_t, 2> best_rates_{};     // of this cycle and of the one before
  std::uint64_t rate_bound_ = ~std::uint64_t{0};  // after losses, until the next probe
  Duration earlier_rtt_ = kNoRtt;
  Duration later_rtt_ = kNoRtt;
  Instant rtt_rotated_at_{};
  std::uint64_t next_round_at_ = 0;        // in bytes delivered
  std::uint64_t last_rate_ = 0;            // that was measured
  Instant newest_sent_at_{};               // of what was acknowledged
  Instant measured_from_{};                // the rate that is being measured
  Instant measured_from_sent_{};           // newest_sent_at_ then
  Duration sample_rtt_ = kNoRtt;           // the shortest meanwhile
  Duration sampled_rtt_ = kNoRtt;          // of the last rate
  std::uint64_t measured_from_bytes_ = 0;  // delivered_ then
  bool is_idle_ = true;                    // there is nothing to send
  bool measures_idleness_ = true;          // there was nothing to send meanwhile
  std::uint64_t round_volume_ = 0;         // the most bytes delivered within one round trip, in this round
  std::uint64_t last_round_volume_ = 0;

  // ---- acknowledgements that come in bunches ----
  Instant bunch_start_{};
  std::uint64_t bunch_bytes_ = 0;
  std::array<std::uint64_t, 2> bunches_{};  // the largest excess: of this cycle and of the one before

  // ---- losses ----
  std::uint64_t epoch_delivered_ = 0;  // delivered_ when the epoch began
  std::uint64_t epoch_lost_ = 0;       // likewise
  std::uint32_t epoch_losses_ = 0;     // packets
  std::uint64_t most_in_flight_ = 0;   // in this epoch
  bool epoch_has_round_ = false;       // a whole round has passed
  std::uint64_t inflight_bound_ = ~std::uint64_t{0};
  Instant reduced_at_{-1};     // losses of packets sent before were answered
  Instant last_limited_at_{};  // there was more to send than was let out, or something was lost

  // ---- the cycle ----
  Instant phase_until_ = Instant::never();
  std::uint32_t rounds_in_phase_ = 0;
  Instant phase_began_{};
  Duration last_probe_{};              // how long it took
  std::uint32_t growths_ = 0;          // of the rate, while probing
  std::uint64_t probe_from_rate_ = 0;  // when probing began
  std::uint64_t probe_step_ = 0;       // part of the acknowledged bytes by which the bound grows, in 1/16
};

}  // namespace weir::recovery
