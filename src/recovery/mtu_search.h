// Path MTU by probing, after RFC 8899 (docs/protocol.md, rules M-1 to M-5). Sizes are UDP payload bytes.
//
// The search climbs a ladder of sizes that real links have. When a rung fails it first asks whether anything a little
// above the present size gets through, which is mostly not so and ends the search; if it does, the rest is bisected.
#pragma once

#include <cstdint>
#include <optional>

#include "base/time.h"

namespace weir::recovery {

// One per path; single-threaded.
class MtuSearch {
 public:
  struct Options {
    std::uint32_t base = 1'200;  // assumed to pass everywhere
    std::uint32_t maximum = 65'507;
    bool v6 = false;  // 20 bytes more of IP header on every rung
    Duration raise_interval = std::chrono::minutes{10};
  };
  static constexpr std::uint32_t kProbesPerSize = 3;
  static constexpr std::uint32_t kGranularity = 16;
  static constexpr std::uint32_t kBlackHoleLosses = 6;
  static constexpr std::uint32_t kBlackHoleRounds =
      3;                                              // so many times in a row, with small packets acknowledged between
  static constexpr std::uint32_t kVerifications = 5;  // probes of the present size, all lost: then it is a black hole
  static constexpr Duration kFirstVerification = std::chrono::milliseconds{2};  // between them; doubled each time
  static constexpr Duration kBlackHoleHold = std::chrono::seconds{1};

  MtuSearch() : MtuSearch(Options{}) {}
  explicit MtuSearch(Options options);

  // The largest size known to pass.
  std::uint32_t current() const { return current_; }
  bool searching() const { return target_ != 0; }
  // Whether the present size still passes: a black hole is suspected.
  bool verifying() const { return verifying_; }

  // The size to probe now, if any. One probe is in flight at a time.
  std::optional<std::uint32_t> next_probe(Instant now);
  void on_probe_sent(std::uint32_t size, Instant now);
  // True if current() grew.
  bool on_probe_acked(std::uint32_t size, Instant now);
  // True if current() fell back to the base.
  bool on_probe_lost(std::uint32_t size, Instant now);
  // The local system refused to send it: no need to try again.
  void on_probe_refused(std::uint32_t size, Instant now);

  // Another way through the network: back to the base.
  void start_over(Instant now) {
    current_ = base_;
    forget_losses();
    start(now);
  }

  // Ordinary packets. Losses count towards a black hole only if no larger-than-base packet with a higher number was
  // acknowledged and no small packet was lost among them, that is if only small packets pass. A burst that overflows a
  // queue or socket is one round of losses: large packets that are sent after it was acknowledged in part must be lost,
  // too. Congestion can do all that, to packets that fill a queue. So it is a suspicion only, and probes of the present
  // size decide. Each is lost for certain only when a packet that was sent later has arrived, and that was a small one,
  // as the suspicion ends with the first large packet that arrives, whatever it carries.
  void on_packet_acked(std::uint64_t number, std::uint32_t size, Instant now);
  void on_packet_lost(std::uint64_t number, std::uint32_t size, Instant now);

  // When next_probe() has something; never() while a probe is in flight.
  Instant deadline() const { return in_flight_ ? Instant::never() : probe_at_; }

 private:
  void start(Instant now);
  void forget_losses() {
    large_losses_ = loss_rounds_ = 0;
    verifying_ = false;
  }
  void choose_target(Instant now);
  void fail_target(Instant now);
  std::uint32_t next_rung() const;

  using Seconds = std::chrono::duration<std::uint32_t>;

  std::uint32_t base_;     // these three, and is_v6_: Options
  std::uint32_t maximum_;  // at least the base
  Seconds raise_interval_;
  std::uint32_t current_;
  std::uint32_t failed_;      // the smallest size that did not pass; maximum + 1 if none
  std::uint32_t target_ = 0;  // 0: the search is complete
  Instant probe_at_{};
  std::uint64_t newest_large_acked_ = 0;  // number + 1
  std::uint64_t newest_small_acked_ = 0;  // the same
  std::uint64_t round_end_ = 0;           // a loss of this number or a higher one begins a new round
  // None of these counts goes beyond its bound above.
  std::uint8_t attempts_ = 0;
  std::uint8_t large_losses_ = 0;
  std::uint8_t loss_rounds_ = 0;
  std::uint8_t verifications_lost_ = 0;
  bool is_v6_;
  bool in_flight_ = false;
  bool bisecting_ = false;
  bool verifying_ = false;
};

}  // namespace weir::recovery
