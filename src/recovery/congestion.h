// How much may be in flight on one path, and how fast it may leave (docs/protocol.md, rules N-1 to N-5). One virtual
// call per packet sent and per acknowledgement: nothing here is paid per frame or per acknowledged packet.
#pragma once

#include <cstdint>

#include "base/time.h"

namespace weir::recovery {

struct AckedBatch {
  std::uint64_t bytes = 0;
  std::uint64_t in_flight_before = 0;  // before these bytes left flight
  std::uint64_t in_flight = 0;         // now
  Instant largest_sent_at{};           // of the largest packet newly acknowledged
  Duration smoothed_rtt{};
  Duration prompt_rtt{};  // a sample, without the time for which the peer says that it waited; zero: there is none
};

struct LostBatch {
  std::uint64_t bytes = 0;
  std::uint32_t packets = 0;
  std::uint32_t events = 0;   // runs of packets with consecutive numbers
  Instant largest_sent_at{};  // of the latest packet lost
};

// One per path; single-threaded.
class CongestionController {
 public:
  virtual ~CongestionController() = default;

  // `in_flight` includes these bytes. Growth is withheld while the application does not fill the window.
  virtual void on_sent(std::uint64_t bytes, std::uint64_t in_flight, Instant now) = 0;
  virtual void on_acked(const AckedBatch& batch, Instant now) = 0;
  virtual void on_lost(const LostBatch& batch, Instant now) = 0;
  // `count` packets more than before arrived with a congestion mark, reported by an acknowledgement whose largest
  // packet was sent at `largest_sent_at`.
  virtual void on_ecn_ce(std::uint64_t count, Instant largest_sent_at, Instant now) = 0;
  virtual void on_persistent_congestion(Instant now) = 0;
  // So many of the packets reported lost arrived after all.
  virtual void on_spurious_loss(std::uint32_t packets, Instant now) = 0;
  // Nothing is left to send, or something else than this controller holds it back.
  virtual void on_app_limited(std::uint64_t in_flight) = 0;
  virtual void set_mtu(std::uint32_t mtu) = 0;

  // Bytes that may be in flight.
  virtual std::uint64_t window() const = 0;
  // Bytes per second; 0 means that pacing is off (nothing is known about the path yet).
  virtual std::uint64_t pacing_rate() const = 0;
  virtual bool in_slow_start() const = 0;

  bool may_send(std::uint64_t in_flight) const { return in_flight < window(); }
};

}  // namespace weir::recovery
