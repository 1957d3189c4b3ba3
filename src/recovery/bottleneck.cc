#include "recovery/bottleneck.h"

#include <algorithm>
#include <utility>

namespace weir::recovery {

namespace {

constexpr std::uint64_t kNsPerS = 1'000'000'000;
constexpr std::uint64_t kNoBound = ~std::uint64_t{0};

// Parts of a hundred.
constexpr std::uint64_t kDrainGain = 75;
constexpr std::uint64_t kCruiseGain = 100;
constexpr std::uint64_t kProbeGain = 125;
constexpr std::uint64_t kFastProbeGain = 200;  // after the rate has grown twice
constexpr std::uint64_t kWindowGain = 200;
constexpr std::uint64_t kLossFactor = 70;   // of the rate
constexpr std::uint64_t kBoundFactor = 85;  // of what was on the way when too much was lost
constexpr std::uint64_t kStillGrows = 110;  // the rate, while probing

constexpr std::uint64_t kLeastProbePacketsPerS = 100;
constexpr std::uint64_t kLeastPacketsPerS = 2'000;

constexpr std::uint64_t part(std::uint64_t value, std::uint64_t percent) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(value) * percent / 100);
}

}  // namespace

Bottleneck::Bottleneck(Options options, Random& random)
    : options_(options), random_(random), window_(options.initial_window) {}

std::uint64_t Bottleneck::bandwidth() const { return std::min(best_rate(), rate_bound_); }

std::uint64_t Bottleneck::product(std::uint64_t rate, Duration rtt) const {
  if (rtt == kNoRtt) return options_.initial_window;
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(rate) * static_cast<std::uint64_t>(rtt.count()) /
                                    kNsPerS);
}

Bottleneck::Stamp Bottleneck::stamp(Instant now) {
  if (is_idle_) {
    is_idle_ = false;
    if (in_flight_ == 0) {
      newest_sent_at_ = now;
      begin_measuring(now);
    }
  }
  if (last_stamp_ != 0 && now - sent_[last_stamp_ % kStamps].sent_at < stamp_interval_) return last_stamp_;
  if (++last_stamp_ == 0) ++last_stamp_;
  sent_[last_stamp_ % kStamps] = {.stamp = last_stamp_, .delivered = delivered_, .sent_at = now};
  return last_stamp_;
}

void Bottleneck::on_missing(std::int64_t packets, std::uint32_t packet_bytes, Instant now) {
  if (packets < 0) {
    lost_ -= std::min<std::uint64_t>(lost_, static_cast<std::uint64_t>(-packets) * packet_bytes);
    epoch_losses_ -= std::min<std::uint32_t>(epoch_losses_, static_cast<std::uint32_t>(-packets));
    return;
  }
  last_limited_at_ = now;
  const Duration rtt = minimum_rtt();
  if (rtt != kNoRtt && now - rtt <= reduced_at_) return;
  lost_ += static_cast<std::uint64_t>(packets) * packet_bytes;
  epoch_losses_ += static_cast<std::uint32_t>(packets);
  advance({}, now);
}

void Bottleneck::on_nothing_to_send() {
  if (in_flight_ < window_) is_idle_ = measures_idleness_ = true;
}

void Bottleneck::begin_measuring(Instant now) {
  measured_from_ = now;
  sample_rtt_ = kNoRtt;
  measured_from_sent_ = newest_sent_at_;
  measured_from_bytes_ = delivered_;
  measures_idleness_ = is_idle_;
}

void Bottleneck::on_outcome(const Outcome& outcome, Instant now) {
  const std::uint64_t in_flight_before = in_flight_;
  most_in_flight_ = std::max(most_in_flight_, in_flight_);
  in_flight_ -= std::min(in_flight_, outcome.left_bytes);
  if (outcome.lost_sent_at > reduced_at_) {
    lost_ += outcome.lost_bytes;
    epoch_losses_ += outcome.lost_packets;
  }
  lost_ -= std::min(lost_, outcome.spurious_bytes);
  if (outcome.lost_packets != 0) last_limited_at_ = now;
  if (outcome.rtt > Duration{0}) take_rtt(outcome.rtt, now);
  if (outcome.delivered_bytes != 0) {
    delivered_ += outcome.delivered_bytes;
    track_acknowledged(outcome.delivered_bytes, now);
    const SendState& state = sent_[outcome.newest % kStamps];
    if (outcome.newest != 0 && state.stamp == outcome.newest) {
      newest_sent_at_ = std::max(newest_sent_at_, state.sent_at);
      round_volume_ = std::max(round_volume_, delivered_ - state.delivered);
      if (state.delivered >= next_round_at_) {
        next_round_at_ = delivered_;
        end_round(now);
      }
    }
    if (is_searching() && in_flight_before >= window_ / 2) {
      window_ = std::min(window_ + outcome.delivered_bytes, options_.largest_window);
    }
  }
  advance(outcome, now);
}

