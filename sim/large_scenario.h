// Kinds of trouble for large messages.
#pragma once

#include "base/random.h"
#include "sim/scenario.h"

namespace weir::sim {

void large(Scenario& s, Random& random);
void large_revoke(Scenario& s, Random& random);
void large_exhausted(Scenario& s, Random& random);
void large_expiry(Scenario& s, Random& random);
void large_stall(Scenario& s, Random& random);
void large_restart(Scenario& s, Random& random);
void large_hostile(Scenario& s, Random& random);
void large_hostile_sender(Scenario& s, Random& random);

}  // namespace weir::sim
