#include "recovery/bbr.h"

#include <algorithm>
#include <utility>

namespace weir::recovery {

namespace {

constexpr double kStartupPacing = 2.77;  // 4 * ln(2): the least with which the rate doubles each round trip
constexpr double kPacingMargin = 0.99;   // so that queues drain
constexpr double kMarkedPart = 0.1;      // of the bytes of a round with congestion marks: more is too much
constexpr std::uint64_t kMuchPart = 20;  // one in so many is too much even if little was lost before
constexpr double kBeta = 0.7;            // no signal lowers a bound further at a time
constexpr double kHeadroom = 0.15;       // of the long-term bound, left to others
constexpr double kMarkFactor = 1.0 / 3;  // of the smoothed part that is marked, by which a round lowers the flight
constexpr double kMarkGain = 1.0 / 16;
constexpr double kProbeRttGain = 0.5;
constexpr Duration kProbeRttTime = std::chrono::milliseconds(200);
constexpr Duration kProbeWait = std::chrono::seconds(2);
constexpr Duration kProbeWaitSpread = std::chrono::seconds(1);
constexpr std::int64_t kQueuePart = 8;  // of the shortest round trip, by which one is longer that waits in a queue
constexpr Duration kOwnQueue = std::chrono::microseconds(500);  // that two trains make
constexpr std::uint64_t kLeastProbeRounds = 24;  // where windows hold fewer packets a probe fills the queue
constexpr std::uint64_t kMostProbeRounds = 63;   // as often as the window of a Reno sender would fill the queue
constexpr std::uint32_t kDrainRounds = 3;
constexpr std::uint32_t kMostRaiseRounds = 30;

std::uint64_t scaled(std::uint64_t value, double factor) {
  return static_cast<std::uint64_t>(static_cast<double>(value) * factor);
}

}  // namespace

Bbr::Bbr(const Options& options, Random& random)
    : random_(random),
      mtu_(options.mtu),
      initial_window_(options.window),
      largest_window_(options.largest_window),
      history_(options.began_at, options.in_flight),
      peak_in_flight_(options.in_flight),
      window_(options.window) {
  if (options.round_trip.count() != 0) {
    pacing_rate_ = scaled(bytes_per_s(options.window, options.round_trip), kStartupPacing);
  }
}

Bbr::Gains Bbr::gains() const {
  switch (phase_) {
    case Phase::startup:
      return {kStartupPacing, 2};
    case Phase::drain:
      return {0.5, 2};
    case Phase::down:
      return {0.9, 2};
    case Phase::cruise:
    case Phase::refill:
      return {1, 2};
    case Phase::up:
      return {1.25, 2.25};
    case Phase::probe_rtt:
      return {1, kProbeRttGain};
  }
  return {1, 2};
}

std::uint64_t Bbr::bandwidth_delay(std::uint64_t rate, double gain) const {
  if (!minimum_rtt_.is_known() || rate == 0) return initial_window_;
  return scaled(bytes_in(minimum_rtt_.get(), rate), gain);
}

std::uint64_t Bbr::in_flight_at(std::uint64_t rate, double gain) const {
  return std::max({bandwidth_delay(rate, gain), pacing_rate_ / kTrainsPerSecond, minimum_window()});
}

std::uint64_t Bbr::most_in_flight() const { return in_flight_at(rate(), gains().window) + unacknowledged(); }

// What waits at the receiver, or on the way back, until it is acknowledged with more.
std::uint64_t Bbr::unacknowledged() const {
  return std::max(aggregation_.get(), std::min(kPacketsPerAck * mtu_, bytes_in(kAckDelay, rate())));
}

std::uint64_t Bbr::target_in_flight() const { return std::min(in_flight_at(rate(), 1) + unacknowledged(), window_); }

std::uint64_t Bbr::high_with_headroom() const {
  if (bounds_.high == CongestionBounds::kNone) return bounds_.high;
  const std::uint64_t headroom = std::max(scaled(bounds_.high, kHeadroom), mtu_);
  return std::max(bounds_.high - std::min(headroom, bounds_.high), minimum_window());
}

std::uint64_t Bbr::probe_rtt_window() const {
  return std::max(bandwidth_delay(rate(), kProbeRttGain), minimum_window());
}

void Bbr::on_sent(std::uint64_t bytes, std::uint64_t in_flight, Instant now) {
  if (in_flight == bytes && history_.is_app_limited()) {
    is_idle_restart_ = true;
    if (phase_ == Phase::probe_rtt && now > probe_rtt_until_) leave_probe_rtt(now);
  }
  history_.on_sent(bytes, in_flight, now);
  peak_in_flight_ = std::max(peak_in_flight_, in_flight);
}

void Bbr::on_acked(const AckedBatch& batch, Instant now) {
  in_flight_ = batch.in_flight;
  smoothed_rtt_ = batch.smoothed_rtt;
  const DeliverySample sample = history_.on_acked(batch.bytes, batch.largest_sent_at, now);
  minimum_rtt_.on_sample(batch.prompt_rtt, now);
  const Step step{.sample = sample,
                  .acked = batch.bytes,
                  .rtt = batch.prompt_rtt,
                  .is_round_start = begin_round(sample, now),
                  .now = now};
  maximum_rate_.on_sample(sample);
  history_.set_rate(maximum_rate_.get());
  judge_congestion(step);
  aggregation_.on_acked(batch.bytes, rate(), window_, step.is_round_start, now);
  pipe_.on_sample(sample, step.is_round_start);
  advance(step);
  check_probe_rtt(step);
  update_limits(batch.bytes);
  if (step.is_round_start) peak_in_flight_ = in_flight_;
  history_.mark(batch.smoothed_rtt, step.is_round_start, now);
}

bool Bbr::begin_round(const DeliverySample& sample, Instant now) {
  if (!sample.is_known || sample.delivered_before < round_ends_at_) return false;
  if (now - round_began_at_ < history_.least_time()) return false;  // no rate would show what it brought
  round_began_at_ = now;
  round_ends_at_ = history_.delivered();
  ++rounds_;
  return true;
}

// ---- congestion ----

void Bbr::on_lost(const LostBatch& batch, Instant now) {
  if (batch.packets == 0) return;
  const DeliverySample sample = history_.on_lost(batch.bytes, batch.largest_sent_at);
  if (losses_to_refute_ == 0 || now - lost_at_ > smoothed_rtt_ * kRefutable) {
    losses_to_refute_ = 0;
    bounds_before_ = bounds_;
    window_before_ = window_;
    phase_before_ = Phase::cruise;
    lost_at_ = now;
  }
  losses_to_refute_ += batch.packets;
  loss_rate_.on_lost(batch.bytes, batch.events);
  if (congestion_.lost == 0) congestion_.ends_at = history_.delivered();
  congestion_.lost += batch.bytes;
  if (is_probe_sample_ && sample.is_known && is_too_much(sample)) {
    on_too_much(sample.in_flight - std::min(sample.in_flight, sample.lost), sample.is_app_limited, now);
  }
}

bool Bbr::is_too_much(const DeliverySample& sample) const {
  if (loss_rate_.is_high()) return sample.lost > sample.in_flight / LossRate::kPart;
  return sample.lost > std::max(sample.in_flight / kMuchPart, mtu_);  // less may be lost at random
}

void Bbr::on_ecn_ce(std::uint64_t count, Instant, Instant) { congestion_.marked += count * mtu_; }

// The probe for more went too far.
void Bbr::on_too_much(std::uint64_t in_flight, bool is_app_limited, Instant now) {
  is_probe_sample_ = false;  // one answer to one probe
  loss_rate_.start_over();
  if (!is_app_limited) bounds_.high = std::max(in_flight, scaled(target_in_flight(), kBeta));
  if (phase_ != Phase::up) return;
  phase_before_ = Phase::up;
  start_down(now);
}

// Once per round in which something went wrong.
void Bbr::judge_congestion(const Step& step) {
  const DeliverySample& sample = step.sample;
  loss_rate_.on_acked(step.acked, mtu_);
  congestion_.add(sample, step.acked, step.rtt);
  if (!sample.is_known || sample.delivered_before < congestion_.ends_at) return;
  const auto acked = static_cast<double>(std::max<std::uint64_t>(congestion_.acked, 1));
  const double marked = std::min(static_cast<double>(congestion_.marked) / acked, 1.0);
  marked_part_ += kMarkGain * (marked - marked_part_);
  const bool is_lossy = congestion_.lost != 0 && loss_rate_.is_high();
  if (phase_ == Phase::startup) {
    if (is_lossy || marked > kMarkedPart) fill(true);
  } else if (is_probe_sample_ && marked > kMarkedPart) {
    on_too_much(congestion_.delivered, sample.is_app_limited, step.now);
  } else if (!is_probing()) {
    lower_bounds(is_lossy || has_queue());
  }
  congestion_ = {.ends_at = history_.delivered(), .rate = sample.rate, .delivered = sample.delivered};
}

// Round trips in this round were longer than an empty link makes them.
bool Bbr::has_queue() const {
  const Duration shortest = minimum_rtt_.get();
  if (congestion_.shortest_rtt == Duration::max()) return false;  // there was none
  return congestion_.shortest_rtt > shortest + std::max<Duration>(shortest / kQueuePart, kOwnQueue);
}

// Few losses without a queue are losses at random. To answer those would halve the rate in two seconds of 1 % loss.
void Bbr::lower_bounds(bool is_congested) {
  const bool has_losses = congestion_.lost != 0 && is_congested;
  if (!has_losses && congestion_.marked == 0) return;
  if (bounds_.low == CongestionBounds::kNone) bounds_.low = window_;
  if (has_losses) {
    loss_rate_.start_over();
    if (bounds_.rate == CongestionBounds::kNone) bounds_.rate = maximum_rate_.get();
    bounds_.rate = std::max(congestion_.rate, scaled(bounds_.rate, kBeta));
    bounds_.low = std::max(congestion_.delivered, scaled(bounds_.low, kBeta));
  }
  if (congestion_.marked != 0) bounds_.low = scaled(bounds_.low, 1 - kMarkFactor * marked_part_);
}

void Bbr::on_persistent_congestion(Instant) {
  window_ = minimum_window();
  losses_to_refute_ = 0;
}

void Bbr::on_spurious_loss(std::uint32_t packets, Instant) {
  if (losses_to_refute_ == 0) return;
  losses_to_refute_ -= std::min(losses_to_refute_, packets);
  if (losses_to_refute_ != 0) return;
  bounds_.raise_to(bounds_before_);
  window_ = std::max(window_, window_before_);
  congestion_.lost = 0;
  loss_rate_.start_over();
  const Phase before = std::exchange(phase_before_, Phase::cruise);
  if (phase_ == Phase::probe_rtt) {
    is_filled_ &= before != Phase::startup;
  } else if (before == Phase::startup && phase_ != Phase::startup) {
    enter_startup();
  } else if (before == Phase::up && phase_ != Phase::up) {
    start_refill();
  }
}

// ---- phases ----

void Bbr::enter_startup() {
  phase_ = Phase::startup;
  is_filled_ = false;
  pipe_.start_over(0);
}

// The rate is found.
void Bbr::fill(bool because_of_loss) {
  is_filled_ = true;
  pipe_.set_full();
  if (because_of_loss) {
    loss_rate_.start_over();
    bounds_.high = std::max(bandwidth_delay(maximum_rate_.get(), 1), congestion_.delivered);
    phase_before_ = Phase::startup;
  }
  phase_ = Phase::drain;
  rounds_ = 0;
}

void Bbr::start_down(Instant now) {
  congestion_ = {.ends_at = history_.delivered()};
  rounds_ = static_cast<std::uint32_t>(random_.below(2));
  probe_wait_ = kProbeWait + Duration(static_cast<std::int64_t>(
                                 random_.below(static_cast<std::uint64_t>(Duration(kProbeWaitSpread).count()))));
  cycle_began_at_ = now;
  probe_ = Probe::stopping;
  round_ends_at_ = history_.delivered();
  phase_ = Phase::down;
}

void Bbr::start_refill() {
  bounds_.forget_short_term();
  raise_rounds_ = 0;
  raise_acked_ = 0;
  probe_ = Probe::none;
  round_ends_at_ = history_.delivered();
  phase_ = Phase::refill;
}

void Bbr::start_up(const DeliverySample& sample) {
  is_probe_sample_ = true;
  probe_ = Probe::starting;
  round_ends_at_ = history_.delivered();
  pipe_.start_over(sample.rate);
  raise_interval_ = std::max(window_, mtu_);
  phase_ = Phase::up;
}

bool Bbr::is_time_to_probe(Instant now) const {
  const std::uint64_t reno_rounds = std::clamp(target_in_flight() / mtu_, kLeastProbeRounds, kMostProbeRounds);
  return now - cycle_began_at_ > probe_wait_ || rounds_ >= reno_rounds;
}

void Bbr::advance(const Step& step) {
  if (is_filled_) adapt_long_term(step);
  switch (phase_) {
    case Phase::startup:
      if (pipe_.is_full()) fill(false);
      break;
    case Phase::drain:
      if (in_flight_ <= in_flight_at(maximum_rate_.get(), 1) || rounds_ > kDrainRounds) start_down(step.now);
      break;
    case Phase::down:
      if (is_time_to_probe(step.now)) {
        start_refill();
      } else if (in_flight_ <= std::min(high_with_headroom(), in_flight_at(maximum_rate_.get(), 1))) {
        phase_ = Phase::cruise;
      }
      break;
    case Phase::cruise:
      if (is_time_to_probe(step.now)) start_refill();
      break;
    case Phase::refill:
      if (step.is_round_start) start_up(step.sample);
      break;
    case Phase::up:
      if (is_window_limited() && window_ >= bounds_.high) {
        pipe_.start_over(step.sample.rate);  // the bound limits the rate, not the path
      } else if (pipe_.is_full()) {
        start_down(step.now);
      }
      break;
    case Phase::probe_rtt:
      break;
  }
}

void Bbr::adapt_long_term(const Step& step) {
  const DeliverySample& sample = step.sample;
  if (probe_ == Probe::starting && step.is_round_start) probe_ = Probe::feedback;
  if (probe_ == Probe::stopping && step.is_round_start) {
    is_probe_sample_ = false;
    probe_ = Probe::none;
    if (is_cycling() && !sample.is_app_limited) maximum_rate_.advance();
  }
  if (!sample.is_known || bounds_.high == CongestionBounds::kNone) return;
  if (is_too_much(sample)) return;
  bounds_.high = std::max(bounds_.high, sample.in_flight);
  if (phase_ == Phase::up) raise_high(step);
}

// Slowly at first, twice as fast in each round.
void Bbr::raise_high(const Step& step) {
  if (!is_window_limited() || window_ < bounds_.high) return;
  raise_acked_ += step.acked;
  if (raise_acked_ >= raise_interval_) {
    bounds_.high += raise_acked_ / raise_interval_ * mtu_;
    raise_acked_ %= raise_interval_;
  }
  if (!step.is_round_start) return;
  raise_rounds_ = std::min(raise_rounds_ + 1, kMostRaiseRounds);
  raise_interval_ = std::max(window_ >> raise_rounds_, mtu_);
}

void Bbr::check_probe_rtt(const Step& step) {
  if (phase_ != Phase::probe_rtt && minimum_rtt_.is_probe_due() && !is_idle_restart_) {
    phase_ = Phase::probe_rtt;
    window_before_probe_ = window_;
    probe_ = Probe::stopping;
    probe_rtt_until_ = Instant::never();
    round_ends_at_ = history_.delivered();
  }
  if (phase_ == Phase::probe_rtt) {
    history_.on_app_limited(in_flight_);  // the rate is low on purpose
    if (probe_rtt_until_.is_never()) {
      if (in_flight_ <= probe_rtt_window()) {
        probe_rtt_until_ = step.now + kProbeRttTime;
        probe_rtt_round_done_ = false;
        round_ends_at_ = history_.delivered();
      }
    } else {
      probe_rtt_round_done_ |= step.is_round_start;
      if (probe_rtt_round_done_ && step.now > probe_rtt_until_) leave_probe_rtt(step.now);
    }
  }
  is_idle_restart_ = false;
}

void Bbr::leave_probe_rtt(Instant now) {
  minimum_rtt_.on_probed(now);
  window_ = std::max(window_, window_before_probe_);
  bounds_.forget_short_term();
  if (!is_filled_) return enter_startup();
  start_down(now);
  phase_ = Phase::cruise;
}

// ---- what follows from the model ----

void Bbr::update_limits(std::uint64_t acked) {
  const bool rests = in_flight_ == 0 && history_.is_app_limited() && is_cycling();  // there is no queue to be seen
  const std::uint64_t paced = scaled(rate(), (rests ? 1 : gains().pacing) * kPacingMargin);
  if (is_filled_ || paced > pacing_rate_) pacing_rate_ = std::max<std::uint64_t>(paced, 1);

  const std::uint64_t most = most_in_flight();
  if (is_filled_) {
    window_ = std::min(window_ + acked, most);
  } else if (window_ < most || history_.delivered() < initial_window_) {
    window_ += acked;
  }
  std::uint64_t bound = std::min(bounds_.low, largest_window_);
  if (phase_ == Phase::cruise || phase_ == Phase::probe_rtt) {
    bound = std::min(bound, high_with_headroom());
  } else if (is_cycling()) {
    bound = std::min(bound, bounds_.high);
  }
  if (phase_ == Phase::probe_rtt) bound = std::min(bound, probe_rtt_window());
  window_ = std::max(std::min(window_, bound), minimum_window());
}

}  // namespace weir::recovery
