#include "bench/handshake/tls.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "bench/handshake/harness.h"

namespace weir::bench {

namespace {

constexpr std::int64_t kPatienceNs = 10'000'000'000;

[[noreturn]] void fail_with_openssl(const char* what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  fail(std::string("OpenSSL: ") + what + ": " + text.data());
}

void require(bool succeeded, const char* what) {
  if (!succeeded) fail_with_openssl(what);
}

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

std::unique_ptr<BIO, Free> reader(const std::string& text) {
  return std::unique_ptr<BIO, Free>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::unique_ptr<X509, Free> parse_certificate(const std::string& text) {
  std::unique_ptr<X509, Free> certificate(PEM_read_bio_X509(reader(text).get(), nullptr, nullptr, nullptr));
  require(certificate != nullptr, "a certificate");
  return certificate;
}

void set_option(int descriptor, int level, int name, const auto& value) {
  if (setsockopt(descriptor, level, name, &value, sizeof(value)) != 0) fail_with_errno("a socket option");
}

// Closing resets: ports do not wait for stragglers, of which there were a thousand a second.
void prepare(int descriptor) {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_LINGER, linger{.l_onoff = 1, .l_linger = 0});
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

}  // namespace

// ---- TCP ----

Socket::~Socket() {
  if (descriptor_ >= 0) close(descriptor_);
}

Socket tcp_listen(std::uint16_t& port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof(address);
  if (socket.get() < 0 || bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      listen(socket.get(), SOMAXCONN) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail_with_errno("cannot listen");
  }
  port = ntohs(address.sin_port);
  return socket;
}

Socket tcp_connect(std::uint16_t port) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) fail_with_errno("no socket");
  prepare(socket.get());
  const sockaddr_in address = loopback(port);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
      errno != EINPROGRESS) {
    fail_with_errno("cannot connect");
  }
  return socket;
}

Socket tcp_accept(const Socket& listener) {
  Socket socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.get() >= 0) prepare(socket.get());
  return socket;
}

// ---- TLS ----

TlsContext::TlsContext(const Identities& identities, Role role)
    : role_(role), context_(SSL_CTX_new(role == Role::client ? TLS_client_method() : TLS_server_method())) {
  const handshake::Issued& own = role == Role::client ? identities.client : identities.server;
  SSL_CTX* const context = context_.get();
  require(context != nullptr, "a context");
  // What Weir negotiates: one cipher, one group, three signatures, no tickets, no cache. Each that is left out saves
  // OpenSSL time.
  require(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1, "TLS 1.3");
  require(SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") == 1, "the cipher");
  require(SSL_CTX_set1_groups_list(context, "X25519") == 1, "the group");
  require(SSL_CTX_set1_sigalgs_list(context, "ed25519:ecdsa_secp256r1_sha256:rsa_pss_rsae_sha256") == 1, "signatures");
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  require(SSL_CTX_set_num_tickets(context, 0) == 1, "no tickets");

  const auto certificate = parse_certificate(own.chain_pem);
  const std::unique_ptr<EVP_PKEY, Free> key(
      PEM_read_bio_PrivateKey(reader(own.key_pem).get(), nullptr, nullptr, nullptr));
  require(key != nullptr, "the key");
  require(SSL_CTX_use_certificate(context, certificate.get()) == 1, "the certificate");
  require(SSL_CTX_use_PrivateKey(context, key.get()) == 1, "the key");
  require(X509_STORE_add_cert(SSL_CTX_get_cert_store(context), parse_certificate(identities.roots).get()) == 1,
          "the root");
  SSL_CTX_set_mode(context, SSL_MODE_AUTO_RETRY | SSL_MODE_ENABLE_PARTIAL_WRITE);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  if (role == Role::client) {
    require(X509_VERIFY_PARAM_set1_ip_asc(SSL_CTX_get0_param(context), kLoopback) == 1, "the expected address");
  }
}

TlsSession::TlsSession(const TlsContext& context, Socket socket, std::size_t bytes)
    : is_client_(context.role() == TlsContext::Role::client),
      bytes_(bytes),
      socket_(std::move(socket)),
      session_(SSL_new(context.get())) {
  require(session_ != nullptr && SSL_set_fd(session_.get(), socket_.get()) == 1, "a session");
  if (is_client_) {
    SSL_set_connect_state(session_.get());
  } else {
    SSL_set_accept_state(session_.get());
  }
}

bool TlsSession::advance() {
  if (step_ == Step::handshake) {
    const int result = SSL_do_handshake(session_.get());
    if (result != 1) {
      const int reason = SSL_get_error(session_.get(), result);
      if (reason != SSL_ERROR_WANT_READ && reason != SSL_ERROR_WANT_WRITE) fail_with_openssl("the handshake");
      return false;
    }
    if (SSL_get_verify_result(session_.get()) != X509_V_OK) fail("OpenSSL: a certificate was not verified");
    step_ = Step::request;
  }
  if (step_ == Step::request) {
    if (!(is_client_ ? write() : read())) return false;
    step_ = Step::reply;
  }
  if (step_ == Step::reply) {
    if (!(is_client_ ? read() : write())) return false;
    step_ = Step::done;
  }
  return true;
}

bool TlsSession::read() {
  std::array<std::byte, 1024> buffer;
  while (received_ < bytes_) {
    const int result = SSL_read(session_.get(), buffer.data(), static_cast<int>(buffer.size()));
    if (result <= 0) {
      if (SSL_get_error(session_.get(), result) != SSL_ERROR_WANT_READ) fail_with_openssl("reading");
      return false;
    }
    received_ += static_cast<std::size_t>(result);
  }
  return true;
}

bool TlsSession::write() {
  static constexpr std::array<std::byte, 1024> kZeros{};
  const int result = SSL_write(session_.get(), kZeros.data(), static_cast<int>(bytes_));
  if (result == static_cast<int>(bytes_)) return true;
  if (SSL_get_error(session_.get(), result) != SSL_ERROR_WANT_WRITE) fail_with_openssl("writing");
  return false;
}

// ---- both in one thread ----

TlsPair::TlsPair(const Identities& identities)
    : client_(identities, TlsContext::Role::client),
      server_(identities, TlsContext::Role::server),
      listener_(tcp_listen(port_)) {}

void TlsPair::shake() {
  TlsSession client(client_, tcp_connect(port_), kOfferBytes);
  Socket accepted = tcp_accept(listener_);
  const std::int64_t patience = wall_ns() + kPatienceNs;
  while (accepted.get() < 0) {
    accepted = tcp_accept(listener_);
    if (wall_ns() > patience) fail("a connection was not accepted");
  }
  TlsSession server(server_, std::move(accepted), kOfferBytes);
  bool client_done = false;
  bool server_done = false;
  while (!client_done || !server_done) {
    if (!client_done) client_done = client.advance();
    if (!server_done) server_done = server.advance();
    if (wall_ns() > patience) fail("a TLS connection did not end");
  }
}

}  // namespace weir::bench
