// The contestant: TLS 1.3 over TCP as OpenSSL does it, with the same certificates, both sides authenticated, nothing
// resumed.
#pragma once

#include <openssl/ssl.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "bench/handshake/identities.h"

namespace weir::bench {

// Closes on destruction. Move-only.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  ~Socket();
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// All sockets are on loopback and do not block, but for the listener in a call of accept() for a connection that is
// there.
Socket tcp_listen(std::uint16_t& port);
Socket tcp_connect(std::uint16_t port);     // may still be under way
Socket tcp_accept(const Socket& listener);  // -1: nobody is there

// One per side; any thread may make sessions of it.
class TlsContext {
 public:
  enum class Role : std::uint8_t { client, server };

  TlsContext(const Identities& identities, Role role);
  SSL_CTX* get() const { return context_.get(); }
  Role role() const { return role_; }

 private:
  struct Deleter {
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  const Role role_;
  std::unique_ptr<SSL_CTX, Deleter> context_;
};

// One side of one connection: it shakes hands, then the client asks and the server answers. One thread at a time.
class TlsSession {
 public:
  // `bytes`: of the request and of the reply.
  TlsSession(const TlsContext& context, Socket socket, std::size_t bytes);

  // Goes on as far as it can without waiting. True when its part is done: the client has its reply, the server has sent
  // one.
  bool advance();
  int descriptor() const { return socket_.get(); }

 private:
  struct Deleter {
    void operator()(SSL* session) const { SSL_free(session); }
  };
  enum class Step : std::uint8_t { handshake, request, reply, done };

  bool read();
  bool write();

  const bool is_client_;
  const std::size_t bytes_;
  Socket socket_;
  std::unique_ptr<SSL, Deleter> session_;
  Step step_ = Step::handshake;
  std::size_t received_ = 0;
};

// Both sides in one thread: shake() makes one connection from the first packet until both know that the other has
// finished, as the endpoints do.
class TlsPair {
 public:
  explicit TlsPair(const Identities& identities);
  void shake();

 private:
  TlsContext client_;
  TlsContext server_;
  std::uint16_t port_ = 0;
  Socket listener_;
};

}  // namespace weir::bench
