// Kinds of trouble for hosts that prove who they are.
#pragma once

#include "base/random.h"
#include "sim/scenario.h"

namespace weir::sim {

void identity_lossy(Scenario& s, Random& random);
void identity_both(Scenario& s, Random& random);
void identity_start(Scenario& s, Random& random);
void identity_crash(Scenario& s, Random& random);
void identity_clock(Scenario& s, Random& random);
void identity_evict(Scenario& s, Random& random);
void identity_renew(Scenario& s, Random& random);
void identity_restart(Scenario& s, Random& random);
void identity_replay(Scenario& s, Random& random);
void identity_short(Scenario& s, Random& random);
void members(Scenario& s, Random& random);
void identity_workers(Scenario& scenario, Random& random);
void identity_connecting(Scenario& scenario, Random& random);
void identity_mixed(Scenario& s, Random& random);

}  // namespace weir::sim
