#include "handshake/credentials.h"

#include <gnutls/x509.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace weir::handshake {
namespace {

// 112 bits and more: no RSA below 2048, no SHA-1. Times are ours to check, against the caller's clock.
const unsigned kVerifyFlags = GNUTLS_VERIFY_DISABLE_TIME_CHECKS | GNUTLS_VERIFY_DISABLE_TRUSTED_TIME_CHECKS |
                              GNUTLS_PROFILE_TO_VFLAGS(GNUTLS_PROFILE_MEDIUM);

Error refused(std::string sentence) { return Error(Code::unauthenticated, std::move(sentence)); }

}  // namespace

// Owns GnuTLS's list, not the certificates in it. Filled once, then any thread may verify.
class TrustList {
 public:
  TrustList() { failed_ = gnutls_x509_trust_list_init(&handle_, 0) != 0; }
  TrustList(const TrustList&) = delete;
  TrustList& operator=(const TrustList&) = delete;
  ~TrustList() {
    if (!failed_) gnutls_x509_trust_list_deinit(handle_, 0);
  }
  void add(const Certificate& root) {
    gnutls_x509_crt_t handle = root.gnutls();
    if (!failed_ && gnutls_x509_trust_list_add_cas(handle_, &handle, 1, 0) != 1) incomplete_ = true;
  }
  // GnuTLS's status bits; 0 is good.
  Result<unsigned> verify(std::span<gnutls_x509_crt_t> chain, const char* purpose) const {
    if (failed_ || incomplete_) return std::unexpected(Error(Code::system, "no memory to verify a certificate"));
    gnutls_typed_vdata_st wanted{GNUTLS_DT_KEY_PURPOSE_OID,
                                 reinterpret_cast<unsigned char*>(const_cast<char*>(purpose)), 0};
    unsigned status = 0;
    const int failure = gnutls_x509_trust_list_verify_crt2(handle_, chain.data(), static_cast<unsigned>(chain.size()),
                                                           &wanted, 1, kVerifyFlags, &status, nullptr);
    if (failure != 0) {
      return std::unexpected(
          refused("the certificate cannot be verified (" + std::string(gnutls_strerror(failure)) + ")"));
    }
    return status;
  }

 private:
  gnutls_x509_trust_list_t handle_ = nullptr;
  bool failed_ = false;
  bool incomplete_ = false;
};

