// Refusals: of whom a HandshakeFailed event was told lately, so that each peer causes one per interval.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "base/address.h"
#include "base/time.h"

namespace weir::pool {

// One per handshaker, for its loop. Peers do not share places: none hides another's failure. Bounded: beyond kPeers
// within one interval, failures are counted and not told.
class Refusals {
 public:
  static constexpr std::size_t kPeers = 1'024;
  static constexpr Duration kInterval = std::chrono::seconds(1);

  // A handshake with that address failed. How many of its failures were left out before, if this one is to be told.
  std::optional<std::uint64_t> note(const Address& from, Instant now) {
    const auto found = told_.find(from);
    if (found != told_.end() && now - found->second.told < kInterval) {
      ++found->second.left_out;
      return std::nullopt;
    }
    if (found == told_.end() && told_.size() >= kPeers && !forget_oldest(now)) return std::nullopt;
    Told& told = told_[from];
    const std::uint64_t left_out = told.left_out;
    told = {.told = now};
    order_.push_back({from, now});
    if (order_.size() > 2 * kPeers) drop_superseded();
    return left_out;
  }

  std::size_t size() const { return told_.size(); }

 private:
  struct Told {
    Instant told{};
    std::uint64_t left_out = 0;
  };
  struct When {
    Address from;
    Instant told;
  };

  bool is_last(const When& when) const {
    const auto found = told_.find(when.from);
    return found != told_.end() && found->second.told == when.told;
  }

  // False: all of them were told of within the interval.
  bool forget_oldest(Instant now) {
    while (!order_.empty() && now - order_.front().told >= kInterval) {
      const When oldest = order_.front();
      order_.pop_front();
      if (!is_last(oldest)) continue;
      told_.erase(oldest.from);
      return true;
    }
    return false;
  }

  // As often as it is called, as many new ones have come.
  void drop_superseded() {
    std::erase_if(order_, [this](const When& when) { return !is_last(when); });
  }

  std::unordered_map<Address, Told, AddressHash> told_;
  std::deque<When> order_;  // oldest first
};

}  // namespace weir::pool
