// QuicPath: an address as QUIC's library wants it.
#pragma once

#include <netinet/in.h>
#include <ngtcp2/ngtcp2.h>

#include <cstring>

#include "base/address.h"

namespace weir::handshake {

// Our own address is always the same one, of no meaning: connections do not migrate. Holds pointers into itself.
class QuicPath {
 public:
  explicit QuicPath(const Address& remote) {
    fill(remote_, remote);
    Address any;
    if (remote.is_v4()) any = Address::v4(0, 0);
    fill(local_, any);
    path_ = {.local = {pointer(local_), length(local_)},
             .remote = {pointer(remote_), length(remote_)},
             .user_data = nullptr};
  }
  QuicPath(const QuicPath&) = delete;
  QuicPath& operator=(const QuicPath&) = delete;

  const ngtcp2_path* get() const { return &path_; }
  const ngtcp2_addr& remote() const { return path_.remote; }

 private:
  union Socket {
    sockaddr generic;
    sockaddr_in v4;
    sockaddr_in6 v6;
  };

  static void fill(Socket& socket, const Address& address) {
    std::memset(&socket, 0, sizeof socket);
    if (address.is_v4()) {
      socket.v4.sin_family = AF_INET;
      socket.v4.sin_port = htons(address.port);
      std::memcpy(&socket.v4.sin_addr, address.ip.data() + 12, 4);
    } else {
      socket.v6.sin6_family = AF_INET6;
      socket.v6.sin6_port = htons(address.port);
      socket.v6.sin6_scope_id = address.scope;
      std::memcpy(&socket.v6.sin6_addr, address.ip.data(), 16);
    }
  }
  static sockaddr* pointer(Socket& socket) { return &socket.generic; }
  static ngtcp2_socklen length(const Socket& socket) {
    return socket.generic.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  }

  Socket local_;
  Socket remote_;
  ngtcp2_path path_;
};

}  // namespace weir::handshake
