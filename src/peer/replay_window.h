// Which packet numbers of one direction of a path were received (docs/protocol.md, rule P-8): a sliding window over
// 64-bit numbers, and the reconstruction of a full number from the 24 bits that travel (P-5).
//
// The window starts with 512 bits and doubles while 10 ms of the path's packets do not fit, up to 65,536. What is older
// than the window remembers counts as too old, also right after the window grew: an unknown number is never fresh.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/time.h"

namespace weir::peer {

enum class Freshness : std::uint8_t { fresh, seen, too_old };

// One per path, for all its keys; single-threaded. 512 bits are inline; a busy path owns up to 8 KiB more.
class ReplayWindow {
 public:
  static constexpr std::uint64_t kSmallestBits = 512;
  static constexpr std::uint64_t kLargestBits = 65'536;
  static constexpr std::uint64_t kLimit = std::uint64_t{1} << 62;  // P-4: no path lives so long; no sum wraps
  static constexpr Duration kSpan = std::chrono::milliseconds{10};

  ReplayWindow() = default;
  ReplayWindow(const ReplayWindow&) = delete;
  ReplayWindow& operator=(const ReplayWindow&) = delete;

  // Changes nothing: a number is only marked once its packet has authenticated.
  Freshness check(std::uint64_t number) const {
    if (number >= next_) return number >= kLimit ? Freshness::too_old : Freshness::fresh;
    if (number < floor_ || next_word_start() - number > bits_) return Freshness::too_old;
    return (words()[(number & (bits_ - 1)) >> 6] >> (number & 63)) & 1 ? Freshness::seen : Freshness::fresh;
  }

  // Only for a number that check() just called fresh. Anything else is ignored.
  void mark(std::uint64_t number, Instant now) {
    if (number == next_ && number < kLimit) [[likely]] {
      if ((number & 63) == 0) words()[(number & (bits_ - 1)) >> 6] = 0;
      next_ = number + 1;
    } else if (number > next_) {
      if (number >= kLimit) return;
      skip_to(number);
    } else if (check(number) != Freshness::fresh) {
      return;
    }
    words()[(number & (bits_ - 1)) >> 6] |= std::uint64_t{1} << (number & 63);
    if (next_ - epoch_first_ > bits_ / 2 || now - epoch_start_ >= kSpan) [[unlikely]]
      measure(now);
  }

  bool any() const { return next_ != 0; }
  std::uint64_t largest() const { return next_ == 0 ? 0 : next_ - 1; }
  std::uint64_t bits() const { return bits_; }
  // Bytes beyond the object itself.
  std::size_t heap_bytes() const { return large_ == nullptr ? 0 : bits_ / 8; }

  // Back to 512 bits, for a path that fell idle. What no longer fits becomes too old.
  void shrink();

 private:
  // Words are cleared whole as the window moves on, so it remembers up to 63 numbers fewer than it has bits.
  std::uint64_t next_word_start() const { return (next_ + 63) & ~std::uint64_t{63}; }
  std::uint64_t oldest() const { return next_word_start() > bits_ ? next_word_start() - bits_ : 0; }
  std::uint64_t* words() { return large_ == nullptr ? small_ : large_.get(); }
  const std::uint64_t* words() const { return large_ == nullptr ? small_ : large_.get(); }
  void skip_to(std::uint64_t number);
  void measure(Instant now);
  void resize(std::uint64_t bits);

  std::uint64_t next_ = 0;   // largest + 1
  std::uint64_t floor_ = 0;  // below it nothing is remembered
  std::uint64_t bits_ = kSmallestBits;
  std::uint64_t epoch_first_ = 0;  // next_ when the epoch began
  Instant epoch_start_{};
  std::unique_ptr<std::uint64_t[]> large_;
  std::uint64_t small_[kSmallestBits / 64] = {};
};

// The number nearest to `largest` + 1 whose low 24 bits are `low24`. Never negative, never wraps.
constexpr std::uint64_t expand(std::uint32_t low24, std::uint64_t largest) {
  constexpr std::uint64_t kWindow = std::uint64_t{1} << 24;
  constexpr std::uint64_t kLast = ~std::uint64_t{0};
  const std::uint64_t expected = largest == kLast ? kLast : largest + 1;
  const std::uint64_t candidate = (expected & ~(kWindow - 1)) | (low24 & (kWindow - 1));
  if (candidate < expected && expected - candidate >= kWindow / 2 && candidate <= kLast - kWindow) {
    return candidate + kWindow;
  }
  if (candidate > expected && candidate - expected > kWindow / 2 && candidate >= kWindow) return candidate - kWindow;
  return candidate;
}

}  // namespace weir::peer
