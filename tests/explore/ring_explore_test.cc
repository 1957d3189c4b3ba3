// Rings under all schedules: nothing is lost, doubled or seen half written.
#include <memory>

#include "base/mpmc_ring.h"
#include "base/spsc_ring.h"
#include "tests/explore/finding.h"
#include "worker/sync.h"

namespace weir::explore {
namespace {

// A number whose moves are accesses to plain memory.
struct Item {
  Item(int value_ = 0) : value(value_) {}  // NOLINT: stands for the number
  Item(Item&& from) noexcept : value(from.take()) {}
  Item& operator=(Item&& from) noexcept {
    sync::writes(this);
    value = from.take();
    return *this;
  }
  int take() {
    sync::writes(this);
    return value;
  }
  int value;
};

// Three numbers through a ring of two: it is full and empty on the way.
void spsc(Scene& run) {
  auto ring = std::make_shared<SpscRing<Item>>(2);
  run.thread([ring] {
    for (int i = 1; i <= 3; ++i) {
      while (!ring->try_push(Item(i))) sync::yield();
      ring->publish();
    }
  });
  run.thread([ring] {
    for (int i = 1; i <= 3; ++i) {
      Item item;
      while (!ring->try_pop(item)) sync::yield();
      check(item.value == i, "items come in order, once each");
    }
    check(ring->empty(), "nothing comes twice");
  });
}

void spsc_batches(Scene& run) {
  auto ring = std::make_shared<SpscRing<Item>>(4);
  run.thread([ring] {
    for (int i = 0; i < 3; ++i) {
      while (ring->free_space() < 2) sync::yield();
      check(ring->try_push(Item(2 * i + 1)) && ring->try_push(Item(2 * i + 2)), "there is as much room as was said");
      ring->publish();
    }
  });
  run.thread([ring] {
    for (int next = 1; next <= 6;) {
      const std::size_t count =
          ring->pop_batch(8, [&](Item&& item) { check(item.take() == next++, "items come in order, once each"); });
      if (count == 0) sync::yield();
    }
  });
}

TEST(ExploreSpscRing, HandsOverInEverySchedule) {
  expect_sound({.name = "SPSC ring"}, spsc);
  expect_sound({.name = "SPSC ring, batches"}, spsc_batches);
}

TEST(ExploreSpscRing, EveryOrderIsNeeded) {
  for (const Fault& fault : {Fault{"spsc_ring.h", "::publish(", Fault::Kind::relax, Operation::store},
                             Fault{"spsc_ring.h", "::give_back(", Fault::Kind::relax, Operation::store},
                             Fault{"spsc_ring.h", "::available(", Fault::Kind::relax, Operation::load},
                             Fault{"spsc_ring.h", "::try_push(", Fault::Kind::relax, Operation::load}}) {
    expect_found({.name = "SPSC ring"}, fault, spsc);
  }
  expect_found({.name = "SPSC ring, batches"}, {"spsc_ring.h", "::free_space(", Fault::Kind::relax, Operation::load},
               spsc_batches);
  // The check that there is room is not made.
  expect_found({.name = "SPSC ring"}, {"spsc_ring.h", "::try_push(", Fault::Kind::answer, Operation::load, 2}, spsc);
}

struct Shared {
  MpmcRing ring{2};
  int payloads[3] = {};
  sync::Atomic<std::uint32_t> popped{0};
};

// Each thread fills a payload, pushes its number, and takes what it pops: of three threads on two cells, some meet at
// both ends.
void mpmc(Scene& run, std::uint32_t threads) {
  auto shared = std::make_shared<Shared>();
  for (std::uint32_t i = 0; i < threads; ++i) {
    run.thread([shared, i] {
      sync::writes(&shared->payloads[i]);
      shared->payloads[i] = 1;
      while (!shared->ring.try_push(i)) sync::yield();
      std::uint32_t number = 0;
      while (!shared->ring.try_pop(number)) sync::yield();
      sync::writes(&shared->payloads[number]);
      check(++shared->payloads[number] == 2, "each number is popped once, after it was pushed");
      shared->popped.fetch_add(1u << (8 * number), std::memory_order_relaxed);
    });
  }
  run.at_end([shared, threads] {
    std::uint32_t expected = 0, number = 0;
    for (std::uint32_t i = 0; i < threads; ++i) expected |= 1u << (8 * i);
    check(shared->popped.load() == expected, "each number is popped once");
    check(!shared->ring.try_pop(number), "nothing is left");
  });
}

TEST(ExploreMpmcRing, HandsOverInEverySchedule) {
  expect_sound({.name = "MPMC ring, 2 threads"}, [](Scene& run) { mpmc(run, 2); });
  expect_sound({.name = "MPMC ring, 3 threads", .preemptions = 2, .stale_reads = 1}, [](Scene& run) { mpmc(run, 3); });
  expect_sound({.name = "MPMC ring, 3 threads", .random_schedules = 20'000}, [](Scene& run) { mpmc(run, 3); });
}

TEST(ExploreMpmcRing, DefectsAreFound) {
  for (const Fault& fault : {Fault{"mpmc_ring.h", "::try_push(", Fault::Kind::relax, Operation::store},
                             Fault{"mpmc_ring.h", "::try_pop(", Fault::Kind::relax, Operation::load},
                             Fault{"mpmc_ring.h", "::try_pop(", Fault::Kind::skip, Operation::store}}) {
    expect_found({.name = "MPMC ring, 3 threads", .max_steps = 500}, fault, [](Scene& run) { mpmc(run, 3); });
  }
}

}  // namespace
}  // namespace weir::explore
