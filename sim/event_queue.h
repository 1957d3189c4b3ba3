// Virtual time: what happens next, and when. Events at the same instant happen in the order in which they were added,
// so a run depends on nothing but its seed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/time.h"

namespace weir::sim {

// One per run.
class EventQueue {
 public:
  using Action = std::move_only_function<void()>;

  Instant now() const { return now_; }
  std::uint64_t events_run() const { return events_run_; }

  // An instant that has passed means now.
  void at(Instant when, Action action) {
    heap_.push_back({std::max(when, now_), next_sequence_++, std::move(action)});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }
  void after(Duration delay, Action action) { at(now_ + delay, std::move(action)); }

  // Runs the next event if it is due by `until`; otherwise moves the clock there and returns false.
  bool run_next(Instant until) {
    if (heap_.empty() || heap_.front().when > until) {
      now_ = std::max(now_, until);
      return false;
    }
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    Event event = std::move(heap_.back());
    heap_.pop_back();
    now_ = event.when;
    ++events_run_;
    event.action();
    return true;
  }

 private:
  struct Event {
    Instant when;
    std::uint64_t sequence;
    Action action;
  };
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.when != b.when ? a.when > b.when : a.sequence > b.sequence;
    }
  };

  // An origin away from zero, so that nobody can take "not set" for a time.
  Instant now_{1'000'000'000};
  std::uint64_t next_sequence_ = 0;
  std::uint64_t events_run_ = 0;
  std::vector<Event> heap_;
};

}  // namespace weir::sim
