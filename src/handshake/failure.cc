#include "handshake/failure.h"

#include <gnutls/gnutls.h>
#include <ngtcp2/ngtcp2_crypto.h>

#include <string>
#include <string_view>

#include "handshake/certificate.h"

namespace weir::handshake {
namespace {

constexpr std::uint64_t kAlertMask = 0xff;
constexpr std::uint64_t kFirstAlert = NGTCP2_CRYPTO_ERROR;

bool is_about_certificates(std::uint64_t alert) {
  switch (alert) {
    case GNUTLS_A_BAD_CERTIFICATE:
    case GNUTLS_A_UNSUPPORTED_CERTIFICATE:
    case GNUTLS_A_CERTIFICATE_REVOKED:
    case GNUTLS_A_CERTIFICATE_EXPIRED:
    case GNUTLS_A_CERTIFICATE_UNKNOWN:
    case GNUTLS_A_UNKNOWN_CA:
    case GNUTLS_A_DECRYPT_ERROR:
      return true;
    default:
      return false;
  }
}

std::string alert_text(std::uint64_t alert) {
  const char* name = gnutls_alert_get_name(static_cast<gnutls_alert_description_t>(alert));
  return name != nullptr ? name : "TLS alert " + std::to_string(alert);
}

Error with_alert(std::uint64_t alert, const Address& remote, std::string reason, bool by_peer) {
  const std::string who = remote.to_string();
  if (!reason.empty()) reason = ": " + reason;
  if (alert == GNUTLS_A_NO_APPLICATION_PROTOCOL) {
    return Error(Code::refused, "no common protocol with " + who + ": one side does not speak weir/1" + reason);
  }
  if (alert == GNUTLS_A_PROTOCOL_VERSION) {
    return Error(Code::refused, "no common TLS version with " + who + ": TLS 1.3 is required" + reason);
  }
  if (alert == GNUTLS_A_HANDSHAKE_FAILURE || alert == GNUTLS_A_INSUFFICIENT_SECURITY) {
    return Error(Code::refused, "no common version or algorithms with " + who +
                                    ": TLS 1.3 with AES-128-GCM and X25519 or P-256 is required" + reason);
  }
  if (alert == GNUTLS_A_CERTIFICATE_REQUIRED) {
    return by_peer ? Error(Code::unauthenticated, who + " requires a certificate and we showed none" + reason)
                   : Error(Code::unauthenticated, who + " showed no certificate" + reason);
  }
  if (is_about_certificates(alert)) {
    return by_peer ? Error(Code::unauthenticated, who + " did not accept our certificate" + reason)
                   : Error(Code::unauthenticated, "the certificate of " + who + " was not accepted" + reason);
  }
  return Error(by_peer ? Code::refused : Code::peer_failed,
               "TLS failed with " + who + " (" + alert_text(alert) + (by_peer ? ", it says)" : ")") + reason);
}

}  // namespace

Code code_from_peer(std::uint64_t value) {
  const bool known =
      value >= static_cast<std::uint64_t>(Code::timeout) && value <= static_cast<std::uint64_t>(Code::system);
  return known ? static_cast<Code>(value) : Code::refused;
}

Error peer_closed(const ngtcp2_connection_close_error& close, const Address& remote) {
  const std::string reason = printable(
      std::string_view(reinterpret_cast<const char*>(close.reason), close.reason == nullptr ? 0 : close.reasonlen));
  const std::string who = remote.to_string();
  if (close.type == NGTCP2_CONNECTION_CLOSE_ERROR_CODE_TYPE_APPLICATION) {
    if (close.error_code == 0) return Error(Code::peer_failed, who + " closed the handshake before its end");
    return Error(code_from_peer(close.error_code), who + " refused: " + (reason.empty() ? "no reason given" : reason));
  }
  if ((close.error_code & ~kAlertMask) == kFirstAlert) {
    return with_alert(close.error_code & kAlertMask, remote, reason, true);
  }
  if (close.error_code == NGTCP2_CONNECTION_REFUSED) return Error(Code::overloaded, who + " takes no handshake now");
  if (close.error_code == NGTCP2_INVALID_TOKEN) {
    return Error(Code::reset, who + " no longer knows the proof of our address that it gave us");
  }
  return Error(Code::peer_failed, who + " ended the handshake with QUIC error " + std::to_string(close.error_code) +
                                      (reason.empty() ? "" : ": " + reason));
}

Error we_closed(int library_error, std::uint8_t alert, const Address& remote) {
  if (library_error == NGTCP2_ERR_CRYPTO) return with_alert(alert, remote, "", false);
  if (library_error == NGTCP2_ERR_RECV_VERSION_NEGOTIATION) {
    return Error(Code::refused, "no common QUIC version with " + remote.to_string());
  }
  return Error(Code::peer_failed,
               "the handshake with " + remote.to_string() + " broke off: " + ngtcp2_strerror(library_error));
}

Error silence(const Address& remote, bool heard) {
  return heard ? Error(Code::peer_failed, remote.to_string() + " fell silent during the handshake")
               : Error(Code::peer_failed,
                       "the peer did not answer: nobody is there, or it has a secret instead of an identity");
}

}  // namespace weir::handshake
