#include "handshake/certificate.h"

#include <gnutls/crypto.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>

#include "handshake/credentials.h"

namespace weir::handshake {
namespace {

constexpr std::size_t kMaxPurposes = 16;
constexpr std::size_t kMaxSerialBytes = 64;

gnutls_datum_t datum_of(std::string_view text) {
  return {reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())), static_cast<unsigned>(text.size())};
}

// GnuTLS's own allocation, freed with its own function.
struct OwnedDatum {
  gnutls_datum_t datum{nullptr, 0};
  OwnedDatum() = default;
  OwnedDatum(const OwnedDatum&) = delete;
  OwnedDatum& operator=(const OwnedDatum&) = delete;
  ~OwnedDatum() { gnutls_free(datum.data); }
  std::string text() const { return {reinterpret_cast<const char*>(datum.data), datum.size}; }
};

std::string hexadecimal(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

Error bad_name(const char* sentence) { return Error(Code::unauthenticated, sentence); }

// Adds one alternative name; kinds that name no host are left out.
std::optional<Error> add_name(Names& names, unsigned kind, std::string_view value) {
  if (kind == GNUTLS_SAN_DNSNAME) {
    // A "*" anywhere but as the whole first label is no host name.
    if (!is_host_name(value, true)) return bad_name("a name in the certificate is not a host name");
    names.dns.push_back(lower(value));
  } else if (kind == GNUTLS_SAN_IPADDRESS) {
    std::array<std::uint8_t, 16> ip;
    if (value.size() == 4) {
      std::array<std::uint8_t, 4> v4;
      std::memcpy(v4.data(), value.data(), 4);
      ip = Address::v4(std::uint32_t{v4[0]} << 24 | std::uint32_t{v4[1]} << 16 | std::uint32_t{v4[2]} << 8 | v4[3], 0)
               .ip;
    } else if (value.size() == 16) {
      std::memcpy(ip.data(), value.data(), 16);
    } else {
      return bad_name("an address in the certificate is neither IPv4 nor IPv6");
    }
    names.ips.push_back(ip);
  }
  return std::nullopt;
}

}  // namespace

Result<Certificate> Certificate::from_der(std::span<const unsigned char> der) {
  if (der.empty() || der.size() > kMaxCertificateBytes) {
    return std::unexpected(Error(Code::unauthenticated, "a certificate has no bytes, or more than 16 KiB"));
  }
  gnutls_x509_crt_t handle = nullptr;
  if (gnutls_x509_crt_init(&handle) != 0) return std::unexpected(Error(Code::system, "no memory for a certificate"));
  Certificate certificate(handle);
  const gnutls_datum_t datum{const_cast<unsigned char*>(der.data()), static_cast<unsigned>(der.size())};
  if (const int failure = gnutls_x509_crt_import(handle, &datum, GNUTLS_X509_FMT_DER); failure != 0) {
    return std::unexpected(Error(
        Code::unauthenticated, "what should be a certificate is none (" + std::string(gnutls_strerror(failure)) + ")"));
  }
  return certificate;
}

Result<std::vector<Certificate>> Certificate::list_from_pem(std::string_view pem, std::size_t max,
                                                            std::string_view what) {
  auto fail = [&](std::string why) {
    return std::unexpected(Error(Code::invalid_argument, std::string(what) + ": " + std::move(why)));
  };
  if (pem.empty()) return fail("it is empty");
  if (pem.size() > kMaxPemBytes) return fail("it is larger than 1 MiB");
  if (pem.find("-----BEGIN") == std::string_view::npos) return fail("it holds no PEM certificate (-----BEGIN ...)");
  gnutls_x509_crt_t* handles = nullptr;
  unsigned count = 0;
  const gnutls_datum_t datum = datum_of(pem);
  if (const int failure = gnutls_x509_crt_list_import2(&handles, &count, &datum, GNUTLS_X509_FMT_PEM, 0); failure < 0) {
    return fail("it holds no usable PEM certificate (" + std::string(gnutls_strerror(failure)) + ")");
  }
  std::vector<Certificate> list;
  list.reserve(count);
  for (unsigned i = 0; i < count; ++i) list.emplace_back(handles[i]);
  gnutls_free(handles);
  if (list.empty()) return fail("it holds no PEM certificate");
  if (list.size() > max) return fail("it holds more than " + std::to_string(max) + " certificates");
  return list;
}

