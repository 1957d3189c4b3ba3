#include "peer/replay_window.h"

namespace weir::peer {

void ReplayWindow::skip_to(std::uint64_t number) {
  if (next_ == 0) epoch_first_ = number;
  const std::uint64_t mask = bits_ / 64 - 1;
  const std::uint64_t last = number >> 6;
  std::uint64_t word = next_word_start() >> 6;
  if (last - word > mask && last >= word) word = last - mask;
  for (; word <= last; ++word) words()[word & mask] = 0;
  next_ = number + 1;
}

void ReplayWindow::measure(Instant now) {
  const std::uint64_t advanced = next_ - epoch_first_;
  const Duration elapsed = now - epoch_start_;
  std::uint64_t wanted = advanced;
  if (elapsed > kSpan) {
    wanted = static_cast<std::uint64_t>(static_cast<unsigned __int128>(advanced) *
                                        static_cast<std::uint64_t>(kSpan.count()) /
                                        static_cast<std::uint64_t>(elapsed.count()));
  }
  std::uint64_t bits = bits_;
  while (bits < kLargestBits && bits / 2 < wanted) bits *= 2;
  if (bits != bits_) resize(bits);
  if (elapsed >= kSpan || bits_ == kLargestBits) {
    epoch_start_ = now;
    epoch_first_ = next_;
  }
}

void ReplayWindow::resize(std::uint64_t bits) {
  floor_ = std::max(floor_, oldest());
  std::unique_ptr<std::uint64_t[]> large;
  std::uint64_t small[kSmallestBits / 64] = {};
  if (bits > kSmallestBits) large = std::make_unique<std::uint64_t[]>(bits / 64);
  std::uint64_t* to = large == nullptr ? small : large.get();
  const std::uint64_t end = next_word_start() >> 6;
  const std::uint64_t count = std::min({bits_ / 64, bits / 64, end});
  for (std::uint64_t word = end - count; word < end; ++word) {
    to[word & (bits / 64 - 1)] = words()[word & (bits_ / 64 - 1)];
  }
  if (large == nullptr) std::copy(std::begin(small), std::end(small), std::begin(small_));
  large_ = std::move(large);
  bits_ = bits;
}

void ReplayWindow::shrink() {
  if (bits_ != kSmallestBits) resize(kSmallestBits);
  floor_ = std::max(floor_, oldest());
}

}  // namespace weir::peer
