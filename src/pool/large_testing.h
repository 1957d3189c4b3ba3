// What the tests of large messages share.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include "buffer/sealed.h"
#include "pool/pool_testing.h"

namespace weir::testing {

inline constexpr std::size_t kInline = 16 * 1024;  // Limits::inline_bytes
inline constexpr std::size_t kRecord = buffer::kRecordBytes;
inline constexpr std::size_t kMiB = 1024 * 1024;

// Bytes of which each place can be told from its neighbours and from the same place of another seed.
inline std::string pattern(std::size_t bytes, std::uint64_t seed = 1) {
  std::string text(bytes, '\0');
  std::uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (std::size_t i = 0; i < bytes; i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    for (std::size_t k = 0; k < 8 && i + k < bytes; ++k) text[i + k] = static_cast<char>(state >> (8 * k));
  }
  return text;
}

// Without printing megabytes when they differ.
inline bool is_same(std::string_view a, std::string_view b) { return a == b; }

inline Counters total(const Pool& pool) {
  Counters sum;
  for (const Counters& each : pool.counters()) sum += each;
  return sum;
}

inline Payload payload_of(const Pool& pool, std::string_view text) {
  Buffer page = pool.allocate(text.size()).get().value();
  const auto span = page.span();
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), span.data());
  return pool.seal(std::move(page));
}

// A payload one byte of which is not what was sealed.
inline Payload forged_payload(const Pool& pool, std::string_view text) {
  Payload payload = payload_of(pool, text);
  auto* byte = const_cast<std::byte*>(payload.sealed()->at(text.size() / 2).data());
  *byte ^= std::byte{1};
  return payload;
}

// Of this process, by the system's own count.
inline std::size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long pages = 0, resident = 0;
  EXPECT_EQ(std::fscanf(file, "%lu %lu", &pages, &resident), 2);
  std::fclose(file);
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

// Sanitizers have memory of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kHasOwnMemoryOnly = false;
#else
inline constexpr bool kHasOwnMemoryOnly = true;
#endif

// How much memory this process, both ends of a test, takes in addition.
class MemoryWatch {
 public:
  MemoryWatch() = default;
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;
  ~MemoryWatch() { most_bytes(); }

  // Until now.
  std::size_t most_bytes() {
    is_over_ = true;
    if (watcher_.joinable()) watcher_.join();
    return most_ - before_;
  }

 private:
  void watch() {
    do {
      most_ = std::max(most_, resident_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    } while (!is_over_);
  }

  const std::size_t before_ = resident_bytes();
  std::size_t most_ = before_;
  std::atomic<bool> is_over_{false};
  std::thread watcher_{[this] { watch(); }};
};

// One that the application sealed itself, whose binding is (or is not) what the message says.
inline Payload adopted_payload(const Pool& pool, std::string_view text, bool is_forged = false) {
  Buffer page = pool.allocate(text.size()).get().value();
  const auto span = page.span();
  std::copy_n(reinterpret_cast<const std::byte*>(text.data()), text.size(), span.data());
  Payload payload = pool.adopt(std::move(page), {.offset = 100, .length = 32});
  if (is_forged) const_cast<std::byte*>(payload.sealed()->at(100).data())[0] ^= std::byte{1};
  return payload;
}

}  // namespace weir::testing
