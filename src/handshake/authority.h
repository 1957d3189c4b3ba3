// Authority: a small certificate authority. It is what `weir identity`, development identities and tests issue
// certificates with.
#pragma once

#include <gnutls/x509.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "handshake/certificate.h"
#include "weir/error.h"

namespace weir::handshake {

enum class KeyType : std::uint8_t { ed25519, p256, rsa };

// Seconds since 1970, UTC; both ends included.
struct Validity {
  std::int64_t from_seconds = 0;
  std::int64_t until_seconds = 0;
};

struct AuthorityRequest {
  std::string name;  // becomes the common name
  Validity validity;
  KeyType key = KeyType::ed25519;
};

struct NodeRequest {
  std::vector<std::string> names;  // DNS names and IP literals; the first also becomes the common name
  Validity validity;               // cut to the authority's own
  KeyType key = KeyType::ed25519;
  // What an ordinary certificate has no reason to change.
  bool for_servers = true;
  bool for_clients = true;
  bool authority = false;    // an intermediate authority instead of a node
  bool cut_validity = true;  // false: as asked, even beyond the authority's own
  bool sha1 = false;         // a signature that nobody should accept; only an RSA authority can make it
  unsigned rsa_bits = 2048;
};

struct Issued {
  std::string chain_pem;  // the certificate, then its issuers up to but without the root
  std::string key_pem;    // PKCS #8, not encrypted
};

// Owns a key and a certificate. Moves; constant otherwise, any thread may issue.
class Authority {
 public:
  static Result<Authority> create(const AuthorityRequest& request);
  // `certificate`: of an authority; if it is an intermediate one, its issuers follow. `key`: its own.
  static Result<Authority> from_pem(std::string_view certificate, std::string_view key);

  Result<Issued> issue(const NodeRequest& request) const;

  const Certificate& certificate() const { return chain_.front(); }
  std::string certificate_pem() const { return certificate().to_pem(); }
  std::string key_pem() const;

 private:
  struct KeyDeleter {
    void operator()(gnutls_x509_privkey_t handle) const { gnutls_x509_privkey_deinit(handle); }
  };
  using Key = std::unique_ptr<std::remove_pointer_t<gnutls_x509_privkey_t>, KeyDeleter>;

  Authority(Key key, std::vector<Certificate> chain) : key_(std::move(key)), chain_(std::move(chain)) {}
  static Result<Key> make_key(KeyType type, unsigned rsa_bits);
  static Result<std::string> export_key(const Key& key);

  Key key_;
  std::vector<Certificate> chain_;
};

}  // namespace weir::handshake
