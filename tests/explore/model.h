// The state of one run: threads, memory as they see it, and what happened before what.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "tests/explore/arena.h"
#include "tests/explore/clock.h"
#include "tests/explore/runtime.h"

namespace weir::explore {

// What happens before an operation (for races), and what it must at least see (which fences add to).
struct Knowledge {
  Clock happened;
  Clock seen;
  void join(const Knowledge& other) {
    happened.join(other.happened);
    seen.join(other.seen);
  }
};

// One value of an atomic, in the order of its modifications: the order in which the run stored them.
struct Stored {
  std::uint64_t value = 0;
  Moment made{};
  std::uint32_t sequential = 0;  // when, if sequentially consistent
  Knowledge released;            // what a load that acquires it learns
};

// A thread has seen that value, or a later one.
struct Observation {
  Moment moment{};
  std::uint32_t sequential = 0;
  std::uint32_t index = 0;
};

struct Location {
  enum class Kind : std::uint8_t { atomic, plain, object };  // object: a mutex, a condition, something slept at
  std::uintptr_t address = 0;
  Kind kind = Kind::atomic;
  std::uint32_t number = 0;  // for traces
  Block* block = nullptr;
  bool is_dead = false;
  std::array<std::uint32_t, kMaxThreads> accessed{};  // the last time of each thread

  // atomic
  std::uint8_t bytes = 0;
  std::vector<Stored> stores;
  std::vector<Observation> observations;
  std::uint32_t sequential_floor = 0;
  // plain
  Moment written{};
  std::array<std::uint32_t, kMaxThreads> read{};
  // object
  int owner = -1;         // of a mutex
  bool is_woken = false;  // of something slept at
  Knowledge passed_on;
  // Of the order in which it was used: see Thread::hash.
  std::uint64_t last_write = 0;
  std::uint64_t reads = 0;
};

// All locations of a run, by address.
class Memory {
 public:
  Memory();
  void reset();
  // Atomics that do not lie in the arena, such as static ones, get the values back that they had before the run.
  void restore_outside();
  Location* find(const void* address, Location::Kind kind);
  Location& at(const void* address, Location::Kind kind);
  // Calls `function(location)` for each one in there.
  template <class Function>
  void for_each_in(std::uintptr_t begin, std::uintptr_t end, const Function& function) {
    for (std::size_t i = 0; i < used_; ++i) {
      if (addresses_[i] >= begin && addresses_[i] < end) function(locations_[i]);
    }
  }
  // Not zero.
  static std::uint64_t key_of(const void* address, Location::Kind kind) {
    return reinterpret_cast<std::uintptr_t>(address) * 4 + static_cast<std::uint64_t>(kind);
  }

 private:
  struct Entry {
    std::uint64_t key = 0;
    std::uint32_t run = 0;
    std::uint32_t index = 0;
  };
  std::size_t slot_of(std::uint64_t key) const;
  void grow();

  std::vector<Entry> table_;
  std::deque<Location> locations_;         // reused from run to run
  std::vector<std::uintptr_t> addresses_;  // theirs: looked through often
  std::size_t used_ = 0;
  std::uint32_t run_ = 1;
};

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2))) * 0xbf58476d1ce4e5b9;
  x ^= x >> 29;
  return x * 0x94d049bb133111eb ^ x >> 32;
}

// For the arena.
Moment now() noexcept;
void note_freed(const Block& block) noexcept;

}  // namespace weir::explore
