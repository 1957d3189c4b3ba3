// What both UDP links share: a bound socket, its options, its addresses and its error queue.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

#include "base/address.h"
#include "base/fork_guard.h"
#include "link/link.h"
#include "link/open.h"
#include "weir/error.h"

namespace weir::link {

// Error returns in a row that a send or receive takes for reports about earlier datagrams before it gives up.
inline constexpr int kMaxStrayErrors = 16;

// A socket address in the form that the kernel wants.
struct SocketAddress {
  union {
    sockaddr any;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };
  socklen_t size = 0;

  SocketAddress() : v6{} {}
  explicit SocketAddress(const Address& address);

  // An unspecified address if the family is neither of ours.
  Address address() const;
};

// The ECN field of a received message; not_ect if the kernel did not tell.
Ecn received_ecn(const msghdr& message);

// A bound, non-blocking UDP socket. Owns the descriptor; one per link.
class UdpSocket {
 public:
  static Result<UdpSocket> open(const UdpOptions& options);

  UdpSocket(UdpSocket&& other) noexcept;
  UdpSocket& operator=(UdpSocket&&) = delete;
  ~UdpSocket();

  int descriptor() const { return descriptor_; }
  // In a forked child the socket is its parent's: nothing may be sent, received or asked of it.
  bool is_in_child() const { return fork_guard_.is_in_child(); }
  // There: this process needs its copy of the descriptor no longer.
  void close_in_child();
  const Address& local() const { return local_; }
  bool is_v4() const { return local_.is_v4(); }
  const LinkReport& report() const { return report_; }

  // A call returned an error that may speak of an earlier datagram, so there may be something to take.
  void note_error() { has_error_ = true; }
  bool take_unreachable(Unreachable& out);

  // The status of a train after errors that were no stray ones.
  static SendStatus status_of(int error);

 private:
  explicit UdpSocket(int descriptor) : descriptor_(descriptor) {}

  void set_buffers(const UdpOptions& options);
  void set_path_options(bool is_v4);

  int descriptor_;
  ForkGuard fork_guard_;
  bool has_error_ = false;
  Address local_;
  LinkReport report_;
};

}  // namespace weir::link
