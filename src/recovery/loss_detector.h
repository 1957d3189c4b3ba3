// Loss detection as RFC 9002, section 6, describes it, for one packet number space (docs/protocol.md, rules
// and; persistent congestion: N-4).
//
// A packet is lost when one sent three or more later was acknowledged, or when one sent later was and 9/8 of
// a round trip passed. Where packets overtake each other only time counts, and more of it (reordering.h).
// If nothing is heard at all, a probe timeout asks the caller to send something; it declares nothing lost. Timeouts
// double up to a cap, carry jitter, and start over when frames are acknowledged. (Not when just anything is received: a
// receiver that has no room for a packet may say so, and every word would bring it again. Nor when a probe without
// frames is acknowledged: the same receiver acknowledges that.) On a path that has lost nothing lately the second
// timeout is much longer than the first: there a silent peer most likely does not run for a moment.
//
// Two marks move over the ring of sent packets: everything below head_ is acknowledged or lost; what is between first()
// and head_ is kept only to recognise late acknowledgements. Acknowledged packets remember how many below them are
// acknowledged too, so that ranges reported again are stepped over: the work is that of the newly acknowledged packets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/random.h"
#include "base/time.h"
#include "recovery/ack_policy.h"
#include "recovery/ack_ranges.h"
#include "recovery/bottleneck.h"
#include "recovery/reordering.h"
#include "recovery/rtt.h"
#include "recovery/sent_packets.h"

namespace weir::recovery {

struct EcnCounts {
  std::uint64_t ect0 = 0;
  std::uint64_t ect1 = 0;
  std::uint64_t ce = 0;

  bool operator==(const EcnCounts&) const = default;
};

// An acknowledgement as the peer reported it; nothing in it has been believed yet.
struct AckView {
  std::uint64_t largest = 0;
  Duration delay{};
  std::span<const PacketRange> ranges;  // descending and disjoint; the first ends with `largest`
  bool has_ecn = false;
  EcnCounts ecn{};
  // Waited in a socket while this side did not run: how long it took says nothing about the path.
  bool is_stale = false;
};

enum class AckStatus : std::uint8_t {
  ok,
  malformed,   // ranges out of order, overlapping, or not starting at the largest
  never_sent,  // names a number that was not sent: the peer is broken or lies
};

enum class TimeoutAction : std::uint8_t {
  none,           // the deadline has not passed
  loss_declared,  // the visitor was told what is lost
  probe,          // send one or two ack-eliciting packets, whatever the window says
};

// What one acknowledgement or timeout changed, for congestion control, ECN validation and events.
struct LossReport {
  AckStatus status = AckStatus::ok;
  TimeoutAction action = TimeoutAction::none;  // set by on_timeout() only
  std::uint32_t acked_packets = 0;
  std::uint32_t newest_stamp = 0;   // of the acknowledged packets that were in flight
  std::uint64_t acked_bytes = 0;    // of packets that were in flight
  Instant largest_acked_sent_at{};  // of the largest newly acknowledged packet
  bool largest_advanced = false;    // ECN counts may be judged: this is no older acknowledgement overtaken by another
  bool rtt_sampled = false;
  // That sample without the time for which the peer says that it waited, as far as rule A-2 allows that.
  Duration prompt_rtt{};
  std::uint32_t acked_ect0 = 0;
  std::uint32_t acked_ect1 = 0;
  std::uint64_t in_flight_before = 0;
  std::uint32_t lost_packets = 0;  // MTU probes are not counted: their loss says nothing about congestion
  std::uint64_t lost_bytes = 0;    // likewise
  std::uint32_t loss_events = 0;   // runs of these with consecutive numbers
  Instant largest_lost_sent_at{};
  std::uint32_t spurious_packets = 0;
  std::uint32_t needless_probes = 0;  // what they asked for has been acknowledged, and was not lost
  bool persistent_congestion = false;
};

// One per path; single-threaded. Owns the record of sent packets, not their frames.
//
// A Visitor has
//   void acked(std::uint64_t number, SentPacket&);   newly acknowledged, never told lost before; largest first
//   void lost(std::uint64_t number, SentPacket&);    only packets in flight; send the frames again, unless `repeated`
//   void spurious(std::uint64_t number, SentPacket&);  told lost before, acknowledged now
// and must not call back into the detector. The detector does not look at the frames of a packet that is lost: the
// visitor may leave a note there for spurious().
class LossDetector {
 public:
  struct Options {
    RttEstimator::Options rtt{};
    Duration max_ack_delay = std::chrono::milliseconds{1};  // the peer's
    Duration longest_pto = std::chrono::seconds{1};         // cap of the backoff
    std::uint32_t packet_threshold = 3;
    std::size_t sent_packets_bound = SentPackets::kDefaultBound;
  };

  // Lost packets kept to recognise late acknowledgements; packets that elicit nothing kept at the front.
  static constexpr std::uint64_t kMaxRetained = 256;
  static constexpr std::uint32_t kMaxBackoffDoublings = 16;
  static constexpr std::uint64_t kPersistentCongestionThreshold = 3;  // probe timeouts
  // The shortest timeout after the first one in a row, on a path that has lost nothing for kLossMemory: as long as
  // processes may stand still.
  static constexpr Duration kStandstill = std::chrono::milliseconds(50);
  static constexpr Duration kLossMemory = std::chrono::seconds(10);
  static constexpr std::int64_t kLongestLossDelay = 2;  // probe timeouts, however far packets overtake each other

