// What runs in a fabric came to, as one page that needs nothing but itself.
#pragma once

#include <span>
#include <string>

#include "sim/fabric_run.h"

namespace weir::sim {

// A whole HTML document: for each run a paragraph, its goals, pictures and tables.
std::string fabric_page(std::span<const FabricReport> reports);

}  // namespace weir::sim
