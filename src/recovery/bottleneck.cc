#include "recovery/bottleneck.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace weir::recovery {

namespace {

constexpr double kGrowth = 0.05;          // packets per round, for a window of one packet
constexpr double kFastestGrowth = 0.25;   // of the window, in a round
constexpr double kCalmStep = 1;           // per round without a queue
constexpr double kMostCalm = 20;          // the window grows faster by so much at most
constexpr double kDelayFactor = 0.8;      // of what waits in the queue beyond the target
constexpr double kLargestDecrease = 0.3;  // of the window, in a round
constexpr double kLossFactor = 0.8;       // that a loss leaves
constexpr double kSearchFactor = 0.85;    // of what the last round delivered, that the search leaves
constexpr double kMarkFactor = 0.5;       // a round of marks alone takes so much
constexpr double kMarkMean = 1.0 / 4;     // a round's part in the mean of marks
constexpr double kMarkedGrowth = 8;       // packets per round, where marks show the limit
constexpr double kFirstRounds = 1.5;      // round trips that the first window fills, if the interface's rate is known
constexpr double kRttMean = 1.0 / 16;     // a sample's part in the mean of round trips
constexpr double kPacingGain = 1.25;      // of windows that acknowledgements clock
constexpr double kClockedPackets = 2;     // a larger window is one of these
constexpr double kLeastTargetPart = 0.3;  // of the target, where round trips are long
constexpr double kSmallestTargetPart = 0.03;  // where they are short
constexpr double kRoundPart = 1.0 / 2;        // of a round, below which the target does not fall
constexpr double kQueuePart = 0.5;            // of the longest queue, that is aimed at
constexpr double kTargetGrowth = 1.0 / 512;   // in a round without a queue
constexpr double kLeastPacingRate = 64'000;   // bytes per second
constexpr int kRoundsWithoutSamples = 4;

}  // namespace

Bottleneck::Stamp Bottleneck::stamp(Instant now) {
  is_idle_ = false;
  if (last_stamp_ != 0 && now - sent_[last_stamp_ % kStamps] < stamp_interval_) return last_stamp_;
  if (++last_stamp_ == 0) ++last_stamp_;
  sent_[last_stamp_ % kStamps] = now;
  return last_stamp_;
}

Duration Bottleneck::target() const {
  const double packets = std::max(window_ / packet(), 1.0);
  const double ns = static_cast<double>(kLeastTarget.count()) +
                    static_cast<double>(Duration(kTargetSpread).count()) / std::sqrt(packets);
  return Duration(static_cast<std::int64_t>(ns * target_part_));
}

void Bottleneck::on_missing(std::int64_t packets) { missing_ = std::max<std::int64_t>(missing_ + packets, 0); }

void Bottleneck::on_outcome(const Outcome& outcome, Instant now) {
  const std::uint64_t in_flight_before = in_flight_;
  in_flight_ -= std::min(in_flight_, outcome.left_bytes);
  if (outcome.rtt > Duration{0}) take_rtt(outcome, now);
  if (outcome.delivered_bytes != 0) {
    round_bytes_ += outcome.delivered_bytes;
    epoch_bytes_ += outcome.delivered_bytes;
    if (is_searching() && in_flight_before >= window() / 2) {
      window_ = std::min(window_ + static_cast<double>(outcome.delivered_bytes),
                         static_cast<double>(options_.largest_window));
    }
    if (remembers(outcome.newest)) {
      const Instant newest_at = sent_at(outcome.newest);
      const bool has_samples = groups_ != 0 || now - round_from_ >= kRoundsWithoutSamples * round_time_;
      if (newest_at >= round_from_ && has_samples) end_round(now, now - newest_at);
    }
  }
  if (outcome.lost_packets != 0 || outcome.spurious_packets != 0) take_losses(outcome, now);
  if (!is_searching() && now - last_limited_at_ >= kForget) {
    phase_ = Phase::searching;
    window_ = std::max(window_, first_window());
    marked_part_ = 0;
    mark_rounds_ = 0;
  }
  update_limits();
}

void Bottleneck::on_silence(bool is_first, Instant now) {
  in_flight_ = 0;
  if (is_first && !is_searching()) reduce(1 - kLargestDecrease, now);
  update_limits();
}

