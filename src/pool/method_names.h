// The names of methods that this process calls, for errors: a call itself knows only their numbers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weir/method.h"

namespace weir::pool {

// Bounded, for all pools together: a name finds its place free the first time that it is called, or is never told.
class MethodNames {
 public:
  static constexpr std::size_t kPlaces = 1024;
  static constexpr std::size_t kMaxBytes = 64;  // of one name; the rest is cut off

  static MethodNames& of_process();

  // For every call: a load, once it is known.
  void note(const Method& method) {
    Place& place = place_of(method.id());
    if (place.id.load(std::memory_order_relaxed) == 0) [[unlikely]]
      add(place, method);
  }
  // Empty: not known. Valid for ever.
  std::string_view find(std::uint64_t id) const;

 private:
  struct Place {
    std::atomic<std::uint64_t> id{0};
    std::atomic<std::uint8_t> bytes{0};  // stored last
    char text[kMaxBytes]{};
  };

  Place& place_of(std::uint64_t id) { return places_[id % kPlaces]; }
  [[gnu::cold, gnu::noinline]] static void add(Place& place, const Method& method);

  Place places_[kPlaces];
};

}  // namespace weir::pool
