#include "pool/method_names.h"

#include <algorithm>

namespace weir::pool {

MethodNames& MethodNames::of_process() {
  static constinit MethodNames names;
  return names;
}

void MethodNames::add(Place& place, const Method& method) {
  // The library's own would tell an application nothing.
  if (method.id() == 0 || method.name().starts_with("weir.")) return;
  std::uint64_t expected = 0;
  // Relaxed: whoever wins alone writes the text; readers wait for `bytes`.
  if (!place.id.compare_exchange_strong(expected, method.id(), std::memory_order_relaxed)) return;
  const std::string_view name = method.name().substr(0, kMaxBytes);
  std::copy(name.begin(), name.end(), place.text);
  place.bytes.store(static_cast<std::uint8_t>(name.size()), std::memory_order_release);
}

std::string_view MethodNames::find(std::uint64_t id) const {
  const Place& place = places_[id % kPlaces];
  const std::uint8_t bytes = place.bytes.load(std::memory_order_acquire);
  if (bytes == 0 || place.id.load(std::memory_order_relaxed) != id) return {};
  return {place.text, bytes};
}

}  // namespace weir::pool