void Bottleneck::take_rtt(const Outcome& outcome, Instant now) {
  if (now - rtt_rotated_at_ >= kRttLife) {
    rtt_rotated_at_ = now;
    earlier_rtt_ = std::exchange(later_rtt_, kNoRtt);
  }
  // What a receiver says about its own delay is not believed here: a false word would shorten the base of all paths.
  later_rtt_ = std::min(later_rtt_, outcome.rtt);
  stamp_interval_ = std::max<Duration>(std::max(minimum_rtt(), round_time_) / kStampsPerRtt, options_.shortest_stamp);
  if (outcome.path_rtt > Duration{0}) {
    const auto path_ns = static_cast<double>(outcome.path_rtt.count());
    typical_rtt_ns_ = typical_rtt_ns_ == 0 ? path_ns : typical_rtt_ns_ + (path_ns - typical_rtt_ns_) * kRttMean;
    if (is_searching()) window_ = std::max(window_, first_window());
  }
  if (outcome.prompt_rtt <= Duration{0}) return;
  const Duration base = std::max(minimum_rtt(), outcome.path_rtt - kNearby);
  const Duration delay = std::max(outcome.prompt_rtt - base, Duration{0});
  ++samples_;
  longest_delay_ = std::max(longest_delay_, delay);
  group_delay_ = std::min(group_delay_, std::min(delay, 2 * target()));
  if (++in_group_ < group_size_) return;
  delay_sum_ += std::exchange(group_delay_, kNoRtt);
  ++groups_;
  in_group_ = 0;
}

void Bottleneck::take_losses(const Outcome& outcome, Instant now) {
  epoch_losses_ -= std::min(epoch_losses_, outcome.spurious_packets);
  if (outcome.lost_packets == 0) return;
  last_limited_at_ = lost_at_ = now;
  if (outcome.lost_sent_at <= reduced_at_) return;
  epoch_bytes_ += outcome.lost_bytes;
  epoch_losses_ += outcome.lost_packets;
  judge_losses(now);
}

void Bottleneck::judge_losses(Instant now) {
  const Duration depth = std::max(longest_delay_, last_longest_delay_);
  const bool is_lossy =
      epoch_losses_ >= 2 && std::uint64_t{epoch_losses_} * options_.packet_bytes * kLossPart > epoch_bytes_;
  if (is_searching()) {
    if (is_lossy && epoch_losses_ >= kSearchLosses && is_used()) stop_searching(now);
  } else if (is_lossy || depth > target() / 2) {
    if (depth > Duration{0}) {
      const auto whole = static_cast<double>(Duration(kLeastTarget + kTargetSpread).count());
      const double part = kQueuePart * static_cast<double>(depth.count()) / whole;
      // Late threads and losses at random make a target of less useless.
      const double round_part = kRoundPart * static_cast<double>(round_time_.count()) / whole;
      const double least = std::clamp(round_part, kSmallestTargetPart, kLeastTargetPart);
      target_part_ = std::min(std::max(part, least), target_part_);
    }
    reduce(kLossFactor, now);
  }
  if (epoch_bytes_ >= kEpochPackets * options_.packet_bytes) {
    epoch_bytes_ /= 2;
    epoch_losses_ /= 2;
  }
}

void Bottleneck::reduce(double factor, Instant now) {
  window_ *= factor;
  calm_ = 0;
  reduced_at_ = now;
  epoch_bytes_ = epoch_losses_ = 0;
}

// What the interface sends while a packet is on its way to a typical peer and back. More would wait somewhere.
double Bottleneck::first_window() const {
  const double bytes = kFirstRounds * static_cast<double>(options_.nic_rate) * typical_rtt_ns_ * 1e-9;
  return std::max(static_cast<double>(options_.initial_window), std::min<double>(bytes, kLargestFirstWindow));
}

void Bottleneck::stop_searching(Instant now) {
  phase_ = Phase::following;
  full_rounds_ = 0;
  const double delivered = kSearchFactor * static_cast<double>(round_bytes_);
  // Marks come before the queue is full: so much was no burst.
  window_ = mark_rounds_ != 0 ? std::min(window_, std::max(delivered, first_window())) : delivered;
  reduce(1, now);
}

