// Work: how many bytes this process sealed, opened and copied on behalf of large messages. A payload is to be sealed
// once however many it goes to, and its bytes copied by nobody but the system; these counts are how tests show it.
#pragma once

#include <atomic>
#include <cstdint>

namespace weir::buffer {

// Relaxed: counts that publish nothing. Touched once a record, so that threads that share them cost each other little.
struct Work {
  std::atomic<std::uint64_t> sealed_bytes = 0;
  std::atomic<std::uint64_t> opened_bytes = 0;
  std::atomic<std::uint64_t> copied_bytes = 0;  // for whoever copies a large message's bytes in user space
};

inline constinit Work work;

inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t bytes) {
  counter.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace weir::buffer
