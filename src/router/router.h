// Router: which worker serves which peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/address.h"

namespace weir::router {

// One per pool; any thread may call it. A peer's worker is chosen once and kept: of two workers that the address picks,
// the one with fewer peers. Two choices instead of one keep the largest load within a constant of the mean.
class Router {
 public:
  explicit Router(std::size_t workers) : loads_(workers, 0) {}

  std::size_t worker_of(const Address& peer) {
    std::lock_guard lock(mutex_);
    if (const auto found = assigned_.find(peer); found != assigned_.end()) return found->second;
    const auto hash = static_cast<std::uint64_t>(AddressHash{}(peer));
    const std::size_t count = loads_.size();
    const std::size_t one = hash % count;
    // The second differs from the first whenever there are two.
    const std::size_t other = count == 1 ? 0 : (one + 1 + (hash >> 32) % (count - 1)) % count;
    const std::size_t chosen = loads_[other] < loads_[one] ? other : one;
    ++loads_[chosen];
    assigned_.emplace(peer, chosen);
    return chosen;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Address, std::size_t, AddressHash> assigned_;
  std::vector<std::size_t> loads_;
};

}  // namespace weir::router
