// Scenarios about what is sent again in vain.
#pragma once

#include "base/random.h"
#include "sim/scenario.h"

namespace weir::sim {

void jitter(Scenario& s, Random& random);
void jitter_lossy(Scenario& s, Random& random);
void stall_burst(Scenario& s, Random& random);

}  // namespace weir::sim
