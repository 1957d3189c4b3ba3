// AddressChange: an initiator's packets come from another address than before (docs/protocol.md, rules P-9 and P-11 to
// P-13).
#pragma once

#include <cstdint>

#include "base/address.h"
#include "base/time.h"

namespace weir::engine {

// One attempt to validate a new address; the responder's. At most one at a time on a path.
struct AddressChange {
  Address to;
  std::uint64_t since = 0;           // the number of the packet that began the attempt
  std::uint64_t challenge = 0;       // that only the initiator, if it receives at `to`, can send back from there
  std::uint64_t received_bytes = 0;  // from `to`, of packets that authenticated
  std::uint64_t sent_bytes = 0;      // to `to`
  std::uint32_t challenges = 0;      // sent
  bool is_answered = false;          // from `to`
  Instant quiet_until{};             // an old address that has sent nothing by then is given up
  Instant next{};                    // when there is something to do
  Instant rest_until{};              // no other attempt begins before
  bool is_resting = false;           // it has ended

  void rest() {
    is_resting = true;
    next = rest_until;
  }
};

}  // namespace weir::engine
