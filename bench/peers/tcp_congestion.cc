#include "tcp_congestion.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace weir::bench {
namespace {

// Sockets may be created by any thread of a library; the name only ever goes from null to one literal.
std::atomic<const char*> in_use{nullptr};

}  // namespace

std::string tcp_congestion_in_use() {
  const char* name = in_use.load(std::memory_order_relaxed);  // a literal: nothing else is published with it
  return name == nullptr ? "" : name;
}

}  // namespace weir::bench

// Neither library has a setting for it, so their calls of socket() come here. Accepted sockets inherit the listener's.
// cubic needs a privilege where the administrator has not allowed it; reno never does.
extern "C" int socket(int domain, int type, int protocol) noexcept {
  int descriptor = static_cast<int>(syscall(SYS_socket, domain, type, protocol));
  if (descriptor < 0 || (domain != AF_INET && domain != AF_INET6) || (type & 0xf) != SOCK_STREAM) return descriptor;
  int saved_errno = errno;
  for (const char* name : std::array{"cubic", "reno"}) {
    if (setsockopt(descriptor, IPPROTO_TCP, TCP_CONGESTION, name, static_cast<socklen_t>(std::strlen(name))) == 0) {
      weir::bench::in_use.store(name, std::memory_order_relaxed);
      break;
    }
  }
  errno = saved_errno;
  return descriptor;
}
