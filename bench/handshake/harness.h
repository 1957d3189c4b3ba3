// What the parts of this program share: giving up, clocks, cores, medians.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "weir/error.h"

namespace weir::bench {

// What both sides say inside the handshake or right after it: as long as a real offer.
inline constexpr std::size_t kOfferBytes = 150;
// Of the request to a cold peer, and of its reply.
inline constexpr std::size_t kBodyBytes = 32;
// Before the time of cold peers is taken, so that what came before has ended everywhere.
inline constexpr std::chrono::milliseconds kPause{20};

[[noreturn]] void fail(const std::string& sentence);
[[noreturn]] void fail_with_errno(const std::string& what);

template <class T>
T need(Result<T> result, const char* what) {
  if (!result) fail(std::string(what) + ": " + result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

std::int64_t wall_ns();
std::int64_t thread_cpu_ns();

double median(std::vector<double> values);

// Keeps the calling thread on one core, as long as it lives. A negative core changes nothing.
class Pinned {
 public:
  explicit Pinned(int core);
  ~Pinned();
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  std::vector<std::byte> before_;
};

}  // namespace weir::bench
