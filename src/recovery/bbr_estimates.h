// What a Bbr (bbr.h) keeps of the samples of its path, each in the manner of draft-ietf-ccwg-bbr. Single-threaded.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/time.h"
#include "recovery/delivery_history.h"

namespace weir::recovery {

// The largest rate in this cycle of probing and the one before.
class MaximumRate {
 public:
  std::uint64_t get() const { return std::max(rates_[0], rates_[1]); }
  // What was kept low by who sends may show that the path is faster, but never that it is slower.
  void on_sample(const DeliverySample& sample) {
    if (sample.rate >= get() || !sample.is_app_limited) rates_[1] = std::max(rates_[1], sample.rate);
  }
  // A cycle ends. One without samples says nothing.
  void advance() {
    if (rates_[1] == 0) return;
    rates_[0] = rates_[1];
    rates_[1] = 0;
  }

 private:
  std::array<std::uint64_t, 2> rates_{};  // of the last cycle and this one
};

// The shortest round trip, without the time that the peer waits before it acknowledges.
class MinimumRoundTrip {
 public:
  static constexpr Duration kLife = std::chrono::seconds(10);
  static constexpr Duration kProbeAfter = std::chrono::seconds(5);

  bool is_known() const { return rtt_.count() != 0; }
  Duration get() const { return rtt_; }
  // No round trip was as short for kProbeAfter.
  bool is_probe_due() const { return is_probe_due_; }

  void on_sample(Duration rtt, Instant now) {
    is_probe_due_ = is_known() && now > recent_at_ + kProbeAfter;
    if (rtt.count() == 0) return;
    if (!is_known() || rtt < recent_ || is_probe_due_) {
      recent_ = rtt;
      recent_at_ = now;
    }
    if (!is_known() || recent_ < rtt_ || now > at_ + kLife) {
      rtt_ = recent_;
      at_ = recent_at_;
    }
  }
  void on_probed(Instant now) { recent_at_ = now; }

 private:
  Duration rtt_{};  // 0: not known
  Instant at_{};
  Duration recent_{};  // since the last probe
  Instant recent_at_{};
  bool is_probe_due_ = false;
};

// How many bytes more than the rate explains are acknowledged together: what must be in flight beside what is under
// way, or the path would stand still between two acknowledgements.
class AckAggregation {
 public:
  static constexpr std::uint32_t kRounds = 5;  // the largest of the last kRounds to 2 * kRounds counts

  std::uint64_t get() const { return std::max(extra_[0], extra_[1]); }

  void on_acked(std::uint64_t bytes, std::uint64_t rate, std::uint64_t window, bool is_round_start, Instant now) {
    if (is_round_start && ++rounds_ >= kRounds) {
      rounds_ = 0;
      extra_[0] = extra_[1];
      extra_[1] = 0;
    }
    std::uint64_t expected = bytes_in(now - since_, rate);
    if (acked_ <= expected) {
      acked_ = expected = 0;
      since_ = now;
    }
    acked_ += bytes;
    extra_[1] = std::max(extra_[1], std::min(acked_ - expected, window));
  }

 private:
  std::array<std::uint64_t, 2> extra_{};
  std::uint32_t rounds_ = 0;
  std::uint64_t acked_ = 0;
  Instant since_{};
};

// Whether the path is full: three rounds have not brought a quarter more than the best round before.
class FullPipe {
 public:
  static constexpr std::uint32_t kRounds = 3;

  bool is_full() const { return rounds_ >= kRounds; }
  void start_over(std::uint64_t rate) {
    rate_ = rate;
    rounds_ = 0;
  }
  void set_full() { rounds_ = kRounds; }

  void on_sample(const DeliverySample& sample, bool is_round_start) {
    if (is_full() || sample.is_app_limited || sample.rate == 0) return;
    if (sample.rate >= rate_ + rate_ / 4) {
      start_over(sample.rate);
    } else if (is_round_start) {
      ++rounds_;
    }
  }

 private:
  std::uint64_t rate_ = 0;
  std::uint32_t rounds_ = 0;
};

// How much congestion lets in: a long-term bound of what is in flight, which probing moves, and short-term bounds of
// rate and flight, which losses and marks lower until the next probe.
struct CongestionBounds {
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  std::uint64_t high = kNone;  // in flight
  std::uint64_t low = kNone;   // in flight
  std::uint64_t rate = kNone;

  void forget_short_term() { low = rate = kNone; }
  void raise_to(const CongestionBounds& other) {
    high = std::max(high, other.high);
    low = std::max(low, other.low);
    rate = std::max(rate, other.rate);
  }
};

// How much was lost lately. Windows of a few packets show that over many rounds only.
class LossRate {
 public:
  static constexpr std::uint64_t kPackets = 512;  // then what was counted counts half
  static constexpr std::uint32_t kEvents = 10;    // fewer may be losses at random
  static constexpr std::uint64_t kPart = 50;      // one in so many is too much

  bool is_high() const { return events_ >= kEvents && lost_ * kPart > acked_ + lost_; }
  void on_acked(std::uint64_t bytes, std::uint64_t mtu) {
    acked_ += bytes;
    if (acked_ < kPackets * mtu) return;
    acked_ /= 2;
    lost_ /= 2;
    events_ /= 2;
  }
  // `events`: runs of lost packets. A full queue may drop hundreds in a row, once.
  void on_lost(std::uint64_t bytes, std::uint32_t events) {
    lost_ += bytes;
    events_ += events;
  }
  void start_over() { *this = {}; }

 private:
  std::uint64_t acked_ = 0;
  std::uint64_t lost_ = 0;
  std::uint32_t events_ = 0;
};

// What was delivered in the present round, and what went wrong in it.
struct CongestionRound {
  std::uint64_t ends_at = 0;    // when a packet is acknowledged that was sent after so much was delivered
  std::uint64_t rate = 0;       // the highest
  std::uint64_t delivered = 0;  // the most in a round trip
  std::uint64_t acked = 0;
  std::uint64_t lost = 0;
  std::uint64_t marked = 0;  // bytes that arrived with congestion marks, as if they were in full packets
  Duration shortest_rtt = Duration::max();

  void add(const DeliverySample& sample, std::uint64_t bytes, Duration rtt) {
    acked += bytes;
    rate = std::max(rate, sample.rate);
    delivered = std::max(delivered, sample.delivered);
    if (rtt.count() != 0) shortest_rtt = std::min(shortest_rtt, rtt);
  }
};

}  // namespace weir::recovery
