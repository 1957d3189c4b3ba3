// Slow start, then additive increase and multiplicative decrease, with at most one decrease per round trip
// (docs/protocol.md, rules N-1 to N-5 and A-10).
#pragma once

#include <cstdint>

#include "recovery/congestion.h"

namespace weir::recovery {

class WindowController final : public CongestionController {
 public:
  struct Options {
    std::uint32_t mtu = 1'200;
    std::uint64_t initial_window = 64 * 1024;  // at least ten packets
    std::uint32_t largest_window = 64 * 1024 * 1024;
  };
  static constexpr std::uint64_t kMinimumPackets = 2;
  static constexpr std::uint64_t kInitialPackets = 10;

  WindowController() : WindowController(Options{}) {}
  explicit WindowController(Options options);

  void on_sent(std::uint64_t bytes, std::uint64_t in_flight, Instant now) override;
  void on_acked(const AckedBatch& batch, Instant now) override;
  void on_lost(const LostBatch& batch, Instant now) override;
  void on_ecn_ce(std::uint64_t count, Instant largest_sent_at, Instant now) override;
  void on_persistent_congestion(Instant now) override;
  void on_spurious_loss(std::uint32_t packets, Instant now) override;
  void on_app_limited(std::uint64_t) override {}  // what is in flight says so
  void set_mtu(std::uint32_t mtu) override;

  std::uint64_t window() const override { return window_; }
  std::uint64_t pacing_rate() const override;
  bool in_slow_start() const override { return window_ < threshold_; }
  std::uint32_t mtu() const { return mtu_; }

 private:
  std::uint64_t minimum_window() const { return kMinimumPackets * std::uint64_t{mtu_}; }
  // False if this signal belongs to a reduction already made.
  bool reduce(Instant sent_at, Instant now);

  std::uint32_t mtu_;
  std::uint32_t largest_window_;
  std::uint64_t window_;
  std::uint64_t threshold_ = ~std::uint64_t{0};
  std::uint64_t acked_in_round_ = 0;  // towards the next additive step
  std::uint64_t peak_in_flight_ = 0;  // since the last acknowledgement
  Instant recovery_start_{-1};        // signals about packets sent up to here were answered
  std::uint64_t smoothed_rtt_ns_ = 0;
  // To undo a reduction all of whose losses turn out to be spurious. Reductions that follow each other closely, before
  // the first is refuted, are undone together.
  static constexpr std::int64_t kRefutable = 8;  // round trips
  std::uint64_t window_before_ = 0;
  std::uint64_t threshold_before_ = 0;
  std::uint32_t losses_to_refute_ = 0;
};

}  // namespace weir::recovery
