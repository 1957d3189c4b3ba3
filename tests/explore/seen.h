// Seen: the states that one search has run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir::explore {

// States that were explored before, and with how many preemptions left.
class Seen {
 public:
  Seen() : table_(1 << 16) {}
  // True: at least this much was left when it was seen before.
  bool check_and_add(std::uint64_t key, std::uint8_t left);

 private:
  struct Entry {
    std::uint64_t key = 0;
    std::uint8_t left = 0;
  };
  void grow();
  std::vector<Entry> table_;
  std::size_t used_ = 0;
};

}  // namespace weir::explore
