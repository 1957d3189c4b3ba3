// Lapse: a certificate that is not replaced serves until its end, and not a moment longer.
#pragma once

#include "base/time.h"
#include "sim/checker.h"
#include "sim/workload.h"
#include "sim/world.h"

namespace weir::sim {

// One per run in which a caller's certificate ends. Lives as long as the checker.
class Lapse {
 public:
  Lapse(World& world, Checker& checker, const WorkloadShape& shape);
  Lapse(const Lapse&) = delete;
  Lapse& operator=(const Lapse&) = delete;

  // The run is over.
  void check_end();

 private:
  void on_run(const CallRecord& record);

  World& world_;
  Checker& checker_;
  const HostId caller_;
  const Instant end_;
  Instant last_run_{};  // of a call of this caller
};

}  // namespace weir::sim
