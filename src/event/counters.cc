#include <cstddef>

#include "weir/event.h"

namespace weir {

// Counters is a plain sequence of 64-bit totals, so that adding two is the same for every field, also for new ones.
static_assert(sizeof(Counters) % sizeof(std::uint64_t) == 0 && std::is_standard_layout_v<Counters>);

Counters& Counters::operator+=(const Counters& other) {
  auto* mine = reinterpret_cast<std::uint64_t*>(this);
  const auto* theirs = reinterpret_cast<const std::uint64_t*>(&other);
  for (std::size_t i = 0; i < sizeof(Counters) / sizeof(std::uint64_t); ++i) mine[i] += theirs[i];
  return *this;
}

}  // namespace weir
