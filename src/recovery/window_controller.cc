#include "recovery/window_controller.h"

#include <algorithm>

namespace weir::recovery {

WindowController::WindowController(Options options)
    : mtu_(options.mtu),
      largest_window_(options.largest_window),
      window_(std::min<std::uint64_t>(std::max(options.initial_window, kInitialPackets * options.mtu),
                                      options.largest_window)) {}

void WindowController::on_sent(std::uint64_t, std::uint64_t in_flight, Instant) {
  peak_in_flight_ = std::max(peak_in_flight_, in_flight);
}

void WindowController::on_acked(const AckedBatch& batch, Instant) {
  smoothed_rtt_ns_ = static_cast<std::uint64_t>(batch.smoothed_rtt.count());
  const std::uint64_t used = std::max(peak_in_flight_, batch.in_flight_before);
  peak_in_flight_ = batch.in_flight_before - std::min(batch.in_flight_before, batch.bytes);
  if (batch.largest_sent_at <= recovery_start_) return;
  // A window that is not used says nothing about the path: half of it suffices while it still doubles each round.
  if (in_slow_start()) {
    if (used < window_ / 2) return;
    window_ += batch.bytes;
  } else {
    if (used < window_ - window_ / 4) return;
    acked_in_round_ += batch.bytes;
    if (acked_in_round_ < window_) return;
    acked_in_round_ -= window_;
    window_ += mtu_;
  }
  window_ = std::min(window_, std::max<std::uint64_t>(largest_window_, minimum_window()));
}

bool WindowController::reduce(Instant sent_at, Instant now) {
  if (sent_at <= recovery_start_) return false;
  const auto refutable = Duration{static_cast<std::int64_t>(smoothed_rtt_ns_) * kRefutable};
  if (losses_to_refute_ == 0 || now - recovery_start_ > refutable) {
    losses_to_refute_ = 0;
    window_before_ = window_;
    threshold_before_ = threshold_;
  }
  recovery_start_ = now;
  window_ = std::max(window_ * 7 / 10, minimum_window());
  threshold_ = window_;
  acked_in_round_ = 0;
  return true;
}

void WindowController::on_lost(const LostBatch& batch, Instant now) {
  if (batch.packets == 0) return;
  if (reduce(batch.largest_sent_at, now)) {
    losses_to_refute_ += batch.packets;
  } else if (losses_to_refute_ != 0) {
    losses_to_refute_ += batch.packets;
  }
}

void WindowController::on_ecn_ce(std::uint64_t count, Instant largest_sent_at, Instant now) {
  if (count != 0 && reduce(largest_sent_at, now)) losses_to_refute_ = 0;
}

void WindowController::on_persistent_congestion(Instant) {
  window_ = minimum_window();
  recovery_start_ = Instant{-1};
  acked_in_round_ = 0;
  losses_to_refute_ = 0;
}

void WindowController::on_spurious_loss(std::uint32_t packets, Instant) {
  if (losses_to_refute_ == 0) return;
  if (packets < losses_to_refute_) {
    losses_to_refute_ -= packets;
    return;
  }
  losses_to_refute_ = 0;
  window_ = std::max(window_, window_before_);
  threshold_ = std::max(threshold_, threshold_before_);
}

void WindowController::set_mtu(std::uint32_t mtu) {
  mtu_ = mtu;
  window_ = std::max(window_, minimum_window());
}

std::uint64_t WindowController::pacing_rate() const {
  if (smoothed_rtt_ns_ == 0) return 0;
  constexpr std::uint64_t kNsPerS = 1'000'000'000;
  const auto per_s = static_cast<unsigned __int128>(window_) * kNsPerS / smoothed_rtt_ns_;
  // Faster than one window per round trip, so that pacing itself never keeps the window from filling.
  return static_cast<std::uint64_t>(in_slow_start() ? per_s * 2 : per_s * 5 / 4) + 1;
}

}  // namespace weir::recovery
