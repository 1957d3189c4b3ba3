// How much of what a path sent was delivered by when: what delivery rates are computed from (docs/protocol.md, rule
// N-18).
//
// Marks are set some times per round trip, when something is acknowledged, and not per packet: a packet that was sent
// between two marks belongs to the earlier one. So a packet costs one comparison, and its record has nothing of this.
// The rate that a packet shows is what was delivered since its mark, over the longer of two times: that in which it was
// acknowledged, and that in which it was sent. The mark says exactly what had been delivered when it was set, so a
// rate over more than a round trip is as true as one over a round trip. It is computed over least_time() at least:
// links let bursts through, and hosts hand packets on in bursts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace weir::recovery {

inline std::uint64_t bytes_per_s(std::uint64_t bytes, Duration time) {
  constexpr std::uint64_t kNsPerS = 1'000'000'000;
  const auto ns = static_cast<std::uint64_t>(std::max<Duration>(time, Duration{1}).count());
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bytes) * kNsPerS / ns);
}

inline std::uint64_t bytes_in(Duration time, std::uint64_t bytes_per_s) {
  constexpr std::uint64_t kNsPerS = 1'000'000'000;
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(time.count()) * bytes_per_s / kNsPerS);
}

// What the acknowledgement or the loss of a packet says about the time since it was sent.
struct DeliverySample {
  bool is_known = false;               // the packet is not older than the marks
  bool is_app_limited = false;         // not the network, but who sends kept the rate low
  std::uint64_t rate = 0;              // bytes per second; 0: not known
  std::uint64_t delivered = 0;         // bytes, since
  std::uint64_t lost = 0;              // bytes, since
  std::uint64_t delivered_before = 0;  // bytes in all, when it was sent
  std::uint64_t in_flight = 0;         // bytes, when it was sent
};

// One per modelled path; single-threaded.
class DeliveryHistory {
 public:
  static constexpr std::size_t kMarks = 32;
  static constexpr std::int64_t kMarksPerRoundTrip = 8;
  static constexpr Duration kLeastTime = std::chrono::milliseconds(2);
  static constexpr std::uint64_t kLeastBytes = 256 * 1024;  // where these take less time that is enough

  // What is in flight was sent at `began_at` or later.
  DeliveryHistory(Instant began_at, std::uint64_t in_flight) {
    marks_[0] = {.at = began_at, .sent_at = began_at, .in_flight = in_flight};
  }

  std::uint64_t delivered() const { return delivered_; }
  Duration least_time() const { return least_time_; }
  // `rate`: of the path, in bytes per second.
  void set_rate(std::uint64_t rate) {
    constexpr std::uint64_t kNsPerS = 1'000'000'000;
    if (rate != 0) least_time_ = std::min<Duration>(kLeastTime, Duration(kLeastBytes * kNsPerS / rate));
  }
  // Something that was not limited by the path's controller is in flight, or was sent last.
  bool is_app_limited() const { return app_limited_until_ != 0 && delivered_ <= app_limited_until_; }

  // `in_flight` includes these bytes.
  void on_sent(std::uint64_t bytes, std::uint64_t in_flight, Instant now) {
    // A rate over a time without anything to send would be too low.
    if (in_flight == bytes && is_app_limited()) push({.at = now, .sent_at = now, .begins_anew = true});
    newest().in_flight = std::max(newest().in_flight, in_flight);
  }

  // Nothing is left to send, or something else than the path's controller holds it back.
  void on_app_limited(std::uint64_t in_flight) {
    app_limited_until_ = std::max<std::uint64_t>(delivered_ + in_flight, 1);
    newest().is_app_limited = true;
  }

  // `sent_at`: of the latest of the packets. mark() should follow.
  DeliverySample on_acked(std::uint64_t bytes, Instant sent_at, Instant now);
  // What these packets show with those lost before; without a rate.
  DeliverySample on_lost(std::uint64_t bytes, Instant sent_at);

  // Sets a mark if the last one is old, or `is_due` in any case.
  void mark(Duration round_trip, bool is_due, Instant now) {
    if (!is_due && now - newest().at < std::max(round_trip, least_time_) / kMarksPerRoundTrip) return;
    push({.at = now, .sent_at = acked_sent_at_});
  }

 private:
  static constexpr std::uint64_t kNoMark = ~std::uint64_t{0};
  struct Mark {
    Instant at{};
    Instant sent_at{};  // of the latest packet that had been acknowledged
    std::uint64_t delivered = 0;
    std::uint64_t lost = 0;
    std::uint64_t in_flight = 0;  // at most, until the next mark
    bool is_app_limited = false;
    bool begins_anew = false;  // nothing was in flight, because there was nothing to send
  };

  Mark& newest() { return marks_[(count_ - 1) % kMarks]; }
  void push(Mark mark);
  // Where the mark of a packet is, counted from the first mark ever; fills in what it says. kNoMark: nowhere.
  std::uint64_t find(Instant sent_at, DeliverySample& sample) const;
  std::uint64_t oldest() const { return count_ - std::min<std::uint64_t>(count_, kMarks); }

  std::array<Mark, kMarks> marks_;
  std::uint64_t count_ = 1;  // of marks, ever
  std::uint64_t delivered_ = 0;
  std::uint64_t lost_ = 0;
  std::uint64_t app_limited_until_ = 0;  // so many bytes are delivered
  Instant acked_sent_at_{};
  Duration least_time_ = kLeastTime;
};

}  // namespace weir::recovery
