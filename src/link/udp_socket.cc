#if defined(__APPLE__)
#define __APPLE_USE_RFC_3542  // IPV6_RECVTCLASS
#endif

#include "link/udp_socket.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>
#include <utility>

#if defined(__linux__)
#include <linux/errqueue.h>
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#endif

namespace weir::link {
namespace {

// Largest payloads: 65,535 less the headers. IPv6 could do 40 bytes more, but over hardly any interface.
constexpr std::size_t kMaxDatagramV4 = 65'507;
constexpr std::size_t kMaxDatagramV6 = 65'487;

bool set_option(int descriptor, int level, int option, int value) {
  return setsockopt(descriptor, level, option, &value, sizeof value) == 0;
}

std::size_t buffer_size(int descriptor, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  if (getsockopt(descriptor, SOL_SOCKET, option, &value, &size) != 0) return 0;
#if defined(__linux__)
  value /= 2;
#endif
  return static_cast<std::size_t>(value);
}

std::size_t ask_for_buffer(int descriptor, int option, [[maybe_unused]] int force_option, bool force,
                           std::size_t wanted_bytes) {
  const int wanted = static_cast<int>(std::min<std::size_t>(wanted_bytes, INT_MAX / 2));
  // The plain request first: it is capped but cannot fail for lack of a right, and forcing then only adds to it.
  set_option(descriptor, SOL_SOCKET, option, wanted);
#if defined(__linux__)
  if (force) set_option(descriptor, SOL_SOCKET, force_option, wanted);
#else
  // Other kernels refuse what is too large instead of capping it.
  for (int smaller = wanted; buffer_size(descriptor, option) < static_cast<std::size_t>(smaller) && smaller > 65'536;) {
    smaller /= 2;
    if (set_option(descriptor, SOL_SOCKET, option, smaller)) break;
  }
  static_cast<void>(force);
#endif
  return buffer_size(descriptor, option);
}

Error system_error(const std::string& what, int error) { return {Code::system, what + ": " + std::strerror(error)}; }

}  // namespace

SocketAddress::SocketAddress(const Address& address) : v6{} {
  if (address.is_v4()) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    std::memcpy(&v4.sin_addr, address.ip.data() + 12, 4);
    size = sizeof v4;
  } else {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    v6.sin6_scope_id = address.scope;
    std::memcpy(&v6.sin6_addr, address.ip.data(), 16);
    size = sizeof v6;
  }
}

Address SocketAddress::address() const {
  if (any.sa_family == AF_INET) return Address::v4(ntohl(v4.sin_addr.s_addr), ntohs(v4.sin_port));
  Address address;
  if (any.sa_family == AF_INET6) {
    std::memcpy(address.ip.data(), &v6.sin6_addr, 16);
    address.port = ntohs(v6.sin6_port);
    address.scope = static_cast<std::uint16_t>(v6.sin6_scope_id);
  }
  return address;
}

Ecn received_ecn(const msghdr& message) {
  for (const cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
       control = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(control))) {
    bool is_field = false;
#if defined(IP_RECVTOS)
    // Linux names the message IP_TOS, the BSDs IP_RECVTOS.
    is_field |= control->cmsg_level == IPPROTO_IP && (control->cmsg_type == IP_TOS || control->cmsg_type == IP_RECVTOS);
#endif
#if defined(IPV6_TCLASS)
    is_field |= control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_TCLASS;
#endif
    // One byte or an int, by family and system; in both the field is in the first byte here (little-endian).
    if (is_field) return static_cast<Ecn>(*CMSG_DATA(control) & 3);
  }
  return Ecn::not_ect;
}

Result<UdpSocket> UdpSocket::open(const UdpOptions& options) {
  const std::string name = options.bind.to_string();
  const bool is_v4 = options.bind.is_v4();
  const int descriptor = ::socket(is_v4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
  if (descriptor < 0) return std::unexpected(system_error("cannot make a UDP socket for " + name, errno));
  UdpSocket socket{descriptor};
  if (fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0 ||
      fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL, 0) | O_NONBLOCK) != 0) {
    return std::unexpected(system_error("cannot make the UDP socket for " + name + " non-blocking", errno));
  }
  if (options.reuse_port && !set_option(descriptor, SOL_SOCKET, SO_REUSEPORT, 1)) {
    return std::unexpected(system_error("cannot share the port of " + name, errno));
  }
  if (!is_v4) set_option(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, 1);
  socket.set_path_options(is_v4);
  socket.set_buffers(options);

  const SocketAddress wanted{options.bind};
  if (::bind(descriptor, &wanted.any, wanted.size) != 0) {
    return std::unexpected(system_error("cannot bind " + name, errno));
  }
  SocketAddress bound;
  bound.size = sizeof bound.v6;
  if (getsockname(descriptor, &bound.any, &bound.size) != 0) {
    return std::unexpected(system_error("cannot read the address of the socket for " + name, errno));
  }
  socket.local_ = bound.address();
  return socket;
}

