#include "link/open.h"

#include <utility>

#include "link/udp_portable.h"
#include "link/udp_socket.h"

// WEIR_PORTABLE_UDP leaves the Linux link out, as other systems do.
#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)
#define WEIR_HAS_UDP_LINUX 1
#include "link/udp_linux.h"
#endif

namespace weir::link {

Result<std::unique_ptr<Link>> open_udp(const UdpOptions& options, ReceiveBufferPool& pool) {
#if !defined(WEIR_HAS_UDP_LINUX)
  if (options.kind == Kind::linux_offload) {
    return std::unexpected(Error{Code::invalid_argument, "this build has no UDP link with Linux offloads"});
  }
#endif
  Result<UdpSocket> socket = UdpSocket::open(options);
  if (!socket) return std::unexpected(socket.error());
#if defined(WEIR_HAS_UDP_LINUX)
  if (options.kind != Kind::portable) return std::make_unique<UdpLinux>(std::move(*socket), pool);
#endif
  return std::make_unique<UdpPortable>(std::move(*socket), pool);
}

}  // namespace weir::link
