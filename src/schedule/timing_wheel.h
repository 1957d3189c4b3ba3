// Hierarchical timing wheel with intrusive timers.
//
// A tick is a power of two of nanoseconds. Level k has 64 slots of 64^k ticks each. A timer lives at the level of the
// highest 6-bit group in which its tick differs from the current one, so everything at a lower level is due before
// anything at a higher one, and no slot ever holds two rounds. Nine levels cover every Instant: nothing is clamped.
// A timer's tick is rounded up, so it never fires before its time and at most one tick after it.
//
// Arming and cancelling are paid once per call and touch only the timer, its neighbours and one word per level.
// Cancelling leaves the slot's bit set; scans find the empty slot and clear it, which each arming pays for once.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "base/time.h"

namespace weir::schedule {

struct TimerLink {
  TimerLink* next = nullptr;
  TimerLink* previous = nullptr;
};

// Embedded in what it times. Its address must not change while it is armed.
struct Timer : TimerLink {
  Instant at{};
  std::uint32_t tag = 0;  // the owner's kind, untouched by the wheel

  bool armed() const { return next != nullptr; }
};

// Owns no timers, only the lists that link them. One per engine; only the engine's thread may call it.
class TimingWheel {
 public:
  static constexpr Duration kDefaultTick{4'096};
  static constexpr Duration kShortestTick{1'024};

  // `tick` is rounded up to a power of two, at least kShortestTick.
  explicit TimingWheel(Duration tick = kDefaultTick, Instant start = {});
  TimingWheel(const TimingWheel&) = delete;
  TimingWheel& operator=(const TimingWheel&) = delete;

  // Arms or re-arms. Instant::never() cancels. A time that has passed fires at the next advance().
  void arm(Timer& timer, Instant at) {
    if (timer.armed()) cancel(timer);
    timer.at = at;
    if (at.is_never()) [[unlikely]]
      return;
    ++size_;
    place(timer);
  }

  // Harmless if the timer is not armed.
  void cancel(Timer& timer) {
    if (!timer.armed()) return;
    unlink(timer);
    --size_;
  }

  // Calls fire(Timer&) for every timer that is due, in order of ticks and, within one tick, of arming. The timer is no
  // longer armed when its call begins. The callback may arm and cancel any timer; what it arms for a time that has
  // passed fires at the next advance(), so one call is bounded by what was due when it began. It must not advance.
  template <class Fire>
  void advance(Instant now, Fire&& fire) {
    const std::uint64_t target = tick_before(now);
    if (!collect(target)) return;
    while (firing_.next != &firing_) {
      auto& timer = static_cast<Timer&>(*firing_.next);
      unlink(timer);
      --size_;
      fire(timer);
    }
  }

  // When advance() has something to do next: never() if nothing is armed; the exact firing time if it is within the
  // lowest level or its slot holds few timers; otherwise the start of its slot, when the slot's timers move down a
  // level. Advancing to the returned instant always makes progress, so waiting on it cannot spin.
  Instant next_deadline() const;

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Duration tick() const { return Duration{std::int64_t{1} << shift_}; }

 private:
  static constexpr unsigned kSlotBits = 6;
  static constexpr unsigned kSlots = 1U << kSlotBits;
  static constexpr unsigned kLevels = 9;  // 9 * 6 bits of ticks of 2^10 ns or more cover all 63 bits of an Instant
  static constexpr unsigned kExactScan = 8;

  struct Found {
    unsigned level;
    unsigned slot;
    std::uint64_t start;  // first tick of the slot
  };

  std::uint64_t tick_before(Instant at) const { return at.ns < 0 ? 0 : static_cast<std::uint64_t>(at.ns) >> shift_; }
  std::uint64_t tick_after(Instant at) const {
    if (at.ns < 0) [[unlikely]]
      return 0;
    const auto ns = static_cast<std::uint64_t>(at.ns);
    return (ns + ((std::uint64_t{1} << shift_) - 1)) >> shift_;
  }

  static void append(TimerLink& list, TimerLink& link) {
    link.next = &list;
    link.previous = list.previous;
    list.previous->next = &link;
    list.previous = &link;
  }
  static void unlink(TimerLink& link) {
    link.previous->next = link.next;
    link.next->previous = link.previous;
    link.next = nullptr;
  }

  void place(Timer& timer) {
    const std::uint64_t tick = tick_after(timer.at);
    if (tick <= current_) [[unlikely]] {
      append(due_, timer);
      return;
    }
    const unsigned level = static_cast<unsigned>(std::bit_width(tick ^ current_) - 1) / kSlotBits;
    const unsigned slot = static_cast<unsigned>(tick >> (level * kSlotBits)) & (kSlots - 1);
    append(slots_[level][slot], timer);
    occupied_[level] |= std::uint64_t{1} << slot;
    levels_ |= 1U << level;
  }

  // The earliest slot that holds a timer. Clears the bits of the empty ones it passes.
  bool find(Found& found) const;
  // Moves everything due up to `target` to firing_ and makes `target` current. False if nothing is due.
  bool collect(std::uint64_t target);
  static void splice(TimerLink& to, TimerLink& from);

  std::uint64_t current_;
  unsigned shift_;
  mutable unsigned levels_ = 0;                   // bit per level whose occupied_ may be non-zero
  mutable std::uint64_t occupied_[kLevels] = {};  // bit per slot that may hold a timer
  std::size_t size_ = 0;
  TimerLink due_;     // armed for a time that had passed
  TimerLink firing_;  // being fired by advance()
  TimerLink slots_[kLevels][kSlots];
};

}  // namespace weir::schedule
