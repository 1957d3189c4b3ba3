// Siblings: the engines that receive at one port, each with a socket of its own. The kernel picks the socket by the
// addresses of a datagram, so a datagram of a caller whose address changed may reach another engine than the one that
// has its path.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "base/bytes.h"

namespace weir::engine {

class VouchedSources;

// What is known of the sender of a datagram that is handed over.
enum class Standing : std::uint8_t {
  member,    // it knows the secret, or this is a copy of a packet of one who does
  stranger,  // nothing
};

// Called by every one of the engines, on the thread of each.
class Siblings {
 public:
  virtual ~Siblings() = default;
  // Copies a datagram for the engine of that worker, which takes it by Engine::on_forwarded(). False: there is no room,
  // and the datagram is lost. Neither blocks nor allocates without a bound.
  // Strangers never get the room of members.
  virtual bool forward(std::uint32_t worker, ByteSpan datagram, const Address& from, std::uint8_t ecn,
                       Standing standing) = 0;
  virtual VouchedSources& vouched() = 0;
};

}  // namespace weir::engine
