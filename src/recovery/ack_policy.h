// When an acknowledgement must go (docs/protocol.md, rule A-2). It may always ride along with something else: ask
// wanted() when a packet is built, and call on_ack_sent() if one was put in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "recovery/short_duration.h"

namespace weir::recovery {

// One per path; single-threaded.
class AckPolicy {
 public:
  struct Options {
    Duration max_ack_delay = std::chrono::milliseconds{1};
  };
  static constexpr std::uint32_t kPacketsPerAck = 16;        // so many ack-eliciting packets are acknowledged at once
  static constexpr std::uint32_t kBytesPerAck = 192 * 1024;  // or so many bytes: few large packets fill a window, too
  // From so many on they are acknowledged soon: more may be on its way, but some windows are no larger.
  static constexpr std::uint32_t kSoonBytes = 48 * 1024;
  static constexpr Duration kSoon = std::chrono::microseconds{32};
  // Where packets overtake each other, a gap is reported so much later: mostly it is filled by then.
  static constexpr Duration kGapDelay = std::chrono::microseconds{250};
  static constexpr std::uint8_t kMostOvertaken = 64;
  // An acknowledgement waits for half of a round trip at most, but for so long at least: a reply may be on its way.
  static constexpr Duration kShortestDelay = std::chrono::microseconds{50};

  AckPolicy() : AckPolicy(Options{}) {}
  explicit AckPolicy(Options options) : delay_(options.max_ack_delay), max_ack_delay_(options.max_ack_delay) {}

  // The delay follows the round trip. A sender whose window holds few packets sends nothing until they are
  // acknowledged.
  void on_round_trip(Duration smoothed) { delay_ = delay_at(smoothed, max_ack_delay_); }
  static Duration delay_at(Duration smoothed, Duration most) {
    return std::min<Duration>(std::max<Duration>(smoothed / 2, kShortestDelay), most);
  }

  // Every authenticated packet that was not received before. An ack-eliciting one is acknowledged at once if it
  // leaves or fills a gap, or carries a congestion mark that the one before it did not: the sender reacts to both.
  // (What was lost comes again under another number, so only packets that were overtaken fill gaps. Where they do, the
  // sender waits before it takes a gap for a loss.)
  void on_received(std::uint64_t number, std::size_t bytes, bool ack_eliciting, bool congestion_experienced,
                   Instant now) {
    Instant gap_at = Instant::never();  // when it is reported
    if (number != next_) [[unlikely]]
      gap_at = now + gap(number);
    if (number >= next_) next_ = number + 1;
    const bool newly_marked = congestion_experienced && !marked_;
    marked_ = congestion_experienced;
    if (!ack_eliciting) return;
    if (eliciting_++ == 0) deadline_ = now + delay_;
    eliciting_bytes_ += static_cast<std::uint32_t>(bytes);
    if (newly_marked || eliciting_ >= kPacketsPerAck || eliciting_bytes_ >= kBytesPerAck) {
      deadline_ = earliest(deadline_, now);
    } else if (eliciting_bytes_ >= kSoonBytes) {
      deadline_ = earliest(deadline_, now + kSoon);
    }
    if (!gap_at.is_never()) [[unlikely]]
      deadline_ = earliest(deadline_, gap_at);
  }

  void on_ack_sent() {
    eliciting_ = 0;
    eliciting_bytes_ = 0;
    deadline_ = Instant::never();
  }

  // Something ack-eliciting has not been acknowledged yet.
  bool wanted() const { return eliciting_ != 0; }
  bool due(Instant now) const { return deadline_ <= now; }
  // never() if nothing is owed; not later than the present if an acknowledgement must go at once.
  Instant deadline() const { return deadline_; }
  std::uint32_t unacknowledged() const { return eliciting_; }
  Duration max_ack_delay() const { return max_ack_delay_; }

 private:
  // A packet that leaves or fills a gap. How soon that is reported.
  Duration gap(std::uint64_t number) {
    const bool is_usual = overtaken_ != 0;
    if (number < next_) {
      overtaken_ = std::min<std::uint8_t>(kMostOvertaken, overtaken_ + kMostOvertaken / 4);
    } else if (is_usual) {
      --overtaken_;
    }
    return is_usual ? kGapDelay : Duration{0};
  }

  ShortDuration delay_;
  ShortDuration max_ack_delay_;
  std::uint64_t next_ = 0;
  Instant deadline_ = Instant::never();
  std::uint32_t eliciting_ = 0;
  std::uint32_t eliciting_bytes_ = 0;  // at most some packets beyond kBytesPerAck
  std::uint8_t overtaken_ = 0;         // so many gaps are taken for packets that were overtaken
  bool marked_ = false;
};

}  // namespace weir::recovery
