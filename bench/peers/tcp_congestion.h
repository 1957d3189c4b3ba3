// Which congestion control the TCP peers use. Some machines default to bbr, which is slow on loopback and would make
// the peers look worse than they are.
#pragma once

#include <string>

namespace weir::bench {

// The one that new TCP sockets of this process really got; empty before the first one exists.
std::string tcp_congestion_in_use();

}  // namespace weir::bench
