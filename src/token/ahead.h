// Ahead: how far ahead of its bytes one sender is given memory (docs/protocol.md, rule G-3).
//
// Memory that is granted long before it is written is kept from others, and is in no cache any more when it is written.
// So of each purse and priority only so many bytes are asked for that the sender is never without a region to write
// into; its other messages wait here, in the order in which they came.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/check.h"
#include "base/time.h"
#include "token/grant_ledger.h"

namespace weir::token {

// One per path, single-threaded. Links asks, owns none.
class Ahead {
 public:
  static constexpr std::uint64_t kDefaultBytes = 16u << 20;
  // Beyond that: what comes within so many round trips. It grows by as much when it is what holds the sender up.
  static constexpr std::uint64_t kRoundTrips = 4;

  explicit Ahead(std::uint64_t least_bytes) : least_(least_bytes) {}

  // True: it may be asked for now, and is counted until leave(). False: it waits here.
  [[nodiscard]] bool enter(Ask& ask) {
    Line& line = line_of(ask);
    if (line.first == nullptr && admits(line, ask)) {
      count(line, ask);
      return true;
    }
    ask.place = Ask::Place::held;
    ask.next = nullptr;
    ask.previous = line.last;
    (line.last != nullptr ? line.last->next : line.first) = &ask;
    line.last = &ask;
    ++held_;
    return false;
  }

  // All of it has come, its memory was taken back, or it is not wanted any more. Of one that is not here: nothing.
  void leave(Ask& ask) {
    Line& line = line_of(ask);
    if (ask.place == Ask::Place::held) {
      (ask.previous != nullptr ? ask.previous->next : line.first) = ask.next;
      (ask.next != nullptr ? ask.next->previous : line.last) = ask.previous;
      ask.next = ask.previous = nullptr;
      ask.place = Ask::Place::nowhere;
      --held_;
    } else if (ask.is_ahead) {
      ask.is_ahead = false;
      line.bytes -= ask.bytes;
    }
  }

  // One that has waited long enough; it is counted now. Null: there is none.
  [[nodiscard]] Ask* next() {
    if (held_ == 0) return nullptr;
    for (Line& line : lines_) {
      if (line.first == nullptr || !admits(line, *line.first)) continue;
      Ask& ask = *line.first;
      leave(ask);
      count(line, ask);
      return &ask;
    }
    return nullptr;
  }

  // A message has come.
  void on_arrived(std::uint64_t bytes, Duration round_trip, Instant now) {
    constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36;  // so that the product below does not overflow
    came_ = std::min(came_ + bytes, kMostBytes);
    const Duration took = now - since_;
    if (took < round_trip || took <= Duration{}) return;
    const auto us = [](Duration d) { return static_cast<std::uint64_t>(d / std::chrono::microseconds(1)) + 1; };
    constexpr std::uint64_t kLongest = 1u << 24;  // us
    most_ = std::max(least_, kRoundTrips * came_ / us(took) * std::min(us(round_trip), kLongest));
    came_ = 0;
    since_ = now;
  }

  std::uint64_t held() const { return held_; }
  std::uint64_t most() const { return most_; }

 private:
  struct Line {
    Ask* first = nullptr;  // that waits here
    Ask* last = nullptr;
    std::uint64_t bytes = 0;  // that were asked for and have not come
  };

  Line& line_of(const Ask& ask) { return lines_[ask.purse * kGrantPriorities + ask.priority]; }
  // Of messages of one size there are always two, so that one is written while the grant of the next is on its way.
  bool admits(const Line& line, const Ask& ask) const {
    return line.bytes <= ask.bytes || line.bytes + ask.bytes <= most_;
  }
  static void count(Line& line, Ask& ask) {
    WEIR_CHECK(!ask.is_ahead, "an ask is counted once");
    ask.is_ahead = true;
    line.bytes += ask.bytes;
  }

  std::array<Line, kPurses * kGrantPriorities> lines_{};
  std::uint64_t held_ = 0;
  std::uint64_t least_;
  std::uint64_t most_ = least_;
  std::uint64_t came_ = 0;  // since then:
  Instant since_{};
};

}  // namespace weir::token