namespace {

Error misconfigured(std::string sentence) { return Error(Code::invalid_argument, std::move(sentence)); }

struct KeyDeleter {
  void operator()(gnutls_x509_privkey_t handle) const { gnutls_x509_privkey_deinit(handle); }
};
using Key = std::unique_ptr<std::remove_pointer_t<gnutls_x509_privkey_t>, KeyDeleter>;

Result<Key> load_key(std::string_view pem) {
  if (pem.empty()) return std::unexpected(misconfigured("the private key: it is empty"));
  if (pem.size() > kMaxPemBytes) return std::unexpected(misconfigured("the private key: it is larger than 1 MiB"));
  gnutls_x509_privkey_t handle = nullptr;
  if (gnutls_x509_privkey_init(&handle) != 0) return std::unexpected(Error(Code::system, "no memory for a key"));
  Key key(handle);
  const gnutls_datum_t datum{reinterpret_cast<unsigned char*>(const_cast<char*>(pem.data())),
                             static_cast<unsigned>(pem.size())};
  const int failure = gnutls_x509_privkey_import2(handle, &datum, GNUTLS_X509_FMT_PEM, nullptr, GNUTLS_PKCS_PLAIN);
  if (failure == GNUTLS_E_DECRYPTION_FAILED) {
    return std::unexpected(misconfigured("the private key: it is encrypted; give it without a passphrase"));
  }
  if (failure != 0) {
    return std::unexpected(
        misconfigured("the private key: it is not a PEM private key (" + std::string(gnutls_strerror(failure)) + ")"));
  }
  return key;
}

bool belong_together(const Certificate& certificate, const Key& key) {
  unsigned char of_certificate[32];
  unsigned char of_key[32];
  std::size_t certificate_size = sizeof of_certificate;
  std::size_t key_size = sizeof of_key;
  return gnutls_x509_crt_get_key_id(certificate.gnutls(), GNUTLS_KEYID_USE_SHA256, of_certificate, &certificate_size) ==
             0 &&
         gnutls_x509_privkey_get_key_id(key.get(), GNUTLS_KEYID_USE_SHA256, of_key, &key_size) == 0 &&
         std::ranges::equal(std::span(of_certificate, certificate_size), std::span(of_key, key_size));
}

bool is_valid_at(const Certificate& certificate, std::int64_t wall_seconds) {
  return certificate.not_before_seconds() <= wall_seconds && wall_seconds <= certificate.not_after_seconds();
}

bool have_one_key(const Certificate& one, const Certificate& other) {
  std::array<unsigned char, 32> ids[2];
  std::size_t sizes[2] = {ids[0].size(), ids[1].size()};
  return gnutls_x509_crt_get_key_id(one.gnutls(), GNUTLS_KEYID_USE_SHA256, ids[0].data(), &sizes[0]) == 0 &&
         gnutls_x509_crt_get_key_id(other.gnutls(), GNUTLS_KEYID_USE_SHA256, ids[1].data(), &sizes[1]) == 0 &&
         std::ranges::equal(std::span(ids[0]).first(sizes[0]), std::span(ids[1]).first(sizes[1]));
}

// Whether it is one of the roots; or an older or newer edition of a valid one, which vouches for the same by itself.
bool is_root(const Certificate& shown, std::span<const Certificate> roots, std::int64_t wall_seconds) {
  return std::ranges::any_of(roots, [&](const Certificate& root) {
    return gnutls_x509_crt_equals(shown.gnutls(), root.gnutls()) != 0 ||
           (is_valid_at(root, wall_seconds) && shown.subject() == root.subject() && have_one_key(shown, root));
  });
}

std::optional<Error> time_trouble(const Certificate& certificate, std::string_view whose, std::int64_t wall_seconds) {
  if (is_valid_at(certificate, wall_seconds)) return std::nullopt;
  const std::string here = " (here it is " + utc_text(wall_seconds) + ")";
  if (wall_seconds > certificate.not_after_seconds()) {
    return refused(std::string(whose) + " expired at " + utc_text(certificate.not_after_seconds()) + here);
  }
  return refused(std::string(whose) + " is not valid before " + utc_text(certificate.not_before_seconds()) + here);
}

// The last certificate that the first one leads to among those given: its issuer is the one we should have known.
const Certificate& end_of(std::span<const Certificate> chain) {
  const Certificate* end = &chain.front();
  for (std::size_t steps = 0; steps < chain.size(); ++steps) {
    if (end->is_self_issued()) break;
    const auto next = std::ranges::find_if(chain, [&](const Certificate& other) {
      return &other != end && gnutls_x509_crt_check_issuer(end->gnutls(), other.gnutls()) != 0;
    });
    if (next == chain.end()) break;
    end = &*next;
  }
  return *end;
}

// Of a chain that is valid now. A root counts by its latest edition that is valid.
std::int64_t last_valid_second(std::span<const Certificate> shown, std::span<const Certificate> roots,
                               std::int64_t wall_seconds) {
  std::int64_t last = shown.front().not_after_seconds();
  for (const Certificate& each : shown.subspan(1)) {
    if (!is_root(each, roots, wall_seconds)) last = std::min(last, each.not_after_seconds());
  }
  const Certificate& end = end_of(shown);
  std::optional<std::int64_t> of_root;
  for (const Certificate& root : roots) {
    const bool vouches = gnutls_x509_crt_check_issuer(end.gnutls(), root.gnutls()) != 0 || have_one_key(end, root);
    if (vouches && is_valid_at(root, wall_seconds)) of_root = std::max(of_root.value_or(0), root.not_after_seconds());
  }
  return of_root ? std::min(last, *of_root) : last;
}

std::string weakness_in(std::span<const Certificate> chain) {
  for (const Certificate& certificate : chain) {
    if (std::string key = certificate.key_weakness(); !key.empty()) return key;
    if (certificate.is_self_issued()) continue;  // nobody relies on that signature
    if (std::string signature = certificate.signature_weakness(); !signature.empty()) return signature;
  }
  return {};
}

Error explain(unsigned status, std::span<const Certificate> chain, bool peer_is_server) {
  const Certificate& end = end_of(chain);
  if ((status & GNUTLS_CERT_SIGNATURE_FAILURE) != 0) {
    return refused("the certificate has a bad signature: it was not made by \"" + chain.front().issuer() +
                   "\" as we know it, or was changed since");
  }
  if ((status & GNUTLS_CERT_SIGNER_NOT_FOUND) != 0) {
    return refused("the certificate was issued by \"" + end.issuer() + "\", which is none of our roots");
  }
  if ((status & GNUTLS_CERT_INSECURE_ALGORITHM) != 0) {
    const std::string weakness = weakness_in(chain);
    return refused("the certificate has " + (weakness.empty() ? std::string("a weak key or signature") : weakness));
  }
  if ((status & GNUTLS_CERT_PURPOSE_MISMATCH) != 0) {
    return peer_is_server ? Error(Code::unauthenticated,
                                  "the certificate has the wrong purpose: it is not for servers (extended key usage)")
                          : Error(Code::unauthenticated,
                                  "the certificate has the wrong purpose: it is not for clients (extended key usage)");
  }
  if ((status & GNUTLS_CERT_SIGNER_NOT_CA) != 0) {
    return refused("the certificate was issued by \"" + end.issuer() + "\", which is not an authority");
  }
  if ((status & GNUTLS_CERT_SIGNER_CONSTRAINTS_FAILURE) != 0) {
    return refused("the certificate is outside of what its issuer may vouch for (constraints)");
  }
  if ((status & GNUTLS_CERT_UNKNOWN_CRIT_EXTENSIONS) != 0) {
    return refused("the certificate has a critical extension that we do not know");
  }
  return refused("the certificate was not accepted (status " + std::to_string(status) + ")");
}

}  // namespace

