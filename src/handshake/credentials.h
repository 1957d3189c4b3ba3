// Credentials: who we are (a certificate chain and its key) and whom we believe (our roots), ready for a TLS session.
#pragma once

#include <gnutls/gnutls.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "handshake/certificate.h"
#include "handshake/names.h"
#include "weir/error.h"

namespace weir::handshake {

class TrustList;

inline constexpr std::size_t kMaxChain = 8;                     // certificates, ours or a peer's
inline constexpr std::size_t kMaxCertificateBytes = 16 * 1024;  // of one certificate of a peer
inline constexpr std::size_t kMaxRoots = 256;
inline constexpr std::size_t kMaxPemBytes = 1 << 20;  // of one file of ours
inline constexpr unsigned kMinRsaBits = 2048;

// Immutable and shared: a pool has one at a time, and a session keeps the one that it began with, so that new
// certificates disturb no handshake. Any thread may call it.
class Credentials {
 public:
  // PEM texts. `chain`: our certificate, then the intermediate ones. Errors are ours to repair: invalid_argument.
  // `development` marks the peers that these roots vouch for, see Names.
  static Result<std::shared_ptr<const Credentials>> from_pem(std::string_view chain, std::string_view key,
                                                             std::string_view roots, bool development = false);
  ~Credentials();
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  // Our chain and key. It holds no roots on purpose: GnuTLS verifies nothing and a server's request for a
  // certificate names no issuers, so that a client with a foreign certificate shows it and is told what is wrong with
  // it. The session must therefore ask for a certificate (GNUTLS_CERT_REQUIRE) and call verify().
  gnutls_certificate_credentials_t gnutls() const { return credentials_; }

  // Judges a peer's chain (DER, the peer's own certificate first, as gnutls_certificate_get_peers() has it): it must
  // lead to one of our roots (never the system's), every certificate must be valid at `wall_seconds` (since 1970, UTC),
  // every key be strong enough, and its purpose fit the peer's role. That the peer has the key, TLS has shown.
  // Errors: unauthenticated, with a sentence that tells what is wrong.
  Result<Names> verify(std::span<const gnutls_datum_t> chain, std::int64_t wall_seconds, bool peer_is_server) const;

  bool is_development() const { return development_; }
  const Certificate& certificate() const { return chain_.front(); }
  // The last second in which our whole chain is valid.
  std::int64_t valid_until_seconds() const;
  // What our own certificate says about us.
  const Names& names() const { return names_; }

 private:
  Credentials();

  std::vector<Certificate> chain_;
  std::vector<Certificate> roots_;
  std::unique_ptr<const TrustList> trust_;  // of all roots, which it points at
  Names names_;
  bool development_ = false;
  gnutls_certificate_credentials_t credentials_ = nullptr;
};

}  // namespace weir::handshake