void Bottleneck::on_marked(std::uint64_t bytes, Instant now) {
  lost_ += bytes / 2;  // a mark says half of what a loss says
  advance({}, now);
}

void Bottleneck::take_rtt(Duration rtt, Instant now) {
  if (now - rtt_rotated_at_ >= kRttLife) {
    rtt_rotated_at_ = now;
    earlier_rtt_ = std::exchange(later_rtt_, kNoRtt);
  }
  later_rtt_ = std::min(later_rtt_, rtt);
  sample_rtt_ = std::min(sample_rtt_, rtt);
  stamp_interval_ = std::max(minimum_rtt() / kStampsPerRtt, Duration{1});
}

// Over whole rounds and several packets: the average over a few packets says little. True: there is a new rate.
bool Bottleneck::take_rate(std::uint64_t least_packets, Instant now) {
  const std::uint64_t bytes = delivered_ - measured_from_bytes_;
  const Duration interval = std::max(now - measured_from_, newest_sent_at_ - measured_from_sent_);
  if (bytes < least_packets * options_.packet_bytes || interval <= Duration{0}) return false;
  const auto rate = static_cast<std::uint64_t>(static_cast<unsigned __int128>(bytes) * kNsPerS /
                                               static_cast<std::uint64_t>(interval.count()));
  const bool counts = !measures_idleness_ || rate > bandwidth();
  if (!measures_idleness_) last_limited_at_ = now;
  if (counts) {
    last_rate_ = rate;
    best_rates_[0] = std::max(best_rates_[0], rate);
  }
  sampled_rtt_ = sample_rtt_;
  begin_measuring(now);
  return counts;
}

// How many more bytes are acknowledged at once than the rate explains: so many more have to be on the way.
void Bottleneck::track_acknowledged(std::uint64_t bytes, Instant now) {
  const std::uint64_t expected = product(bandwidth(), now - bunch_start_);
  if (bunch_bytes_ <= expected) {
    bunch_start_ = now;
    bunch_bytes_ = bytes;
    bunches_[0] = std::max(bunches_[0], bytes);
    return;
  }
  bunch_bytes_ += bytes;
  bunches_[0] = std::max(bunches_[0], bunch_bytes_ - expected);
}

void Bottleneck::begin_epoch() {
  most_in_flight_ = in_flight_;
  epoch_delivered_ = delivered_;
  epoch_lost_ = lost_;
  epoch_losses_ = 0;
  epoch_has_round_ = false;
}

bool Bottleneck::is_lossy() const {
  const std::uint64_t lost = lost_ - std::min(lost_, epoch_lost_);
  return lost * kLossPart > delivered_ - epoch_delivered_ + lost;
}

void Bottleneck::end_round(Instant now) {
  ++rounds_in_phase_;
  epoch_has_round_ = true;
  last_round_volume_ = std::exchange(round_volume_, 0);
  if (phase_ == Phase::probing && rounds_in_phase_ == 1)
    return begin_measuring(now);  // what is faster arrives from now on
  const std::uint64_t packets = now - measured_from_ < kLongSample ? kSamplePackets : kLongSamplePackets;
  const std::uint64_t before = bandwidth();
  const bool has_rate = take_rate(packets, now);
  switch (phase_) {
    case Phase::searching:
      if (now < phase_until_) break;
      if (!phase_until_.is_never())
        best_rates_[1] = std::exchange(best_rates_[0], last_rate_);  // what was fast long ago may not be so now
      break;
    case Phase::probing:
      probe_step_ = std::min<std::uint64_t>(probe_step_ * 2, 16);
      if (has_rate && (last_rate_ * 100 < before * kStillGrows || has_queue())) return enter(Phase::draining, now);
      growths_ += has_rate;
      break;
    case Phase::draining:
    case Phase::cruising:
      break;
  }
  if (phase_ == Phase::searching && (phase_until_.is_never() || now >= phase_until_))
    phase_until_ = now + kShortestCruise;
}

void Bottleneck::on_lossy_epoch(Instant now) {
  reduced_at_ = now;
  // What was delivered within one round trip while the queue was full is what link and queue hold.
  const std::uint64_t volume = std::max(round_volume_, last_round_volume_);
  inflight_bound_ = std::max(part(std::min(inflight_bound_, volume), kBoundFactor), smallest_window());
  if (phase_ == Phase::searching) take_rate(1, now);
  if (phase_ == Phase::searching || phase_ == Phase::probing) return enter(Phase::draining, now);
  rate_bound_ = std::max({last_rate_, part(bandwidth(), kLossFactor), best_rate() / 2});
}

