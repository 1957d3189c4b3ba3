// Trains of gathered segments for tests: each piece in memory of its own, so that a read beyond one is noticed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/segment.h"
#include "link/link.h"
#include "link/link_testing.h"

namespace weir::link::testing {

struct Gathered {
  struct Shape {
    std::size_t size;          // of all datagrams together
    std::size_t segment_size;  // of all but the last
    std::size_t head_size;     // of each datagram; the rest is body
  };

  Gathered(const Shape& shape, std::uint32_t seed) {
    for (std::size_t from = 0; from < shape.size; from += shape.segment_size) {
      const std::size_t size = std::min(shape.segment_size, shape.size - from);
      datagrams.push_back(pattern(size, seed + static_cast<std::uint32_t>(datagrams.size())));
      const auto middle = datagrams.back().begin() + static_cast<std::ptrdiff_t>(std::min(size, shape.head_size));
      heads.emplace_back(datagrams.back().begin(), middle);
      bodies.emplace_back(middle, datagrams.back().end());
    }
    for (std::size_t i = 0; i < datagrams.size(); ++i) segments.push_back({.head = heads[i], .body = bodies[i]});
    segment_size = static_cast<std::uint32_t>(shape.segment_size);
  }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;

  Train train(const Address& to, Ecn ecn = Ecn::not_ect) const {
    return {.to = to, .ecn = ecn, .segment_size = segment_size, .segments = segments};
  }

  std::vector<std::vector<std::byte>> datagrams;  // what has to arrive
  std::vector<std::vector<std::byte>> heads;
  std::vector<std::vector<std::byte>> bodies;
  std::vector<Segment> segments;
  std::uint32_t segment_size;
};

inline std::vector<std::vector<std::byte>> bytes_of(const std::vector<Copy>& copies) {
  std::vector<std::vector<std::byte>> all;
  for (const Copy& copy : copies) all.push_back(copy.bytes);
  return all;
}

}  // namespace weir::link::testing