  LossDetector(Options options, Random& random);
  explicit LossDetector(Random& random) : LossDetector(Options{}, random) {}
  LossDetector(const LossDetector&) = delete;
  LossDetector& operator=(const LossDetector&) = delete;

  // Too many packets are unacknowledged: do not send. With a sane window this does not happen.
  bool full() const { return sent_.size() >= sent_.bound() && head_ == sent_.first(); }

  // `number` must be next_number(); a larger one only while sent() is empty. `packet.sent_at` is set to `now`.
  void on_sent(std::uint64_t number, const SentPacket& packet, Instant now);

  // A rejected acknowledgement changes nothing.
  template <class Visitor>
  LossReport on_ack(const AckView& ack, Instant now, Visitor&& visitor);

  // To be called when deadline() has passed; harmless before.
  template <class Visitor>
  LossReport on_timeout(Instant now, Visitor&& visitor);

  // The path or its keys are gone: everything outstanding is reported lost, without congestion.
  template <class Visitor>
  void abandon(Visitor&& visitor);

  // The packets go another way through the network from now on: nothing is known of its round-trip time.
  void forget_path() {
    rtt_ = RttEstimator({.initial = initial_rtt_, .granularity = rtt_.granularity()});
    reordering_ = {};
    lossy_until_ = {};
  }

  // The next loss by time, or else the probe timeout; never() if nothing ack-eliciting is in flight.
  Instant deadline() const { return loss_time_.is_never() ? pto_deadline() : loss_time_; }

  // The oldest outstanding ack-eliciting packet: what a probe best repeats. nullptr if there is none.
  const SentPacket* oldest_outstanding(std::uint64_t* number = nullptr) const;
  // The oldest one whose frames no later packet has. From now on one has, or will: they are not sent again if it is
  // lost. nullptr if there is none.
  const SentPacket* take_for_repetition();

  std::uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  // Without searches for the MTU, which mostly are too large for the path.
  std::uint64_t bytes_on_the_way() const { return bytes_in_flight_ - probe_bytes_in_flight_; }
  std::uint64_t eliciting_in_flight() const { return eliciting_in_flight_; }
  std::uint32_t pto_count() const { return pto_count_; }
  // kNoPacket before the first acknowledgement.
  std::uint64_t largest_acked() const { return largest_acked_; }
  std::uint64_t next_number() const { return sent_.end(); }
  const RttEstimator& rtt() const { return rtt_; }
  const Reordering& reordering() const { return reordering_; }
  const SentPackets& sent() const { return sent_; }
  Duration pto() const { return rtt_.pto(max_ack_delay_); }
  void release_memory();

 private:
  AckStatus judge(const AckView& ack) const;
  Instant pto_deadline() const;
  Duration loss_delay() const;
  std::uint64_t first_outstanding() const;
  void leave_flight(const SentPacket& packet);
  void advance_head();
  void retire(Instant now);
  void on_probe_timeout(Instant now);
  bool is_persistent(Instant first_sent_at, Instant last_sent_at) const;

  // A range that is longer is stepped over in several steps.
  static std::uint16_t acked_below(std::uint64_t count) {
    return static_cast<std::uint16_t>(std::min<std::uint64_t>(count, 0xffff));
  }
  // What the ranges of one acknowledgement showed.
  struct AckNews {
    bool eliciting = false;
    bool frames = false;
    bool probed = false;                           // was outstanding when a probe timeout expired, and not lost
    std::uint64_t overtaken_below;                 // numbers that are acknowledged after a larger one was
    Instant overtaken_sent_at = Instant::never();  // the first of those
  };
  template <class Visitor>
  void ack_range(PacketRange range, LossReport& report, AckNews& news, Visitor& visitor);
  void learn(const AckNews& news, LossReport& report, bool is_stale, Instant now);
  template <class Visitor>
  void detect_lost(Instant now, LossReport& report, Visitor& visitor, bool by_time = true);

  ShortDuration max_ack_delay_;  // these four: Options
  ShortDuration longest_pto_;
  ShortDuration initial_rtt_;
  std::uint32_t packet_threshold_;
  Random& random_;
  SentPackets sent_;
  RttEstimator rtt_;
  std::uint64_t head_ = 0;  // lowest number that may be outstanding
  std::uint64_t largest_acked_ = kNoPacket;
  std::uint64_t bytes_in_flight_ = 0;
  std::uint32_t probe_bytes_in_flight_ = 0;
  std::uint32_t eliciting_in_flight_ = 0;
  Instant last_eliciting_sent_at_{};
  Instant loss_time_ = Instant::never();
  Reordering reordering_;
  Instant lossy_until_{};
  std::uint32_t pto_count_ = 0;
  std::uint32_t jitter_;  // of the probe timeout, in 1/kJitterUnits of it
  static constexpr std::uint32_t kJitterUnits = 1'024;
  static constexpr std::uint32_t kMaxJitter = 128;  // an eighth
};

}  // namespace weir::recovery

#include "recovery/loss_detector_visit.h"  // IWYU pragma: export
