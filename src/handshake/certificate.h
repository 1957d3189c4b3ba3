// Certificate: one X.509 certificate, parsed, with what we ask of one.
#pragma once

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "handshake/names.h"
#include "weir/error.h"

namespace weir::handshake {

// Owns GnuTLS's object. Moves, does not change once parsed: any thread may read it.
class Certificate {
 public:
  static Result<Certificate> from_der(std::span<const unsigned char> der);
  // All certificates of a PEM text, in its order: at least one, at most `max`. `what` names the text in errors.
  static Result<std::vector<Certificate>> list_from_pem(std::string_view pem, std::size_t max, std::string_view what);

  explicit Certificate(gnutls_x509_crt_t adopted) : handle_(adopted) {}

  gnutls_x509_crt_t gnutls() const { return handle_.get(); }

  // Printable ASCII of bounded length, whatever the certificate has in it: fit for errors and logs.
  std::string subject() const;
  std::string issuer() const;

  std::int64_t not_before_seconds() const;  // since 1970, UTC
  std::int64_t not_after_seconds() const;   // the last second at which it is valid
  bool is_self_issued() const;
  bool is_authority() const;

  // Empty if the key and the signature's hash are strong enough; otherwise what is wrong ("an RSA key of 1024 bits").
  std::string key_weakness() const;
  std::string signature_weakness() const;
  std::string key_type() const;  // "Ed25519", "ECDSA P-256", "RSA 2048"

  Result<Names> names() const;
  std::string serial() const;       // hexadecimal
  std::string fingerprint() const;  // SHA-256 of the whole, hexadecimal
  // Tells one certificate from another; never 0. It comes from what the issuer has signed: the holder can write the
  // signature in other ways, which changes the fingerprint.
  std::uint64_t number() const;
  std::vector<std::string> purposes() const;
  std::string to_pem() const;
  std::vector<unsigned char> to_der() const;

 private:
  struct Deleter {
    void operator()(gnutls_x509_crt_t handle) const { gnutls_x509_crt_deinit(handle); }
  };
  std::unique_ptr<std::remove_pointer_t<gnutls_x509_crt_t>, Deleter> handle_;
};

// "2026-03-01 12:00:00 UTC"
std::string utc_text(std::int64_t seconds);
// Printable ASCII, at most `max` bytes.
std::string printable(std::string_view text, std::size_t max = 160);

}  // namespace weir::handshake
