// Opens links.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/address.h"
#include "link/link.h"
#include "weir/error.h"

namespace weir::link {

enum class Kind : std::uint8_t {
  automatic,      // the fastest that this build has
  linux_offload,  // UDP_SEGMENT, UDP_GRO, recvmmsg, sendmmsg
  portable,       // sendmsg and recvmsg
};

struct UdpOptions {
  Address bind;  // port 0: the kernel chooses, see Link::local()
  Kind kind = Kind::automatic;
  std::size_t receive_buffer_bytes = 4 * 1024 * 1024;
  std::size_t send_buffer_bytes = 4 * 1024 * 1024;
  bool force_buffers = false;  // exceed the system's limits; needs CAP_NET_ADMIN, and without it changes nothing
  bool reuse_port = false;     // let several sockets share the port
};

// The pool must outlive the link.
Result<std::unique_ptr<Link>> open_udp(const UdpOptions& options, ReceiveBufferPool& pool);

}  // namespace weir::link
