// Agenda: what happens next, among parts of which each waits for at most one instant. Where an EventQueue has an entry
// for every event, an agenda has one for every part, so a run with millions of packets under way stays in the
// processor's caches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/time.h"

namespace weir::sim {

// A heap with four children per node, and the place of every part in it. Of parts that wait for the same instant the
// one with the lower number is first, so a run depends on nothing but its seed. One per run.
class Agenda {
 public:
  using Part = std::uint32_t;

  // The parts are numbered from 0, in the order in which they are added.
  Part add() {
    places_.push_back(kNowhere);
    return static_cast<Part>(places_.size() - 1);
  }

  bool empty() const { return heap_.empty(); }
  Part first() const { return heap_.front().part; }
  // Of the first one; never, if nobody waits.
  Instant next() const { return heap_.empty() ? Instant::never() : heap_.front().when; }
  Instant when(Part part) const { return places_[part] == kNowhere ? Instant::never() : heap_[places_[part]].when; }

  // From now on the part waits for this instant only; never: for nothing.
  void set(Part part, Instant when) {
    std::size_t place = places_[part];
    if (when.is_never()) {
      if (place != kNowhere) remove(place);
      return;
    }
    if (place == kNowhere) {
      place = heap_.size();
      heap_.push_back({});
      sift_up(place, {when, part});
      return;
    }
    replace(place, {when, part});
  }

 private:
  static constexpr std::size_t kChildren = 4;
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

  struct Entry {
    Instant when;
    Part part = 0;
    bool before(const Entry& other) const { return when != other.when ? when < other.when : part < other.part; }
  };

  void put(std::size_t place, const Entry& entry) {
    heap_[place] = entry;
    places_[entry.part] = static_cast<std::uint32_t>(place);
  }

  void replace(std::size_t place, const Entry& entry) {
    if (place != 0 && entry.before(heap_[(place - 1) / kChildren])) {
      sift_up(place, entry);
    } else {
      sift_down(place, entry);
    }
  }

  void remove(std::size_t place) {
    places_[heap_[place].part] = kNowhere;
    const Entry last = heap_.back();
    heap_.pop_back();
    if (place != heap_.size()) replace(place, last);
  }

  void sift_up(std::size_t place, const Entry& entry) {
    while (place != 0) {
      const std::size_t parent = (place - 1) / kChildren;
      if (!entry.before(heap_[parent])) break;
      put(place, heap_[parent]);
      place = parent;
    }
    put(place, entry);
  }

  void sift_down(std::size_t place, const Entry& entry) {
    while (true) {
      const std::size_t begin = place * kChildren + 1;
      if (begin >= heap_.size()) break;
      const std::size_t end = std::min(begin + kChildren, heap_.size());
      std::size_t least = begin;
      for (std::size_t child = begin + 1; child < end; ++child) {
        if (heap_[child].before(heap_[least])) least = child;
      }
      if (!heap_[least].before(entry)) break;
      put(place, heap_[least]);
      place = least;
    }
    put(place, entry);
  }

  std::vector<Entry> heap_;
  std::vector<std::uint32_t> places_;  // by part
};

}  // namespace weir::sim
