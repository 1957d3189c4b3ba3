// NicShaper: a leaky bucket for everything that one process sends by one NIC, whatever the number of engines.
//
// The level of the bucket rises by the bytes that are sent and falls at the NIC's rate. A sender claims as many bytes
// as it may send, builds its packets, and then settles for what it has really sent. A claim is granted only if all
// bytes that are sent and claimed fit into the bucket, so no interval has more bytes than the NIC drains in it and one
// bucket full. The bucket holds what drains in 1/kTrainsPerSecond of a second; a claim that is larger than that (one
// packet of a slow NIC) is granted when the bucket is empty.
//
// Senders that were refused stand in a line, the longest-waiting one first. The others leave the bucket to that one for
// kGrace after there is room: a thread that sleeps needs that long to wake. The room that a late sender leaves unused
// is not lost, because the bucket is deeper than the grace is long, for all but slow NICs.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/sync.h"
#include "base/time.h"

namespace weir::schedule {

// One per NIC and process; shared by the engines that send by it. Any thread may call it.
class NicShaper {
 public:
  static constexpr std::uint64_t kTrainsPerSecond = 4'096;  // the bucket drains so often in a second
  static constexpr Duration kGrace = std::chrono::microseconds(100);
  // What is sent without a claim delays claims by so long at most: whoever provokes it must not stop all else.
  static constexpr Duration kMostOwed = std::chrono::milliseconds(10);
  static constexpr std::size_t kMaxSenders = 64;  // that have a place in line; further ones wait behind those
  static constexpr std::uint64_t kLeastRate = 1'000;
  static constexpr std::uint64_t kMostRate = 125'000'000'000;  // 1 Tbit/s: years of bytes fit into 64 bits

  // `origin`: no later than any `now` that counts.
  NicShaper(std::uint64_t bytes_per_s, Instant origin)
      : rate_(std::clamp(bytes_per_s, kLeastRate, kMostRate)), origin_(origin) {}
  NicShaper(const NicShaper&) = delete;
  NicShaper& operator=(const NicShaper&) = delete;

  std::uint64_t rate() const { return rate_; }  // bytes per second
  std::uint64_t depth() const { return rate_ / kTrainsPerSecond; }
  // How much one sender should claim at once: half of the bucket, so that another one need not wait until it is empty.
  std::uint64_t train(std::uint64_t packet, std::uint64_t longest) const {
    return std::max(packet, std::min(depth() / 2, longest));
  }
  // Sent and not yet drained.
  std::uint64_t owed(Instant now) const;

 private:
  friend class NicSender;

  // What the NIC has drained since the origin.
  std::uint64_t bytes_at(Instant now) const;
  Instant time_of(std::uint64_t bytes) const;  // when it has drained so many
  bool fits(std::uint64_t pending, std::uint64_t claim, Instant now) const;
  void add(std::uint64_t bytes, std::uint64_t most_owed, Instant now);

  static constexpr std::uint64_t kNobody = ~std::uint64_t{0};  // has this place; 0: somebody who does not wait

  const std::uint64_t rate_;
  const Instant origin_;
  // On the clock of bytes_at(): when that shows so many, everything sent so far has drained.
  sync::Atomic<std::uint64_t> drained_at_{0};
  sync::Atomic<std::uint64_t> pending_{0};  // claimed and not settled
  sync::Atomic<std::uint64_t> last_ticket_{0};
  std::array<sync::Atomic<std::uint64_t>, kMaxSenders> line_{};  // tickets, by place
  sync::Atomic<std::uint32_t> places_used_{0};                   // in line_, from the first on
};

// One sender's hold on its NIC. One per engine; only the engine's thread may call it.
class NicSender {
 public:
  explicit NicSender(std::shared_ptr<NicShaper> nic);
  ~NicSender();
  NicSender(const NicSender&) = delete;
  NicSender& operator=(const NicSender&) = delete;

  const NicShaper& nic() const { return *nic_; }
  std::uint64_t claimed() const { return claimed_; }

  // Whether so many bytes may be sent now. If so, settle() says how many were. If not, the sender is in line, and
  // tries again at retry_at().
  bool claim(std::uint64_t bytes, Instant now);
  void settle(std::uint64_t sent, Instant now);
  Instant retry_at() const { return retry_at_; }
  // It has nothing more to send.
  void leave_line();
  // Sent without a claim.
  void charge(std::uint64_t sent, Instant now);

 private:
  bool is_first_in_line() const;

  const std::shared_ptr<NicShaper> nic_;
  std::size_t place_ = NicShaper::kMaxSenders;  // in line; kMaxSenders: none
  std::uint64_t ticket_ = 0;
  std::uint64_t claimed_ = 0;
  Instant retry_at_{};
};

}  // namespace weir::schedule
