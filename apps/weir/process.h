// What the commands need of their own process: its CPU, its time, the wish of its user that it end.
#pragma once

#include <cstdint>
#include <string>

#include "weir/error.h"

namespace weir::command {

std::int64_t now_ns();
double cpu_seconds();

// Pins the calling thread, and the threads that it starts from then on.
Result<void> pin_to_core(int core);
// CPUs that this process may use.
int usable_cores();

// Whether a terminal is there whose lines can be drawn again: it knows how, and is as wide as they are.
bool can_redraw(int descriptor, int columns);

// From here on SIGINT and SIGTERM only set a flag; a second one ends the process as usual.
void catch_stop_signals();
bool stop_requested();

}  // namespace weir::command
