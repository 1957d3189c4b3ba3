// Outbox: completed calls of one post on their way to the lanes of those who wait for them, delivered together at the
// end of a turn.
#pragma once

#include <memory>
#include <vector>

#include "pool/call_record.h"
#include "pool/lane.h"

namespace weir::pool {

// One per post, for its worker only.
class Outbox {
 public:
  // A record that is done and claimed. Its lane stays until the record is delivered.
  void put(CallRecord* record);
  void deliver() {
    if (has_bundles_) deliver_bundles();
  }

 private:
  struct Bundle {  // completed records for one lane
    std::shared_ptr<Lane> lane;
    CallRecord* newest = nullptr;
    CallRecord* oldest = nullptr;
  };
  void deliver_bundles();

  std::vector<Bundle> bundles_;
  Bundle* last_bundle_ = nullptr;
  bool has_bundles_ = false;
};

}  // namespace weir::pool
