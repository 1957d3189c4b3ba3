// SharedPlaces: which locations more than one thread uses, in any run of a search.
//
// An operation on a location that one thread alone uses commutes with everything that others do, so it is no scheduling
// point: a switch in front of it is equivalent to one in front of the thread's next operation on something shared.
// Which locations are shared is learnt by running. When a run finds another one, the search begins anew with it, so a
// search that ends has used the right points throughout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/explore/model.h"

namespace weir::explore {

class SharedPlaces {
 public:
  SharedPlaces() : table_(1 << 12) {}

  // `thread` uses the location: true if others do, too, and somebody changes it.
  bool use(const void* address, Location::Kind kind, std::size_t thread, bool is_write);
  // Whether use() has found one since this was last asked.
  bool take_news();

 private:
  struct Entry {
    std::uint64_t key = 0;
    std::uint8_t threads = 0;  // bit per thread
    bool is_written = false;
    bool is_shared = false;
  };
  Entry& at(std::uint64_t key);
  void grow();

  std::vector<Entry> table_;
  std::size_t used_ = 0;
  bool has_news_ = false;
};

}  // namespace weir::explore