std::string Certificate::subject() const {
  OwnedDatum name;
  if (gnutls_x509_crt_get_dn3(gnutls(), &name.datum, 0) != 0) return "(no subject)";
  return printable(name.text());
}

std::string Certificate::issuer() const {
  OwnedDatum name;
  if (gnutls_x509_crt_get_issuer_dn3(gnutls(), &name.datum, 0) != 0) return "(no issuer)";
  return printable(name.text());
}

// GnuTLS tells a time that it cannot read as -1: then the certificate is never valid.
std::int64_t Certificate::not_before_seconds() const {
  const std::time_t time = gnutls_x509_crt_get_activation_time(gnutls());
  return time == static_cast<std::time_t>(-1) ? INT64_MAX : static_cast<std::int64_t>(time);
}

std::int64_t Certificate::not_after_seconds() const {
  return static_cast<std::int64_t>(gnutls_x509_crt_get_expiration_time(gnutls()));
}

bool Certificate::is_self_issued() const { return gnutls_x509_crt_check_issuer(gnutls(), gnutls()) != 0; }

bool Certificate::is_authority() const { return gnutls_x509_crt_get_ca_status(gnutls(), nullptr) > 0; }

std::string Certificate::key_weakness() const {
  unsigned bits = 0;
  const int algorithm = gnutls_x509_crt_get_pk_algorithm(gnutls(), &bits);
  if (algorithm < 0) return "a key of an unknown kind";
  switch (algorithm) {
    case GNUTLS_PK_RSA:
    case GNUTLS_PK_RSA_PSS:
      return bits >= kMinRsaBits ? "" : "an RSA key of " + std::to_string(bits) + " bits; 2048 are needed";
    case GNUTLS_PK_ECDSA:
      return bits >= 256 ? "" : "an elliptic curve key of " + std::to_string(bits) + " bits; 256 are needed";
    case GNUTLS_PK_EDDSA_ED25519:
    case GNUTLS_PK_EDDSA_ED448:
      return "";
    default:
      return std::string("a key of an unsuitable kind (") +
             gnutls_pk_get_name(static_cast<gnutls_pk_algorithm_t>(algorithm)) + ")";
  }
}

std::string Certificate::signature_weakness() const {
  const int algorithm = gnutls_x509_crt_get_signature_algorithm(gnutls());
  if (algorithm < 0 || algorithm == GNUTLS_SIGN_UNKNOWN) return "a signature of an unknown kind";
  const auto sign = static_cast<gnutls_sign_algorithm_t>(algorithm);
  if (gnutls_sign_is_secure2(sign, GNUTLS_SIGN_FLAG_SECURE_FOR_CERTS) != 0) return "";
  const char* name = gnutls_sign_get_name(sign);
  return std::string("a weak signature (") + (name == nullptr ? "unknown" : name) + ")";
}

std::string Certificate::key_type() const {
  unsigned bits = 0;
  const int algorithm = gnutls_x509_crt_get_pk_algorithm(gnutls(), &bits);
  switch (algorithm) {
    case GNUTLS_PK_EDDSA_ED25519:
      return "Ed25519";
    case GNUTLS_PK_ECDSA:
      return "ECDSA P-" + std::to_string(bits);
    case GNUTLS_PK_RSA:
      return "RSA " + std::to_string(bits);
    default:
      break;
  }
  const char* name = algorithm < 0 ? nullptr : gnutls_pk_get_name(static_cast<gnutls_pk_algorithm_t>(algorithm));
  return std::string(name == nullptr ? "unknown" : name) + " " + std::to_string(bits);
}