Credentials::Credentials() = default;

Credentials::~Credentials() {
  if (credentials_ != nullptr) gnutls_certificate_free_credentials(credentials_);
}

Result<std::shared_ptr<const Credentials>> Credentials::from_pem(std::string_view chain, std::string_view key,
                                                                 std::string_view roots, bool development) {
  std::shared_ptr<Credentials> made(new Credentials);
  made->development_ = development;
  auto own = Certificate::list_from_pem(chain, kMaxChain, "the certificate");
  if (!own) return std::unexpected(own.error());
  made->chain_ = std::move(*own);
  auto trusted = Certificate::list_from_pem(roots, kMaxRoots, "the roots");
  if (!trusted) return std::unexpected(trusted.error());
  made->roots_ = std::move(*trusted);
  auto trust = std::make_unique<TrustList>();
  for (const Certificate& root : made->roots_) trust->add(root);
  made->trust_ = std::move(trust);
  auto loaded = load_key(key);
  if (!loaded) return std::unexpected(loaded.error());

  const Certificate& first = made->chain_.front();
  if (!belong_together(first, *loaded)) {
    return std::unexpected(misconfigured("the private key does not belong to the certificate \"" + first.subject() +
                                         "\" (the first one counts)"));
  }
  if (const std::string weakness = weakness_in(made->chain_); !weakness.empty()) {
    return std::unexpected(misconfigured("the certificate has " + weakness));
  }
  auto names = first.names();
  if (!names) return std::unexpected(misconfigured(std::string(names.error().message())));
  made->names_ = std::move(*names);

  if (gnutls_certificate_allocate_credentials(&made->credentials_) != 0) {
    return std::unexpected(Error(Code::system, "no memory for credentials"));
  }
  std::vector<gnutls_x509_crt_t> handles;
  for (const Certificate& certificate : made->chain_) handles.push_back(certificate.gnutls());
  // GnuTLS keeps copies of its own.
  if (const int failure = gnutls_certificate_set_x509_key(made->credentials_, handles.data(),
                                                          static_cast<int>(handles.size()), loaded->get());
      failure < 0) {
    return std::unexpected(
        misconfigured("the certificate and its key cannot be used (" + std::string(gnutls_strerror(failure)) + ")"));
  }
  return made;
}

