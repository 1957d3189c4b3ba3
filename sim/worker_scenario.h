// The scenarios of hosts with several workers, and of hosts that die while others connect to them.
#pragma once

#include "base/random.h"
#include "sim/scenario.h"

namespace weir::sim {

void workers(Scenario& scenario, Random& random);
void connecting(Scenario& scenario, Random& random);
// Parts of scenarios with identities (identity_scenario.h).
void carry_with_identities(Scenario& scenario, Random& random);
void die_with_identities(Scenario& scenario, Random& random);

}  // namespace weir::sim
