// Who the simulated hosts are: certificates of one authority, all of one size.
#pragma once

#include <cstdint>
#include <memory>

#include "base/time.h"
#include "handshake/credentials.h"
#include "sim/network.h"

namespace weir::sim {

// Certificates are valid for so long before and after the beginning of a run.
inline constexpr std::int64_t kValidSeconds = 3'600;

// Made when first asked for and kept for the life of the process: making them is slow, and no run changes them. They
// prove the host's IP address. Ed25519 throughout: signatures of one size, whatever GnuTLS's dice show, so that runs
// repeat.
std::shared_ptr<const handshake::Credentials> identity_of(HostId host, const Address& address);

// Seconds since 1970 at a virtual instant, by a clock that is right.
std::int64_t wall_seconds(Instant now);

}  // namespace weir::sim
