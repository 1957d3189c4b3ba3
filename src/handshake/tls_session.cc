#include "handshake/tls_session.h"

#include <ngtcp2/ngtcp2_crypto_gnutls.h>

#include <array>
#include <span>

#include "crypto/secret.h"

namespace weir::handshake {
namespace {

// Pinned, so that a system-wide policy or a new library version changes nothing silently. Compatibility mode makes no
// sense over QUIC, which forbids it.
constexpr const char kPriority[] =
    "NONE:+VERS-TLS1.3:+AES-128-GCM:+AEAD:+SHA256:+GROUP-X25519:+GROUP-SECP256R1:+ECDHE-ECDSA:+ECDHE-RSA:"
    "+SIGN-EDDSA-ED25519:+SIGN-ECDSA-SECP256R1-SHA256:+SIGN-RSA-PSS-RSAE-SHA256:+CTYPE-X509:"
    "%DISABLE_TLS13_COMPAT_MODE";

constexpr std::string_view kSecretLabel = "EXPORTER-weir-1-secret";
constexpr std::string_view kIdLabel = "EXPORTER-weir-1-id";

constexpr std::size_t kMaxTlsMessageBytes = 64 * 1024;

Error tls_error(std::string_view what, int code) {
  return Error(Code::system, "TLS: " + std::string(what) + ": " + gnutls_strerror(code));
}

void append_hex(std::string& line, std::span<const unsigned char> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (const unsigned char byte : bytes) {
    line.push_back(kDigits[byte >> 4]);
    line.push_back(kDigits[byte & 15]);
  }
}

}  // namespace

TlsPolicy::TlsPolicy() {
  if (gnutls_priority_init(&priority_, kPriority, nullptr) != 0) priority_ = nullptr;
}

TlsPolicy::~TlsPolicy() {
  if (priority_ != nullptr) gnutls_priority_deinit(priority_);
}

Result<std::unique_ptr<TlsSession>> TlsSession::open(Options options) {
  std::unique_ptr<TlsSession> session(new TlsSession(std::move(options)));
  if (auto configured = session->configure(); !configured) return std::unexpected(configured.error());
  return session;
}

TlsSession::~TlsSession() {
  if (session_ != nullptr) gnutls_deinit(session_);
}

void TlsSession::attach(ngtcp2_conn* connection) {
  connection_ = connection;
  ngtcp2_conn_set_tls_native_handle(connection, session_);
}

TlsSession& TlsSession::of(gnutls_session_t session) {
  auto* reference = static_cast<ngtcp2_crypto_conn_ref*>(gnutls_session_get_ptr(session));
  return *static_cast<TlsSession*>(reference->user_data);
}

Result<void> TlsSession::configure() {
  const bool server = options_.role == Role::responder;
  // No tickets: nothing is ever resumed. One key share: every peer has X25519, and each further one costs a key pair.
  const unsigned flags = (server ? GNUTLS_SERVER : GNUTLS_CLIENT | GNUTLS_FORCE_CLIENT_CERT) | GNUTLS_NO_TICKETS |
                         GNUTLS_NO_AUTO_SEND_TICKET | GNUTLS_KEY_SHARE_TOP | GNUTLS_NO_END_OF_EARLY_DATA;
  if (const int error = gnutls_init(&session_, flags); error != 0) {
    session_ = nullptr;
    return std::unexpected(tls_error("no session", error));
  }
  if (options_.policy->gnutls() == nullptr || gnutls_priority_set(session_, options_.policy->gnutls()) != 0) {
    return std::unexpected(
        Error(Code::system, "TLS: the library, or the system's policy for it, lacks our algorithms"));
  }
  reference_.user_data = this;
  reference_.get_conn = [](ngtcp2_crypto_conn_ref* reference) {
    return static_cast<TlsSession*>(reference->user_data)->connection_;
  };
  gnutls_session_set_ptr(session_, &reference_);
  const int quic = server ? ngtcp2_crypto_gnutls_configure_server_session(session_)
                          : ngtcp2_crypto_gnutls_configure_client_session(session_);
  if (quic != 0) return std::unexpected(Error(Code::system, "TLS: the session refuses to be used by QUIC"));

  gnutls_datum_t protocol{reinterpret_cast<unsigned char*>(const_cast<char*>(kProtocol.data())),
                          static_cast<unsigned>(kProtocol.size())};
  if (const int error = gnutls_alpn_set_protocols(session_, &protocol, 1, GNUTLS_ALPN_MANDATORY); error != 0) {
    return std::unexpected(tls_error("no protocol name", error));
  }
  if (const int error = gnutls_credentials_set(session_, GNUTLS_CRD_CERTIFICATE, options_.credentials->gnutls());
      error != 0) {
    return std::unexpected(tls_error("no certificate", error));
  }
  gnutls_handshake_set_max_packet_length(session_, kMaxTlsMessageBytes);
  gnutls_handshake_set_timeout(session_, GNUTLS_INDEFINITE_TIMEOUT);  // ours is the connection's: no clock in here
  if (server) {
    gnutls_certificate_server_set_request(session_, GNUTLS_CERT_REQUIRE);
    gnutls_certificate_send_x509_rdn_sequence(session_, 1);  // 1: do not name the issuers that we believe
  }
  gnutls_session_set_verify_function(session_, [](gnutls_session_t handle) {
    TlsSession& self = of(handle);
    auto names = self.judge();
    if (names) {
      self.accepted_ = true;
      self.names_ = std::move(*names);
      return 0;
    }
    self.refusal_ = names.error();
    return static_cast<int>(GNUTLS_E_CERTIFICATE_ERROR);
  });
  if (*options_.key_log) {
    gnutls_session_set_keylog_function(session_,
                                       [](gnutls_session_t handle, const char* label, const gnutls_datum_t* secret) {
                                         of(handle).log_key(label, *secret);
                                         return 0;
                                       });
  }
  return {};
}

Result<Names> TlsSession::judge() const {
  if (gnutls_certificate_type_get2(session_, GNUTLS_CTYPE_PEERS) != GNUTLS_CRT_X509) {
    return std::unexpected(Error(Code::unauthenticated, "the peer's certificate is not an X.509 one"));
  }
  unsigned count = 0;
  const gnutls_datum_t* chain = gnutls_certificate_get_peers(session_, &count);
  const bool peer_is_server = options_.role == Role::initiator;
  auto names =
      options_.credentials->verify({chain, chain == nullptr ? 0 : count}, (*options_.wall_clock)(), peer_is_server);
  if (!names || !peer_is_server) return names;
  const bool proven =
      options_.expected_name.empty() ? names->proves(options_.remote) : names->proves(options_.expected_name);
  if (proven) return names;
  std::string sentence = "the certificate of " + options_.remote.to_string() + " does not prove ";
  sentence += options_.expected_name.empty() ? "that address" : "the name " + printable(options_.expected_name);
  sentence += names->first().empty() ? "; it has no names" : "; its first name is " + printable(names->first());
  return std::unexpected(Error(Code::unauthenticated, std::move(sentence)));
}

Result<void> TlsSession::check() const {
  gnutls_datum_t selected{};
  const int error = gnutls_alpn_get_selected_protocol(session_, &selected);
  const std::string_view name(reinterpret_cast<const char*>(selected.data), error == 0 ? selected.size : 0);
  if (name != kProtocol) {
    return std::unexpected(Error(Code::refused, "no common protocol: the peer did not ask for weir/1"));
  }
  if (gnutls_protocol_get_version(session_) != GNUTLS_TLS1_3 || gnutls_session_is_resumed(session_) != 0) {
    return std::unexpected(Error(Code::refused, "the peer negotiated something other than a new TLS 1.3 session"));
  }
  // A session whose verification never ran proves nobody.
  if (!accepted_) return std::unexpected(Error(Code::unauthenticated, "the peer showed no certificate"));
  return {};
}

Result<void> TlsSession::export_keys(crypto::Secret& secret, CredentialId& credential) const {
  const auto derive = [this](std::string_view label, MutableByteSpan out) {
    return gnutls_prf_rfc5705(session_, label.size(), label.data(), 0, "", out.size(),
                              reinterpret_cast<char*>(out.data()));
  };
  if (const int error = derive(kSecretLabel, secret.writable()); error != 0) {
    return std::unexpected(tls_error("no keys", error));
  }
  if (const int error = derive(kIdLabel, credential); error != 0) return std::unexpected(tls_error("no keys", error));
  return {};
}

void TlsSession::log_key(const char* label, const gnutls_datum_t& secret) const {
  gnutls_datum_t client_random{};
  gnutls_datum_t server_random{};
  gnutls_session_get_random(session_, &client_random, &server_random);
  std::string line = label;
  line.reserve(line.size() + 2 + 2 * (client_random.size + secret.size));
  line += ' ';
  append_hex(line, {client_random.data, client_random.size});
  line += ' ';
  append_hex(line, {secret.data, secret.size});
  (*options_.key_log)(line);
  crypto::wipe(std::as_writable_bytes(std::span(line)));
}

}  // namespace weir::handshake
