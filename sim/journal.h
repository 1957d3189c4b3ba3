// What happened in a run: a hash over every event with its virtual time, printed as it grows if somebody debugs.
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string_view>

#include "base/bytes.h"
#include "base/time.h"

namespace weir::sim {

// 64 bits that depend on every byte, the length and the order. Not for enemies.
class EventHash {
 public:
  void mix(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9fb21c651e98df25ULL;
    state_ ^= state_ >> 32;
  }
  void mix(ByteSpan bytes) {
    mix(bytes.size());
    while (bytes.size() >= 8) {
      mix(load<std::uint64_t>(bytes.data()));
      bytes = bytes.subspan(8);
    }
    std::uint64_t rest = 0;
    for (std::byte b : bytes) rest = rest << 8 | static_cast<std::uint64_t>(b);
    mix(rest);
  }
  void mix(std::string_view text) { mix(std::as_bytes(std::span(text))); }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x8a5cd789635d2dffULL;
};

inline std::uint64_t hash_of(ByteSpan bytes) {
  EventHash hash;
  hash.mix(bytes);
  return hash.value();
}

// One per run.
class Journal {
 public:
  explicit Journal(bool trace) : trace_(trace) {}

  bool traces() const { return trace_; }
  std::uint64_t hash() const { return hash_.value(); }

  // `what` names the event and its fields, in their order: "deliver from to bytes".
  void note(Instant now, std::string_view what, std::initializer_list<std::uint64_t> fields) {
    hash_.mix(static_cast<std::uint64_t>(now.ns));
    hash_.mix(what);
    for (std::uint64_t field : fields) hash_.mix(field);
    if (trace_) [[unlikely]]
      print(now, what, fields);
  }

  // Printed, never hashed: for details that only a debugger wants.
  void remark(Instant now, std::string_view what, std::initializer_list<std::uint64_t> fields) {
    if (trace_) [[unlikely]]
      print(now, what, fields);
  }

 private:
  static void print(Instant now, std::string_view what, std::initializer_list<std::uint64_t> fields) {
    std::printf("%12.6f ms  %.*s:", static_cast<double>(now.ns - 1'000'000'000) / 1e6, static_cast<int>(what.size()),
                what.data());
    for (std::uint64_t field : fields) {
      if (field >> 40 != 0) {
        std::printf(" %016" PRIx64, field);
      } else {
        std::printf(" %" PRIu64, field);
      }
    }
    std::printf("\n");
  }

  bool trace_;
  EventHash hash_;
};

}  // namespace weir::sim
