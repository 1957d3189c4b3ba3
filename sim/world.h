// What all parts of one run share.
#pragma once

#include <cstdint>

#include "sim/event_queue.h"
#include "sim/journal.h"
#include "sim/network.h"

namespace weir::sim {

struct World {
  World(std::uint64_t run_seed, bool trace) : seed(run_seed), journal(trace), network(queue, journal, run_seed) {}
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Instant now() const { return queue.now(); }

  std::uint64_t seed;
  EventQueue queue;
  Journal journal;
  Network network;
};

}  // namespace weir::sim
