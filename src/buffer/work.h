// Work: how many bytes this process sealed, moved, opened, freed and copied on behalf of large messages. A payload is
// to be sealed once however many it goes to; at each of these its bytes are moved once, from the packets they came in
// to where they are opened, and copied by nobody else but the system. These counts are how tests show it.
#pragma once

#include <atomic>
#include <cstdint>

namespace weir::buffer {

// Relaxed: counts that publish nothing. Touched once a record or message, never once a packet, so that threads that
// share them cost each other little.
struct Work {
  std::atomic<std::uint64_t> sealed_bytes = 0;
  std::atomic<std::uint64_t> opened_bytes = 0;
  std::atomic<std::uint64_t> moved_bytes = 0;   // out of packets into a region, also what came twice
  std::atomic<std::uint64_t> freed_bytes = 0;   // of payloads, before their end
  std::atomic<std::uint64_t> copied_bytes = 0;  // beyond that, by whoever copies a large message's bytes in user space
};

// The same of one thread: who seals and who opens is as much a promise as how often. Constant-initialised, so that
// reaching it costs one addition.
struct ThreadWork {
  std::uint64_t sealed_bytes = 0;
  std::uint64_t opened_bytes = 0;
  std::uint64_t bindings = 0;  // of what the application sealed, looked at
};

inline constinit thread_local ThreadWork thread_work;

// Copies of less are no large message's.
inline constexpr std::uint64_t kSmallestCountedCopy = 16 * 1024;

inline constinit Work work;

inline void count(std::atomic<std::uint64_t>& counter, std::uint64_t bytes) {
  counter.fetch_add(bytes, std::memory_order_relaxed);
}

inline void count_sealed(std::uint64_t bytes) {
  count(work.sealed_bytes, bytes);
  thread_work.sealed_bytes += bytes;
}

inline void count_opened(std::uint64_t bytes) {
  count(work.opened_bytes, bytes);
  thread_work.opened_bytes += bytes;
}

inline void count_copy(std::uint64_t bytes) {
  if (bytes > kSmallestCountedCopy) [[unlikely]]
    count(work.copied_bytes, bytes);
}

}  // namespace weir::buffer
