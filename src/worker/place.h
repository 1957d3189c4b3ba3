// Where threads run.
#pragma once

#include <atomic>

#include "weir/config.h"
#include "weir/error.h"

namespace weir::worker {

// Whether this machine has the core and node that `place` names.
Result<void> validate(const WorkerPlace& place);
// Binds the calling thread. An error leaves it where it was.
Result<void> pin_this_thread(const WorkerPlace& place);
// The NUMA node that a thread at this place is on; -1: it may be anywhere, or the system does not say.
int node_of(const WorkerPlace& place);
void name_this_thread(const char* name);

// CPUs that this process may use, at least 1.
int usable_cores();

// Threads of this process that work or spin. More of them than cores: who waits must yield at once. A process-wide
// figure, because cores are; only a hint, so relaxed everywhere.
inline std::atomic<int> active_threads{0};
bool is_crowded();

}  // namespace weir::worker