UdpSocket::UdpSocket(UdpSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      fork_guard_(other.fork_guard_),
      has_error_(other.has_error_),
      local_(other.local_),
      report_(other.report_) {}

void UdpSocket::close_in_child() {
  if (is_in_child() && descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

UdpSocket::~UdpSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void UdpSocket::set_buffers(const UdpOptions& options) {
#if defined(SO_RCVBUFFORCE)
  constexpr int kForceReceive = SO_RCVBUFFORCE;
  constexpr int kForceSend = SO_SNDBUFFORCE;
#else
  constexpr int kForceReceive = 0;
  constexpr int kForceSend = 0;
#endif
  report_.receive_buffer_asked_bytes = options.receive_buffer_bytes;
  report_.receive_buffer_bytes =
      ask_for_buffer(descriptor_, SO_RCVBUF, kForceReceive, options.force_buffers, options.receive_buffer_bytes);
  report_.receive_buffer_clamped = report_.receive_buffer_bytes < options.receive_buffer_bytes;
  report_.send_buffer_asked_bytes = options.send_buffer_bytes;
  report_.send_buffer_bytes =
      ask_for_buffer(descriptor_, SO_SNDBUF, kForceSend, options.force_buffers, options.send_buffer_bytes);
  report_.send_buffer_clamped = report_.send_buffer_bytes < options.send_buffer_bytes;
}

// None of these is needed to carry datagrams, so a refusal is reported and not an error.
void UdpSocket::set_path_options(bool is_v4) {
  report_.max_datagram_bytes = is_v4 ? kMaxDatagramV4 : kMaxDatagramV6;
#if defined(IP_RECVTOS)
  if (is_v4) report_.ecn_receive = set_option(descriptor_, IPPROTO_IP, IP_RECVTOS, 1);
#endif
#if defined(IP_TOS)
  if (is_v4) report_.ecn_send = set_option(descriptor_, IPPROTO_IP, IP_TOS, 0);
#endif
#if defined(IPV6_RECVTCLASS) && defined(IPV6_TCLASS)
  if (!is_v4) {
    report_.ecn_receive = set_option(descriptor_, IPPROTO_IPV6, IPV6_RECVTCLASS, 1);
    report_.ecn_send = set_option(descriptor_, IPPROTO_IPV6, IPV6_TCLASS, 0);
  }
#endif
  // Never fragment, and let probes be larger than what the kernel believes of the path: finding its MTU is our task.
#if defined(IP_MTU_DISCOVER)
  if (is_v4) set_option(descriptor_, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  if (!is_v4) set_option(descriptor_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
#else
#if defined(IP_DONTFRAG)
  if (is_v4) set_option(descriptor_, IPPROTO_IP, IP_DONTFRAG, 1);
#endif
#if defined(IPV6_DONTFRAG)
  if (!is_v4) set_option(descriptor_, IPPROTO_IPV6, IPV6_DONTFRAG, 1);
#endif
#endif
#if defined(__linux__)
  report_.unreachable_reports = is_v4 ? set_option(descriptor_, IPPROTO_IP, IP_RECVERR, 1)
                                      : set_option(descriptor_, IPPROTO_IPV6, IPV6_RECVERR, 1);
#endif
}

SendStatus UdpSocket::status_of(int error) {
  switch (error) {
    case EAGAIN:
      return SendStatus::would_block;
    case EMSGSIZE:
      return SendStatus::too_big;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
    case EADDRNOTAVAIL:
      return SendStatus::unreachable;
    default:
      // ENOBUFS too: the device's queue is full while the socket stays writable, so waiting for it would spin. The
      // train is as good as lost on the way, and recovery slows down.
      return SendStatus::failed;
  }
}

#if defined(__linux__)

bool UdpSocket::take_unreachable(Unreachable& out) {
  if (has_error_ && is_in_child()) return false;
  // Entries looked at per call; the rest, if they were none of ours, are left for the next call.
  constexpr int kMaxEntries = 64;
  for (int entry = 0; has_error_ && entry < kMaxEntries; ++entry) {
    SocketAddress destination;
    alignas(cmsghdr) std::byte control_bytes[256];
    out.quoted_size = 0;
    iovec quoted{out.quoted.data(), out.quoted.size()};
    msghdr message{};
    message.msg_name = &destination.any;
    message.msg_namelen = sizeof destination.v6;
    message.msg_iov = &quoted;
    message.msg_iovlen = 1;
    message.msg_control = control_bytes;
    message.msg_controllen = sizeof control_bytes;
    const ssize_t size = recvmsg(descriptor_, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (size < 0) {
      if (errno == EINTR) continue;
      has_error_ = false;
      return false;
    }
    for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr; control = CMSG_NXTHDR(&message, control)) {
      const bool is_v4_error = control->cmsg_level == IPPROTO_IP && control->cmsg_type == IP_RECVERR;
      const bool is_v6_error = control->cmsg_level == IPPROTO_IPV6 && control->cmsg_type == IPV6_RECVERR;
      if (!is_v4_error && !is_v6_error) continue;
      sock_extended_err error;
      std::memcpy(&error, CMSG_DATA(control), sizeof error);
      const bool is_v4_unreachable = error.ee_origin == SO_EE_ORIGIN_ICMP && error.ee_type == ICMP_DEST_UNREACH &&
                                     error.ee_code != ICMP_FRAG_NEEDED;
      const bool is_v6_unreachable = error.ee_origin == SO_EE_ORIGIN_ICMP6 && error.ee_type == ICMPV6_DEST_UNREACH;
      if (!is_v4_unreachable && !is_v6_unreachable) continue;
      out.who = destination.address();
      out.port_closed = error.ee_code == (is_v4_unreachable ? ICMP_PORT_UNREACH : ICMPV6_PORT_UNREACH);
      out.quoted_size = static_cast<std::uint8_t>(size);
      return true;
    }
  }
  return false;
}

#else

bool UdpSocket::take_unreachable(Unreachable&) {
  has_error_ = false;
  return false;
}

#endif

}  // namespace weir::link