void Bottleneck::begin_cruise(Duration length, Instant now) {
  phase_ = Phase::cruising;
  phase_began_ = now;
  rounds_in_phase_ = 0;
  phase_until_ = now + length;
}

void Bottleneck::enter(Phase phase, Instant now) {
  if (phase == Phase::draining) {  // a new cycle of the filters
    best_rates_[1] = std::exchange(best_rates_[0], last_rate_);
    bunches_[1] = std::exchange(bunches_[0], 0);
    if (phase_ == Phase::probing) last_probe_ = now - phase_began_;
  } else if (phase == Phase::probing) {
    probe_from_rate_ = bandwidth();
    rate_bound_ = kNoBound;
    probe_step_ = 1;
    growths_ = 0;
    next_round_at_ = delivered_;  // the first round ends with what is sent from now on
  }
  phase_ = phase;
  phase_began_ = now;
  rounds_in_phase_ = 0;
  phase_until_ = Instant::never();
  begin_epoch();
}

void Bottleneck::advance(const Outcome& outcome, Instant now) {
  const std::uint64_t packets = (delivered_ - epoch_delivered_) / options_.packet_bytes;
  if (is_lossy() && (is_searching() ? epoch_losses_ >= kSearchLosses && most_in_flight_ >= options_.initial_window / 4
                                    : epoch_losses_ >= 2)) {
    on_lossy_epoch(now);
    begin_epoch();
  } else if (epoch_has_round_ && (packets >= kEpochPackets || epoch_losses_ == 0)) {
    begin_epoch();
  }
  switch (phase_) {
    case Phase::searching:
      break;
    case Phase::draining:
      if (in_flight_ <= std::max(product(bandwidth(), minimum_rtt()), smallest_window()) ||
          rounds_in_phase_ >= kLongestDrainRounds) {
        const bool found_more = bandwidth() * 100 > probe_from_rate_ * kStillGrows && probe_from_rate_ != 0;
        const Duration usual = kShortestCruise + Duration(static_cast<std::int64_t>(random_.below(
                                                     static_cast<std::uint64_t>(Duration(kShortestCruise).count()))));
        const Duration rtt = minimum_rtt() == kNoRtt ? Duration(kShortestCruise) : minimum_rtt();
        // All who share the link together probe for a small part of the time.
        const Duration quick = std::min<Duration>(kFastProbeRounds * rtt, usual);
        const Duration rest = std::min<Duration>(std::max(usual, kCruisePerProbe * last_probe_), kLongestCruise);
        begin_cruise(found_more ? std::max<Duration>(quick, 10 * last_probe_) : rest, now);
      }
      break;
    case Phase::cruising: {
      // Who has nothing more to send learns nothing from sending faster.
      const Duration least = std::max(
          {Duration(kCruiseWithoutQueue), std::min<Duration>(8 * last_probe_, kShortestCruise), 8 * minimum_rtt()});
      if (!measures_idleness_ && (now >= phase_until_ || (!has_queue() && now >= phase_began_ + least))) {
        enter(Phase::probing, now);
      }
      break;
    }
    case Phase::probing:
      if (inflight_bound_ != kNoBound) inflight_bound_ += outcome.delivered_bytes * probe_step_ / 16;
      break;
  }
  if (phase_ != Phase::searching && now - last_limited_at_ >= kForget) {
    window_ = std::max(options_.initial_window, window_);
    inflight_bound_ = rate_bound_ = kNoBound;
    enter(Phase::searching, now);
  }
  update_limits();
}

void Bottleneck::update_limits() {
  if (is_searching()) {
    pacing_rate_ = 0;
    return;
  }
  const std::uint64_t rate = bandwidth();
  const std::uint64_t gain = phase_ == Phase::draining  ? kDrainGain
                             : phase_ == Phase::probing ? (growths_ < 2 ? kProbeGain : kFastProbeGain)
                                                        : kCruiseGain;
  pacing_rate_ = std::max<std::uint64_t>(part(rate, gain), kLeastPacketsPerS * options_.packet_bytes);
  if (phase_ == Phase::probing)
    pacing_rate_ = std::max(pacing_rate_, rate + kLeastProbePacketsPerS * options_.packet_bytes);
  const std::uint64_t wanted = part(product(rate, minimum_rtt()), kWindowGain) + product(rate, kSlack) +
                               std::max(bunches_[0], bunches_[1]) + kQuantumPackets * options_.packet_bytes;
  window_ = std::clamp(std::min(wanted, inflight_bound_), smallest_window(), options_.largest_window);
}

}  // namespace weir::recovery
