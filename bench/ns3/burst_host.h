// BurstHost: what a run asks of a host, whichever protocol it speaks.
#pragma once

#include <ns3/application.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "routes.h"

namespace weir::bench {

struct Messages {
  std::uint32_t request_bytes = 0;
  std::uint32_t reply_bytes = 0;
};

// Every host answers calls, and makes those that it is asked for. Connections stay open between rounds.
class BurstHost : public ns3::Application {
 public:
  static ns3::TypeId GetTypeId();

  // Told of each call as it ends: why it failed; nothing if it succeeded.
  std::function<void(std::string_view)> on_end;

  // Makes a call to each of these at once. All earlier calls have ended.
  virtual void call(const std::vector<HostId>& callees) = 0;

  // Since the beginning: bytes of packets that had been sent before.
  virtual std::uint64_t retransmitted_bytes() const = 0;
  // Packets that arrived with a mark, where the protocol counts those.
  virtual std::uint64_t marks_received() const { return 0; }
  // Packets that came to a full socket.
  virtual std::uint64_t socket_drops() const { return 0; }
};

}  // namespace weir::bench