Result<Names> Certificate::names() const {
  Names names;
  names.valid_until_seconds = not_after_seconds();
  for (unsigned i = 0;; ++i) {
    std::array<char, kMaxNameBytes + 2> value;
    std::size_t size = value.size();
    unsigned kind = 0;
    const int status = gnutls_x509_crt_get_subject_alt_name2(gnutls(), i, value.data(), &size, &kind, nullptr);
    if (status == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE) return names;
    if (i >= kMaxNames) return std::unexpected(bad_name("the certificate has more than 64 names"));
    // An otherName has a status of its own; like an unknown kind it names no host.
    if (status == GNUTLS_E_SHORT_MEMORY_BUFFER) {
      return std::unexpected(bad_name("a name in the certificate is longer than 255 bytes"));
    }
    if (status == GNUTLS_E_X509_UNKNOWN_SAN) continue;
    if (status < 0) return std::unexpected(bad_name("the names in the certificate cannot be read"));
    if (size > kMaxNameBytes) return std::unexpected(bad_name("a name in the certificate is longer than 255 bytes"));
    if (auto error = add_name(names, static_cast<unsigned>(status), {value.data(), size})) {
      return std::unexpected(*std::move(error));
    }
  }
}

std::string Certificate::serial() const {
  std::array<unsigned char, kMaxSerialBytes> serial;
  std::size_t size = serial.size();
  if (gnutls_x509_crt_get_serial(gnutls(), serial.data(), &size) != 0) return "(none)";
  return hexadecimal(std::span(serial).first(size));
}

std::string Certificate::fingerprint() const {
  std::array<unsigned char, 32> digest;
  std::size_t size = digest.size();
  if (gnutls_x509_crt_get_fingerprint(gnutls(), GNUTLS_DIG_SHA256, digest.data(), &size) != 0) return "(none)";
  return hexadecimal(std::span(digest).first(size));
}

std::uint64_t Certificate::number() const {
  std::array<unsigned char, 32 + kMaxSerialBytes> own{};
  std::size_t key = 32;
  std::size_t serial = kMaxSerialBytes;
  gnutls_datum_t issuer{};
  std::array<std::uint8_t, 32> digest{};
  gnutls_hash_hd_t hash = nullptr;
  if (gnutls_x509_crt_get_key_id(gnutls(), GNUTLS_KEYID_USE_SHA256, own.data(), &key) == 0 && key == 32 &&
      gnutls_x509_crt_get_serial(gnutls(), own.data() + key, &serial) == 0 &&
      gnutls_x509_crt_get_raw_issuer_dn(gnutls(), &issuer) == 0 && gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) == 0) {
    gnutls_hash(hash, own.data(), own.size());
    gnutls_hash(hash, issuer.data, issuer.size);
    gnutls_hash_deinit(hash, digest.data());
  }
  gnutls_free(issuer.data);
  std::uint64_t number = 0;
  std::memcpy(&number, digest.data(), sizeof number);
  return number == 0 ? 1 : number;  // all that cannot be told apart are one
}

std::vector<std::string> Certificate::purposes() const {
  std::vector<std::string> purposes;
  for (unsigned i = 0; i < kMaxPurposes; ++i) {
    std::array<char, 128> value;
    std::size_t size = value.size();
    const int status = gnutls_x509_crt_get_key_purpose_oid(gnutls(), i, value.data(), &size, nullptr);
    if (status == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE) break;
    if (status < 0) continue;
    const std::string_view oid(value.data(), strnlen(value.data(), size));
    if (oid == GNUTLS_KP_TLS_WWW_SERVER) {
      purposes.push_back("server");
    } else if (oid == GNUTLS_KP_TLS_WWW_CLIENT) {
      purposes.push_back("client");
    } else {
      purposes.push_back(printable(oid));
    }
  }
  return purposes;
}

std::string Certificate::to_pem() const {
  OwnedDatum out;
  if (gnutls_x509_crt_export2(gnutls(), GNUTLS_X509_FMT_PEM, &out.datum) != 0) return {};
  return out.text();
}

std::vector<unsigned char> Certificate::to_der() const {
  OwnedDatum out;
  if (gnutls_x509_crt_export2(gnutls(), GNUTLS_X509_FMT_DER, &out.datum) != 0) return {};
  return {out.datum.data, out.datum.data + out.datum.size};
}

std::string utc_text(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[64];
  if (gmtime_r(&time, &parts) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) {
    return "second " + std::to_string(seconds) + " of 1970";
  }
  return text;
}

std::string printable(std::string_view text, std::size_t max) {
  std::string result(text.substr(0, max));
  std::ranges::replace_if(
      result, [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  if (text.size() > max) result += "...";
  return result;
}

}  // namespace weir::handshake
