// Weir's contestants: a pair of handshake endpoints in one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/address.h"
#include "base/time.h"
#include "bench/handshake/identities.h"
#include "crypto/entropy.h"
#include "handshake/endpoint.h"
#include "link/link.h"
#include "link/receive_buffer.h"

namespace weir::bench {

// One thread. shake() makes one handshake from its first datagram to the last, with both outcomes checked.
class Endpoints {
 public:
  enum class Carrier : std::uint8_t { memory, udp };

  Endpoints(const Identities& identities, Carrier carrier);
  ~Endpoints();
  void shake();

 private:
  struct Side {
    Address address;
    std::unique_ptr<handshake::Endpoint> endpoint;
    std::unique_ptr<link::ReceiveBufferPool> buffers;
    std::unique_ptr<link::Link> link;
  };

  Side open(const Identities& identities, bool is_server);
  // Everything that `from` has to say; whether it was anything.
  bool carry(Side& from, Side& to);
  void expire(Side& side);

  const Carrier carrier_;
  crypto::SystemEntropy entropy_;
  Side client_;
  Side server_;
  std::uint64_t next_tag_ = 1;
  Instant now_{};
  std::vector<std::byte> datagram_;
  std::vector<link::Datagram> received_;
};

}  // namespace weir::bench
