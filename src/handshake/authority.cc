#include "handshake/authority.h"

#include <gnutls/abstract.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>
#include <utility>

#include "crypto/entropy.h"
#include "crypto/secret.h"
#include "handshake/credentials.h"

namespace weir::handshake {
namespace {

constexpr std::size_t kSerialBytes = 16;
constexpr std::size_t kMaxCommonNameBytes = 64;  // what X.520 allows

Error invalid(std::string sentence) { return Error(Code::invalid_argument, std::move(sentence)); }

// Remembers the first failure of a series of GnuTLS calls.
class Steps {
 public:
  void operator()(int status, const char* what) {
    if (status < 0 && !error_) {
      error_ = Error(Code::system, "cannot make a certificate: " + std::string(what) + ": " + gnutls_strerror(status));
    }
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::optional<Error> error_;
};

Result<Certificate> empty_certificate() {
  gnutls_x509_crt_t handle = nullptr;
  if (gnutls_x509_crt_init(&handle) != 0) return std::unexpected(Error(Code::system, "no memory for a certificate"));
  return Certificate(handle);
}

gnutls_digest_algorithm_t digest_for(gnutls_x509_privkey_t signer, bool sha1) {
  if (sha1) return GNUTLS_DIG_SHA1;
  return gnutls_x509_privkey_get_pk_algorithm(signer) == GNUTLS_PK_EDDSA_ED25519 ? GNUTLS_DIG_SHA512
                                                                                 : GNUTLS_DIG_SHA256;
}

void set_common_parts(Steps& step, gnutls_x509_crt_t certificate, const std::string& common_name, Validity validity,
                      gnutls_x509_privkey_t key) {
  step(gnutls_x509_crt_set_version(certificate, 3), "version");
  std::array<std::byte, kSerialBytes> serial;
  crypto::SystemEntropy{}.fill(serial);
  // Positive, and of the same length each time.
  serial[0] = (serial[0] & std::byte{0x7f}) | std::byte{0x40};
  step(gnutls_x509_crt_set_serial(certificate, serial.data(), serial.size()), "serial number");
  step(gnutls_x509_crt_set_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, common_name.data(),
                                     static_cast<unsigned>(common_name.size())),
       "name");
  step(gnutls_x509_crt_set_activation_time(certificate, static_cast<std::time_t>(validity.from_seconds)), "validity");
  step(gnutls_x509_crt_set_expiration_time(certificate, static_cast<std::time_t>(validity.until_seconds)), "validity");
  step(gnutls_x509_crt_set_key(certificate, key), "key");
  std::array<unsigned char, 20> id;
  std::size_t size = id.size();
  step(gnutls_x509_crt_get_key_id(certificate, 0, id.data(), &size), "key id");
  step(gnutls_x509_crt_set_subject_key_id(certificate, id.data(), size), "key id");
}

void make_authority(Steps& step, gnutls_x509_crt_t certificate) {
  step(gnutls_x509_crt_set_basic_constraints(certificate, 1, -1), "constraints");
  step(gnutls_x509_crt_set_key_usage(certificate, GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN), "key usage");
}

void add_name(Steps& step, gnutls_x509_crt_t certificate, const std::string& name) {
  if (const auto ip = parse_ip(name)) {
    const std::size_t skipped = Address{.ip = *ip}.is_v4() ? 12 : 0;
    step(gnutls_x509_crt_set_subject_alt_name(certificate, GNUTLS_SAN_IPADDRESS, ip->data() + skipped,
                                              static_cast<unsigned>(ip->size() - skipped), GNUTLS_FSAN_APPEND),
         "address");
  } else {
    step(gnutls_x509_crt_set_subject_alt_name(certificate, GNUTLS_SAN_DNSNAME, name.data(),
                                              static_cast<unsigned>(name.size()), GNUTLS_FSAN_APPEND),
         "name");
  }
}

void make_node(Steps& step, gnutls_x509_crt_t certificate, const NodeRequest& request) {
  step(gnutls_x509_crt_set_basic_constraints(certificate, 0, -1), "constraints");
  step(gnutls_x509_crt_set_key_usage(certificate, GNUTLS_KEY_DIGITAL_SIGNATURE), "key usage");
  if (request.for_servers) {
    step(gnutls_x509_crt_set_key_purpose_oid(certificate, GNUTLS_KP_TLS_WWW_SERVER, 0), "purpose");
  }
  if (request.for_clients) {
    step(gnutls_x509_crt_set_key_purpose_oid(certificate, GNUTLS_KP_TLS_WWW_CLIENT, 0), "purpose");
  }
  for (const std::string& name : request.names) add_name(step, certificate, name);
}

std::optional<Error> trouble_with(const NodeRequest& request) {
  if (request.names.empty()) return invalid("a certificate needs a name");
  if (request.names.size() > kMaxNames) return invalid("a certificate has at most 64 names");
  if (request.authority) return std::nullopt;
  for (const std::string& name : request.names) {
    if (!parse_ip(name) && !is_host_name(name, true)) {
      return invalid("\"" + printable(name) + "\" is neither a host name nor an IP address");
    }
  }
  return std::nullopt;
}

std::string common_name_for(std::string_view name) { return std::string(name.substr(0, kMaxCommonNameBytes)); }

}  // namespace

Result<Authority::Key> Authority::make_key(KeyType type, unsigned rsa_bits) {
  gnutls_x509_privkey_t handle = nullptr;
  if (gnutls_x509_privkey_init(&handle) != 0) return std::unexpected(Error(Code::system, "no memory for a key"));
  Key key(handle);
  int status = 0;
  switch (type) {
    case KeyType::ed25519:
      status = gnutls_x509_privkey_generate(handle, GNUTLS_PK_EDDSA_ED25519, 256, 0);
      break;
    case KeyType::p256:
      status =
          gnutls_x509_privkey_generate(handle, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
      break;
    case KeyType::rsa:
      status = gnutls_x509_privkey_generate(handle, GNUTLS_PK_RSA, rsa_bits, 0);
      break;
  }
  if (status != 0) {
    return std::unexpected(Error(Code::system, "cannot make a key: " + std::string(gnutls_strerror(status))));
  }
  return key;
}

Result<std::string> Authority::export_key(const Key& key) {
  gnutls_datum_t out{nullptr, 0};
  const int status =
      gnutls_x509_privkey_export2_pkcs8(key.get(), GNUTLS_X509_FMT_PEM, nullptr, GNUTLS_PKCS_PLAIN, &out);
  if (status != 0) {
    return std::unexpected(Error(Code::system, "cannot export a key: " + std::string(gnutls_strerror(status))));
  }
  std::string pem(reinterpret_cast<const char*>(out.data), out.size);
  crypto::wipe({reinterpret_cast<std::byte*>(out.data), out.size});
  gnutls_free(out.data);
  return pem;
}

Result<Authority> Authority::create(const AuthorityRequest& request) {
  if (request.name.empty()) return std::unexpected(invalid("an authority needs a name"));
  if (request.name.size() > kMaxCommonNameBytes || printable(request.name) != request.name) {
    return std::unexpected(invalid("the name of an authority is at most 64 printable ASCII characters"));
  }
  if (request.validity.until_seconds <= request.validity.from_seconds) {
    return std::unexpected(invalid("an authority must end after it begins"));
  }
  auto key = make_key(request.key, kMinRsaBits);
  if (!key) return std::unexpected(key.error());
  auto made = empty_certificate();
  if (!made) return std::unexpected(made.error());
  Steps step;
  set_common_parts(step, made->gnutls(), request.name, request.validity, key->get());
  make_authority(step, made->gnutls());
  step(gnutls_x509_crt_sign2(made->gnutls(), made->gnutls(), key->get(), digest_for(key->get(), false), 0),
       "signature");
  if (step.error()) return std::unexpected(*step.error());
  // Parsed anew, so that it is exactly what others will see.
  auto parsed = Certificate::list_from_pem(made->to_pem(), 1, "the authority's certificate");
  if (!parsed) return std::unexpected(parsed.error());
  return Authority(std::move(*key), std::move(*parsed));
}

Result<Authority> Authority::from_pem(std::string_view certificate, std::string_view key_pem) {
  // Checks everything that credentials check, above all that the two belong together.
  if (auto credentials = Credentials::from_pem(certificate, key_pem, certificate); !credentials) {
    return std::unexpected(credentials.error());
  }
  auto chain = Certificate::list_from_pem(certificate, kMaxChain, "the authority's certificate");
  if (!chain) return std::unexpected(chain.error());
  if (!chain->front().is_authority()) {
    return std::unexpected(invalid("\"" + chain->front().subject() + "\" is not the certificate of an authority"));
  }
  gnutls_x509_privkey_t handle = nullptr;
  if (gnutls_x509_privkey_init(&handle) != 0) return std::unexpected(Error(Code::system, "no memory for a key"));
  Key key(handle);
  const gnutls_datum_t datum{reinterpret_cast<unsigned char*>(const_cast<char*>(key_pem.data())),
                             static_cast<unsigned>(key_pem.size())};
  if (gnutls_x509_privkey_import2(handle, &datum, GNUTLS_X509_FMT_PEM, nullptr, GNUTLS_PKCS_PLAIN) != 0) {
    return std::unexpected(invalid("the authority's key cannot be read"));
  }
  return Authority(std::move(key), std::move(*chain));
}

std::string Authority::key_pem() const {
  Result<std::string> pem = export_key(key_);
  return pem ? std::move(*pem) : std::string{};
}

Result<Issued> Authority::issue(const NodeRequest& request) const {
  if (auto error = trouble_with(request)) return std::unexpected(*std::move(error));
  Validity validity = request.validity;
  if (request.cut_validity) {
    validity.from_seconds = std::max(validity.from_seconds, certificate().not_before_seconds());
    validity.until_seconds = std::min(validity.until_seconds, certificate().not_after_seconds());
  }
  if (validity.until_seconds <= validity.from_seconds) {
    return std::unexpected(invalid("the certificate would end before it begins (the authority is valid from " +
                                   utc_text(certificate().not_before_seconds()) + " to " +
                                   utc_text(certificate().not_after_seconds()) + ")"));
  }
  auto key = make_key(request.key, request.rsa_bits);
  if (!key) return std::unexpected(key.error());
  auto made = empty_certificate();
  if (!made) return std::unexpected(made.error());
  Steps step;
  set_common_parts(step, made->gnutls(), common_name_for(request.names.front()), validity, key->get());
  request.authority ? make_authority(step, made->gnutls()) : make_node(step, made->gnutls(), request);
  std::array<unsigned char, 64> issuer_id;
  std::size_t size = issuer_id.size();
  if (gnutls_x509_crt_get_subject_key_id(certificate().gnutls(), issuer_id.data(), &size, nullptr) == 0) {
    step(gnutls_x509_crt_set_authority_key_id(made->gnutls(), issuer_id.data(), size), "issuer's key id");
  }
  step(gnutls_x509_crt_sign2(made->gnutls(), certificate().gnutls(), key_.get(), digest_for(key_.get(), request.sha1),
                             0),
       "signature");
  if (step.error()) return std::unexpected(*step.error());

  Issued issued;
  issued.chain_pem = made->to_pem();
  for (const Certificate& issuer : chain_) {
    if (!issuer.is_self_issued()) issued.chain_pem += issuer.to_pem();
  }
  auto pem = export_key(*key);
  if (!pem) return std::unexpected(pem.error());
  issued.key_pem = std::move(*pem);
  return issued;
}

}  // namespace weir::handshake