std::int64_t Credentials::valid_until_seconds() const {
  std::int64_t last = certificate().not_after_seconds();
  for (const Certificate& each : chain_) {
    if (!each.is_self_issued()) last = std::min(last, each.not_after_seconds());  // peers look at their own roots
  }
  return last;
}

Result<Names> Credentials::verify(std::span<const gnutls_datum_t> chain, std::int64_t wall_seconds,
                                  bool peer_is_server) const {
  if (chain.empty()) return std::unexpected(Error(Code::unauthenticated, "the peer showed no certificate"));
  if (chain.size() > kMaxChain) {
    return std::unexpected(Error(Code::unauthenticated, "the peer showed more than 8 certificates"));
  }
  std::vector<Certificate> shown;
  for (const gnutls_datum_t& der : chain) {
    auto parsed = Certificate::from_der({der.data, der.size});
    if (!parsed) return std::unexpected(parsed.error());
    shown.push_back(std::move(*parsed));
  }

  // GnuTLS may reorder the array that it is given, hence a fresh one for each look.
  auto judge = [&](const TrustList& list) -> Result<unsigned> {
    std::vector<gnutls_x509_crt_t> handles;
    for (const Certificate& certificate : shown) handles.push_back(certificate.gnutls());
    return list.verify(handles, peer_is_server ? GNUTLS_KP_TLS_WWW_SERVER : GNUTLS_KP_TLS_WWW_CLIENT);
  };
  const Result<unsigned> status = judge(*trust_);
  if (!status) return std::unexpected(status.error());
  if (*status != 0) return std::unexpected(explain(*status, shown, peer_is_server));
  // GnuTLS asks nothing of the key of a certificate that is a root itself.
  if (std::string weakness = shown.front().key_weakness(); !weakness.empty()) {
    return std::unexpected(refused("the certificate has " + weakness));
  }

  for (std::size_t i = 0; i < shown.size(); ++i) {
    // A root of ours that the peer sent along is judged below. Any other certificate may be a link of the chain, also
    // one that bears its issuer's name: an authority that changes its key vouches for the new one like that.
    if (i > 0 && is_root(shown[i], roots_, wall_seconds)) continue;
    if (auto error = time_trouble(shown[i], i == 0 ? "the certificate" : "an intermediate certificate", wall_seconds)) {
      return std::unexpected(*std::move(error));
    }
  }
  if (!std::ranges::all_of(roots_, [&](const Certificate& root) { return is_valid_at(root, wall_seconds); })) {
    TrustList valid_roots;
    const Certificate* invalid = nullptr;
    for (const Certificate& root : roots_) {
      if (is_valid_at(root, wall_seconds)) {
        valid_roots.add(root);
      } else if (invalid == nullptr || gnutls_x509_crt_check_issuer(end_of(shown).gnutls(), root.gnutls()) != 0) {
        invalid = &root;
      }
    }
    const Result<unsigned> again = judge(valid_roots);
    if (!again) return std::unexpected(again.error());
    if (*again != 0) {
      return std::unexpected(*time_trouble(
          *invalid, "our root \"" + invalid->subject() + "\", which vouches for the peer,", wall_seconds));
    }
  }

  Result<Names> names = shown.front().names();
  if (names) {
    names->valid_until_seconds = last_valid_second(shown, roots_, wall_seconds);
    names->development = development_;
    names->certificate = shown.front().number();
    const std::vector<std::string> purposes = shown.front().purposes();
    names->may_serve = purposes.empty() || std::ranges::find(purposes, "server") != purposes.end();
  }
  return names;
}

}  // namespace weir::handshake