void Bottleneck::end_round(Instant now, Duration newest) {
  round_time_ = round_time_ == Duration{0} ? newest : round_time_ + (newest - round_time_) / 8;
  if (!was_idle_) last_limited_at_ = now;
  if (missing_ != 0) {
    lost_at_ = last_limited_at_ = now;
    // Those of the round after a reduction were sent before it.
    if (round_from_ > reduced_at_) {
      epoch_losses_ += static_cast<std::uint32_t>(missing_);
      judge_losses(now);
    }
  }
  adjust(now);
  begin_round(now);
}

void Bottleneck::begin_round(Instant now) {
  // The shortest of a group counts: one late thread makes many round trips longer, but not all.
  // A window of less than a packet would take too long for several.
  const std::uint32_t smallest = window_ < packet() ? 1 : kSmallestGroup;
  group_size_ = std::clamp(samples_ / 2, smallest, kLargestGroup);
  samples_ = in_group_ = groups_ = 0;
  group_delay_ = kNoRtt;
  delay_sum_ = Duration{0};
  last_longest_delay_ = std::exchange(longest_delay_, Duration{0});
  round_bytes_ = marked_bytes_ = 0;
  most_in_flight_ = in_flight_;
  missing_ = 0;
  round_from_ = now;
  was_idle_ = is_idle_;
}

void Bottleneck::adjust(Instant now) {
  if (reduced_at_ == now || (was_idle_ && !is_searching())) return;
  const double delay = groups_ == 0 ? 0 : static_cast<double>(delay_sum_.count()) / groups_;
  const auto wanted = static_cast<double>(target().count());
  const double least = now - lost_at_ < kLossMemory ? 0 : kLosslessWindow;
  take_marks();
  if (is_searching()) {
    const bool is_full = is_used() && (delay > wanted || mark_rounds_ == kMarkMemory);
    full_rounds_ = is_full ? full_rounds_ + 1 : 0;
    if (full_rounds_ >= (was_idle_ ? kFullRounds : 1)) stop_searching(now);
    return;
  }
  window_ *= 1 - kMarkFactor * marked_part_;
  if (delay > wanted && window_ > least) {
    const double waiting = (delay - wanted) / static_cast<double>(std::max(round_time_, minimum_rtt()).count());
    window_ = std::max(window_ * (1 - std::min(kDelayFactor * waiting, kLargestDecrease)), least);
    calm_ = 0;
  } else if (mark_rounds_ != 0) {
    calm_ = 0;
    window_ += std::min(kMarkedGrowth * packet(), window_ * kFastestGrowth);
  } else {
    calm_ = delay < wanted / 2 ? std::min(calm_ + kCalmStep, kMostCalm) : 0;
    const double step = kGrowth * std::sqrt(window_ / packet()) * (1 + calm_) * packet();
    window_ =
        std::min(window_ + std::min(step, window_ * kFastestGrowth), static_cast<double>(options_.largest_window));
    target_part_ = std::min(target_part_ * (1 + kTargetGrowth), 1.0);
  }
}

// Marks tell of a queue before it is long, so what they say is a mean of rounds rather than the worst of them.
void Bottleneck::take_marks() {
  const double part =
      round_bytes_ == 0 ? 0 : std::min(static_cast<double>(marked_bytes_) / static_cast<double>(round_bytes_), 1.0);
  const bool is_marked = part * kLossPart > 1;  // fewer may be the word of one peer
  mark_rounds_ = is_marked ? kMarkMemory : mark_rounds_ - (mark_rounds_ != 0);
  marked_part_ += ((is_marked ? part : 0) - marked_part_) * kMarkMean;
}

void Bottleneck::update_limits() {
  window_ = std::max(window_, kSmallestPackets * packet());
  if (is_searching()) {
    pacing_rate_ = 0;
    return;
  }
  const double gain = window_ > kClockedPackets * packet() ? kPacingGain : 1;
  const double per_round =
      gain * window_ * 1e9 / static_cast<double>(std::max<Duration>(round_time_, kShortestStamp).count());
  pacing_rate_ = static_cast<std::uint64_t>(std::max(per_round, kLeastPacingRate));
}

}  // namespace weir::recovery
