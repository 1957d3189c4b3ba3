#include "schedule/timing_wheel.h"

#include <algorithm>
#include <limits>

namespace weir::schedule {

TimingWheel::TimingWheel(Duration tick, Instant start) {
  const auto ns = static_cast<std::uint64_t>(std::max(tick, kShortestTick).count());
  shift_ = static_cast<unsigned>(std::bit_width(ns - 1));
  current_ = tick_before(start);
  due_.next = due_.previous = &due_;
  firing_.next = firing_.previous = &firing_;
  for (auto& level : slots_) {
    for (auto& slot : level) slot.next = slot.previous = &slot;
  }
}

bool TimingWheel::find(Found& found) const {
  while (levels_ != 0) {
    const auto level = static_cast<unsigned>(std::countr_zero(levels_));
    while (occupied_[level] != 0) {
      const auto slot = static_cast<unsigned>(std::countr_zero(occupied_[level]));
      const TimerLink& list = slots_[level][slot];
      if (list.next != &list) {
        const unsigned low = level * kSlotBits;
        const std::uint64_t above = current_ >> low >> kSlotBits << kSlotBits;
        found = {level, slot, (above | slot) << low};
        return true;
      }
      occupied_[level] &= occupied_[level] - 1;
    }
    levels_ &= levels_ - 1;
  }
  return false;
}

void TimingWheel::splice(TimerLink& to, TimerLink& from) {
  if (from.next == &from) return;
  from.next->previous = to.previous;
  from.previous->next = &to;
  to.previous->next = from.next;
  to.previous = from.previous;
  from.next = from.previous = &from;
}

bool TimingWheel::collect(std::uint64_t target) {
  splice(firing_, due_);
  Found found;
  while (find(found) && found.start <= target) {
    current_ = found.start;
    TimerLink& slot = slots_[found.level][found.slot];
    if (found.level == 0) {
      splice(firing_, slot);
      continue;
    }
    // The slot's time has begun, so each of its timers belongs to a lower level now, or is due.
    TimerLink moving;
    moving.next = moving.previous = &moving;
    splice(moving, slot);
    while (moving.next != &moving) {
      TimerLink& link = *moving.next;
      unlink(link);
      place(static_cast<Timer&>(link));
    }
    splice(firing_, due_);
  }
  current_ = std::max(current_, target);
  return firing_.next != &firing_;
}

Instant TimingWheel::next_deadline() const {
  const auto instant = [this](std::uint64_t tick) {
    constexpr auto kLatest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) - 1;
    return Instant{static_cast<std::int64_t>(tick > kLatest >> shift_ ? kLatest : tick << shift_)};
  };
  if (due_.next != &due_) return instant(current_);
  Found found;
  if (!find(found)) return Instant::never();
  if (found.level == 0) return instant(found.start);
  const TimerLink& slot = slots_[found.level][found.slot];
  std::uint64_t soonest = ~std::uint64_t{0};
  unsigned looked_at = 0;
  for (const TimerLink* link = slot.next; link != &slot; link = link->next) {
    if (++looked_at > kExactScan) return instant(found.start);
    soonest = std::min(soonest, tick_after(static_cast<const Timer*>(link)->at));
  }
  return instant(soonest);
}

}  // namespace weir::schedule
