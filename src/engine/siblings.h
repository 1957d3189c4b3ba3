// Siblings: the engines that receive at one port, each with a socket of its own. The kernel picks the socket by the
// addresses of a datagram, so a datagram of a caller whose address changed may reach another engine than the one that
// has its path.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "base/bytes.h"

namespace weir::engine {

// Called by every one of the engines, on the thread of each.
class Siblings {
 public:
  virtual ~Siblings() = default;
  // Copies a datagram for the engine of that worker, which takes it by Engine::on_forwarded(). False: there is no room,
  // and the datagram is lost. Neither blocks nor allocates without a bound.
  virtual bool forward(std::uint32_t worker, ByteSpan datagram, const Address& from, std::uint8_t ecn) = 0;
};

}  // namespace weir::engine
