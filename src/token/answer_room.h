// Room for answers that their callers have not acknowledged yet (docs/protocol.md, rules C-9 and C-10).
//
// A request reserves room for the largest answer, or for the largest that its caller accepts, before its handler runs,
// and keeps what its answer really takes until the caller has it. So a caller that never acknowledges holds no more
// than its share, and a handler's answer always has its place. Each level of nesting has a part of its own, for the
// same reason as with credit: no level waits for another's memory.
//
// Within its part a path takes more only while it would hold no more than what is then left: one path gets at most
// half, two a third each, and a newcomer finds some.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace weir::token {

inline constexpr std::size_t kLevels = 5;  // calls from outside handlers, and four levels of nested calls

// What one level of one path holds.
struct AnswerShare {
  std::uint64_t bytes = 0;
};

// One per engine, single-threaded.
class AnswerRoom {
 public:
  // Less than this would leave a level without room for one answer.
  static constexpr std::uint64_t least(std::uint64_t largest) { return 2 * kLevels * largest; }

  // `largest`: what the largest answer takes.
  AnswerRoom(std::uint64_t capacity, std::uint64_t largest) : largest_(largest) {
    capacity = std::max(capacity, least(largest));
    const std::uint64_t nested = std::max(capacity / 16, 2 * largest);
    parts_.fill({.capacity = nested});
    parts_[0].capacity = capacity - (kLevels - 1) * nested;
  }

  // Reserves room for an answer that takes so many bytes, at most those of the largest.
  [[nodiscard]] bool take(std::uint8_t level, AnswerShare& share, std::uint64_t bytes) {
    Part& part = parts_[level];
    const std::uint64_t left = part.capacity - part.used;
    // Whoever holds nothing may have the last of it, or nobody would get anything from a small part.
    if (share.bytes + 2 * bytes > left && (share.bytes != 0 || bytes > left)) [[unlikely]]
      return false;
    part.used += bytes;
    share.bytes += bytes;
    return true;
  }
  [[nodiscard]] bool take(std::uint8_t level, AnswerShare& share) { return take(level, share, largest_); }
  // `share` is null if the path has gone before the answer.
  void give_back(std::uint8_t level, AnswerShare* share, std::uint64_t bytes) {
    parts_[level].used -= bytes;
    if (share != nullptr) share->bytes -= bytes;
  }
  bool is_full(std::uint8_t level) const { return parts_[level].used + largest_ > parts_[level].capacity; }

  std::uint64_t largest() const { return largest_; }
  std::uint64_t used(std::uint8_t level) const { return parts_[level].used; }
  std::uint64_t used() const {
    std::uint64_t sum = 0;
    for (const Part& part : parts_) sum += part.used;
    return sum;
  }
  std::uint64_t capacity(std::uint8_t level) const { return parts_[level].capacity; }
  std::uint64_t capacity() const {
    std::uint64_t sum = 0;
    for (const Part& part : parts_) sum += part.capacity;
    return sum;
  }

 private:
  struct Part {
    std::uint64_t capacity = 0;
    std::uint64_t used = 0;
  };
  std::uint64_t largest_;
  std::array<Part, kLevels> parts_{};
};

}  // namespace weir::token
