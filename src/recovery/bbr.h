// A model of a path that has its link to itself: how fast the link delivers and how long an empty one takes there and
// back (docs/protocol.md, rules N-17 to N-21). The algorithm is that of BBR, version 3 (draft-ietf-ccwg-bbr).
//
// - `startup`: the rate doubles each round trip, until three rounds have brought no more or losses show a full queue.
// - `drain`: half the rate, until that queue is empty.
// - then cycles of: `down`, a little slower, until the queue is empty; `cruise` at the rate found; `refill` for a round
//   trip, so that the link is busy; `up`, a quarter faster, to see whether there is more.
// - `probe_rtt`: half a window for a moment, if no round trip was as short as the shortest for five seconds.
//
// What is in flight is bounded by a multiple of rate times round trip. Losses and congestion marks lower the bounds
// once per round trip, to what was delivered in it: a loss at random costs next to nothing, a full queue is left.
#pragma once

#include <cstdint>

#include "base/random.h"
#include "recovery/bbr_estimates.h"
#include "recovery/congestion.h"
#include "recovery/delivery_history.h"

namespace weir::recovery {

// One per path that needs it; single-threaded.
class Bbr final : public CongestionController {
 public:
  enum class Phase : std::uint8_t { startup, drain, down, cruise, refill, up, probe_rtt };
  struct Options {
    std::uint32_t mtu = 1'200;
    std::uint64_t window = 64 * 1024;  // at first
    std::uint64_t largest_window = 64 * 1024 * 1024;
    Duration round_trip{};        // as far as it is known
    Instant began_at{};           // what is in flight was sent then or later
    std::uint64_t in_flight = 0;  // bytes
  };
  static constexpr std::uint64_t kMinimumPackets = 2;
  // A receiver acknowledges so many packets together, or waits for so long.
  static constexpr std::uint64_t kPacketsPerAck = 16;
  static constexpr Duration kAckDelay = std::chrono::milliseconds(1);
  static constexpr std::uint64_t kTrainsPerSecond = 4'096;  // one train is in the hands of the host

  Bbr(const Options& options, Random& random);

  void on_sent(std::uint64_t bytes, std::uint64_t in_flight, Instant now) override;
  void on_acked(const AckedBatch& batch, Instant now) override;
  void on_lost(const LostBatch& batch, Instant now) override;
  void on_ecn_ce(std::uint64_t count, Instant largest_sent_at, Instant now) override;
  void on_persistent_congestion(Instant now) override;
  void on_spurious_loss(std::uint32_t packets, Instant now) override;
  void set_mtu(std::uint32_t mtu) override { mtu_ = mtu; }
  void on_app_limited(std::uint64_t in_flight) override { history_.on_app_limited(in_flight); }

  std::uint64_t window() const override { return window_; }
  std::uint64_t pacing_rate() const override { return pacing_rate_; }
  bool in_slow_start() const override { return phase_ == Phase::startup; }

  Phase phase() const { return phase_; }
  std::uint64_t maximum_rate() const { return maximum_rate_.get(); }
  Duration minimum_rtt() const { return minimum_rtt_.get(); }
  const CongestionBounds& bounds() const { return bounds_; }

 private:
  // Of the samples that a probe for more brings.
  enum class Probe : std::uint8_t { none, starting, feedback, stopping };
  struct Gains {
    double pacing;
    double window;
  };
  // What one acknowledgement is about.
  struct Step {
    const DeliverySample& sample;
    std::uint64_t acked;
    Duration rtt;  // 0: no sample
    bool is_round_start;
    Instant now;
  };

  bool begin_round(const DeliverySample& sample, Instant now);
  void judge_congestion(const Step& step);
  void lower_bounds(bool is_congested);
  void advance(const Step& step);
  void adapt_long_term(const Step& step);
  void raise_high(const Step& step);
  void check_probe_rtt(const Step& step);
  void update_limits(std::uint64_t acked);

  void enter_startup();
  void fill(bool because_of_loss);
  void start_down(Instant now);
  void start_refill();
  void start_up(const DeliverySample& sample);
  void leave_probe_rtt(Instant now);
  void on_too_much(std::uint64_t in_flight, bool is_app_limited, Instant now);

  bool is_cycling() const { return phase_ >= Phase::down && phase_ <= Phase::up; }
  bool is_probing() const { return phase_ == Phase::startup || phase_ == Phase::refill || phase_ == Phase::up; }
  bool has_queue() const;
  bool is_too_much(const DeliverySample& sample) const;
  bool is_time_to_probe(Instant now) const;
  bool is_window_limited() const { return peak_in_flight_ + mtu_ > window_; }
  Gains gains() const;
  std::uint64_t minimum_window() const { return kMinimumPackets * mtu_; }
  std::uint64_t rate() const { return std::min(maximum_rate_.get(), bounds_.rate); }
  std::uint64_t bandwidth_delay(std::uint64_t rate, double gain) const;
  std::uint64_t in_flight_at(std::uint64_t rate, double gain) const;
  std::uint64_t most_in_flight() const;
  std::uint64_t unacknowledged() const;
  std::uint64_t target_in_flight() const;
  std::uint64_t high_with_headroom() const;
  std::uint64_t probe_rtt_window() const;

  Random& random_;
  std::uint64_t mtu_;
  const std::uint64_t initial_window_;
  const std::uint64_t largest_window_;

  // ---- the model ----
  DeliveryHistory history_;
  MaximumRate maximum_rate_;
  MinimumRoundTrip minimum_rtt_;
  AckAggregation aggregation_;
  FullPipe pipe_;
  CongestionBounds bounds_;
  CongestionRound congestion_;
  LossRate loss_rate_;
  double marked_part_ = 1;  // of the bytes of a round, smoothed

  // ---- where it is ----
  Phase phase_ = Phase::startup;
  Probe probe_ = Probe::none;
  bool is_filled_ = false;           // startup has found the rate
  bool is_probe_sample_ = false;     // losses may tell that the probe for more went too far
  bool is_idle_restart_ = false;     // nothing was in flight
  std::uint32_t rounds_ = 0;         // in drain; in up, that raised the bound; or since the last probe for more
  std::uint64_t round_ends_at_ = 0;  // when a packet is acknowledged that was sent after so much was delivered
  Instant round_began_at_{};
  std::uint64_t raise_acked_ = 0;
  std::uint64_t raise_interval_ = 0;  // bytes acknowledged, per packet by which the bound rises
  std::uint32_t raise_rounds_ = 0;
  Instant cycle_began_at_{};
  Duration probe_wait_{};
  Instant probe_rtt_until_ = Instant::never();
  bool probe_rtt_round_done_ = false;

  // ---- what it sends ----
  std::uint64_t in_flight_ = 0;
  std::uint64_t peak_in_flight_ = 0;  // in this round
  std::uint64_t window_;
  std::uint64_t pacing_rate_ = 0;
  std::uint64_t window_before_probe_ = 0;

  // ---- to undo what spurious losses did ----
  static constexpr std::int64_t kRefutable = 8;  // round trips
  CongestionBounds bounds_before_;
  std::uint64_t window_before_ = 0;
  Phase phase_before_ = Phase::cruise;  // startup or up, if losses ended that
  std::uint32_t losses_to_refute_ = 0;
  Instant lost_at_{};
  Duration smoothed_rtt_{};
};

}  // namespace weir::recovery
