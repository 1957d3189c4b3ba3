// One seed, many independent streams: each concern has its own, so that one more die rolled for losses does not change
// which packets are reordered.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "base/random.h"
#include "base/time.h"

namespace weir::sim {

inline std::uint64_t stream_seed(std::uint64_t seed, std::string_view concern, std::uint64_t index = 0) {
  std::uint64_t h = 0xcbf29ce484222325ULL ^ seed;
  for (char c : concern) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  h = (h ^ index) * 0xd6e8feb86659fd93ULL;
  return Random(h ^ (h >> 32)).next();
}

inline Random stream(std::uint64_t seed, std::string_view concern, std::uint64_t index = 0) {
  return Random(stream_seed(seed, concern, index));
}

// Uniform in [low, high].
inline std::uint64_t between(Random& random, std::uint64_t low, std::uint64_t high) {
  return low + random.below(high - low + 1);
}
inline Duration between(Random& random, Duration low, Duration high) {
  return Duration{static_cast<std::int64_t>(
      between(random, static_cast<std::uint64_t>(low.count()), static_cast<std::uint64_t>(high.count())))};
}

// In [low, high], of every order of magnitude as often as of any other.
inline Duration any_length(Random& random, Duration low, Duration high) {
  int doublings = 0;
  while (low * (std::int64_t{2} << doublings) <= high) ++doublings;
  const Duration least = low * (std::int64_t{1} << random.below(static_cast<std::uint64_t>(doublings) + 1));
  return between(random, least, std::min(2 * least, high));
}

}  // namespace weir::sim
