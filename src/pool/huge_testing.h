// What the tests of several gigabytes share. They take memory and disk that few machines can spare while other tests
// run: only if WEIR_TEST_HUGE is set, as the stage `huge` of ./dev test does.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace weir::testing {

// More than 32 bits count, and no whole number of records, pages or anything else.
inline constexpr std::size_t kHuge = (std::size_t{4} << 30) + 5;

inline constexpr const char* kHowToWant = "set WEIR_TEST_HUGE=1 to run it";
inline bool are_huge_tests_wanted() { return std::getenv("WEIR_TEST_HUGE") != nullptr; }

// A line of /proc/self/status, "RssAnon" say, in bytes.
inline std::size_t status_bytes(const char* name) {
  std::FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  std::size_t kibibytes = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, name, std::strlen(name)) == 0) std::sscanf(line + std::strlen(name), ": %zu kB", &kibibytes);
  }
  std::fclose(file);
  return kibibytes * 1024;
}

// The most memory of its own that this process has: not what it maps of files, which is the system's cache.
class OwnMemoryWatch {
 public:
  OwnMemoryWatch() = default;
  OwnMemoryWatch(const OwnMemoryWatch&) = delete;
  OwnMemoryWatch& operator=(const OwnMemoryWatch&) = delete;
  ~OwnMemoryWatch() {
    is_over_ = true;
    watcher_.join();
  }
  std::size_t most_bytes() const { return most_; }

 private:
  void watch() {
    while (!is_over_) {
      most_ = std::max(most_.load(), status_bytes("RssAnon"));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  std::atomic<std::size_t> most_{status_bytes("RssAnon")};
  std::atomic<bool> is_over_{false};
  std::thread watcher_{[this] { watch(); }};
};

}  // namespace weir::testing
