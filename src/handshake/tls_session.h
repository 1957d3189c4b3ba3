// TlsSession: the TLS 1.3 half of one handshake.
#pragma once

#include <gnutls/gnutls.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/address.h"
#include "handshake/credentials.h"
#include "handshake/outcome.h"

namespace weir::handshake {

enum class Role : std::uint8_t { initiator, responder };

inline constexpr std::string_view kProtocol = "weir/1";  // ALPN; both sides insist on it

using WallClock = std::function<std::int64_t()>;            // seconds since 1970, UTC
using KeyLog = std::function<void(std::string_view line)>;  // NSS format, without the line's end

// Which algorithms we speak, parsed once: each session would otherwise keep a copy of 8 KiB. One per endpoint.
class TlsPolicy {
 public:
  TlsPolicy();
  ~TlsPolicy();
  TlsPolicy(const TlsPolicy&) = delete;
  TlsPolicy& operator=(const TlsPolicy&) = delete;
  gnutls_priority_t gnutls() const { return priority_; }  // null: the library lacks them

 private:
  gnutls_priority_t priority_ = nullptr;
};

// One per connection, owned by it and never moved: GnuTLS and ngtcp2 hold its address. Certificates are judged inside
// the handshake, before the peer's Finished is looked at.
class TlsSession {
 public:
  struct Options {
    Role role;
    const TlsPolicy* policy;  // outlives the session
    std::shared_ptr<const Credentials> credentials;
    const WallClock* wall_clock;  // outlives the session
    const KeyLog* key_log;        // outlives the session; may be empty
    Address remote;
    std::string expected_name;  // initiator; empty: the certificate must prove the address
  };
  static Result<std::unique_ptr<TlsSession>> open(Options options);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // ngtcp2's callbacks find the connection through the session.
  void attach(ngtcp2_conn* connection);

  // Why the peer's certificate was refused, if it was.
  const std::optional<Error>& refusal() const { return refusal_; }
  const Names& names() const { return names_; }

  // After the handshake: what the priority string cannot demand, and the keys.
  Result<void> check() const;
  Result<void> export_keys(crypto::Secret& secret, CredentialId& credential) const;

 private:
  explicit TlsSession(Options options) : options_(std::move(options)) {}
  Result<void> configure();
  Result<Names> judge() const;
  void log_key(const char* label, const gnutls_datum_t& secret) const;

  static TlsSession& of(gnutls_session_t session);

  Options options_;
  gnutls_session_t session_ = nullptr;
  ngtcp2_conn* connection_ = nullptr;
  ngtcp2_crypto_conn_ref reference_{};
  bool accepted_ = false;
  Names names_;  // once accepted
  std::optional<Error> refusal_;
};

}  // namespace weir::handshake
