// A QUIC client or server that does as a test tells it, rightly or wrongly: what a stranger could send to an endpoint.
#pragma once

#include <gnutls/crypto.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>
#include <ngtcp2/ngtcp2_crypto_gnutls.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "handshake/endpoint_testing.h"
#include "handshake/quic_path.h"

namespace weir::handshake::testing {

class RawPeer final : public Node {
 public:
  struct Options {
    Role role = Role::initiator;
    std::string priority = "NORMAL:-VERS-ALL:+VERS-TLS1.3:%DISABLE_TLS13_COMPAT_MODE";
    std::string protocol = "weir/1";                 // empty: none
    std::shared_ptr<const Credentials> credentials;  // null: no certificate
    std::vector<std::byte> words;                    // for the stream, as they are
    bool ends_words = true;
    bool stops_listening = false;  // once it has said them
    std::string server_name{};     // empty: none is sent
  };

  RawPeer(Options options, const Address& remote, Instant now)
      : options_(std::move(options)), remote_(remote), path_(remote) {
    const bool server = options_.role == Role::responder;
    gnutls_init(&session_, (server ? GNUTLS_SERVER : GNUTLS_CLIENT) | GNUTLS_NO_TICKETS);
    WEIR_CHECK(gnutls_priority_set_direct(session_, options_.priority.c_str(), nullptr) == 0, "a valid priority");
    reference_ = {.get_conn = [](ngtcp2_crypto_conn_ref* r) { return static_cast<RawPeer*>(r->user_data)->quic_; },
                  .user_data = this};
    gnutls_session_set_ptr(session_, &reference_);
    if (!options_.protocol.empty()) {
      gnutls_datum_t name{reinterpret_cast<unsigned char*>(options_.protocol.data()),
                          static_cast<unsigned>(options_.protocol.size())};
      gnutls_alpn_set_protocols(session_, &name, 1, 0);
    }
    if (!options_.server_name.empty()) {
      gnutls_server_name_set(session_, GNUTLS_NAME_DNS, options_.server_name.data(), options_.server_name.size());
    }
    gnutls_certificate_allocate_credentials(&no_certificate_);
    gnutls_credentials_set(session_, GNUTLS_CRD_CERTIFICATE,
                           options_.credentials ? options_.credentials->gnutls() : no_certificate_);
    if (server) {
      ngtcp2_crypto_gnutls_configure_server_session(session_);
      return;  // the rest with the first datagram
    }
    ngtcp2_crypto_gnutls_configure_client_session(session_);
    const ngtcp2_cid ours = random_id();
    const ngtcp2_cid theirs = random_id();
    const auto calls = callbacks();
    const auto settings = settings_at(now);
    const auto parameters = transport_parameters();
    WEIR_CHECK(ngtcp2_conn_client_new(&quic_, &theirs, &ours, path_.get(), NGTCP2_PROTO_VER_V1, &calls, &settings,
                                      &parameters, nullptr, this) == 0,
               "a client");
    ngtcp2_conn_set_tls_native_handle(quic_, session_);
  }
  ~RawPeer() override {
    if (quic_ != nullptr) ngtcp2_conn_del(quic_);
    gnutls_deinit(session_);
    gnutls_certificate_free_credentials(no_certificate_);
  }

  void receive(MutableByteSpan datagram, const Address&, Instant now) override {
    if (gone_ || (quic_ == nullptr && !accept(datagram, now))) return;
    const int error =
        ngtcp2_conn_read_pkt(quic_, path_.get(), nullptr, reinterpret_cast<const std::uint8_t*>(datagram.data()),
                             datagram.size(), static_cast<ngtcp2_tstamp>(now.ns));
    if (error == NGTCP2_ERR_DRAINING) {
      ngtcp2_connection_close_error close;
      ngtcp2_conn_get_connection_close_error(quic_, &close);
      close_code = close.error_code;
      close_is_application = close.type == NGTCP2_CONNECTION_CLOSE_ERROR_CODE_TYPE_APPLICATION;
      close_reason.assign(reinterpret_cast<const char*>(close.reason), close.reasonlen);
    }
    if (const auto* theirs = ngtcp2_conn_get_remote_transport_params(quic_); theirs != nullptr) told = *theirs;
    if (error != 0) gone_ = true;
    if (error == NGTCP2_ERR_CRYPTO) say_goodbye(now);
  }
  void expire(Instant now) override {
    if (!gone_ && quic_ != nullptr && ngtcp2_conn_handle_expiry(quic_, static_cast<ngtcp2_tstamp>(now.ns)) != 0)
      gone_ = true;
    expired_at_ = now;
  }
  Instant deadline() const override {
    if (gone_ || quic_ == nullptr) return Instant::never();
    const ngtcp2_tstamp expiry = ngtcp2_conn_get_expiry(quic_);
    if (expiry >= static_cast<ngtcp2_tstamp>(Instant::never().ns)) return Instant::never();
    return std::max(Instant{static_cast<std::int64_t>(expiry)}, expired_at_ + 1ms);
  }
  bool take(Address& to, ByteSpan& bytes, Instant now) override {
    if (goodbye_bytes_ != 0) {
      to = remote_;
      bytes = std::as_bytes(std::span(buffer_).first(std::exchange(goodbye_bytes_, 0)));
      return true;
    }
    if (gone_ || quic_ == nullptr) return false;
    if (stream_ < 0 && options_.role == Role::initiator && ngtcp2_conn_get_handshake_completed(quic_)) {
      ngtcp2_conn_open_bidi_stream(quic_, &stream_, nullptr);
    }
    if (options_.role == Role::responder && !heard.empty()) stream_ = 0;
    const bool has_words = stream_ >= 0 && !said_;
    ngtcp2_vec rest{reinterpret_cast<std::uint8_t*>(options_.words.data()) + written_,
                    options_.words.size() - written_};
    ngtcp2_ssize taken = -1;
    const ngtcp2_ssize size = ngtcp2_conn_writev_stream(
        quic_, nullptr, nullptr, buffer_.data(), buffer_.size(), &taken,
        has_words && options_.ends_words ? NGTCP2_WRITE_STREAM_FLAG_FIN : NGTCP2_WRITE_STREAM_FLAG_NONE,
        has_words ? stream_ : -1, &rest, has_words ? 1 : 0, static_cast<ngtcp2_tstamp>(now.ns));
    if (size <= 0) {
      gone_ = gone_ || size < 0;
      return false;
    }
    if (has_words && taken >= 0) {
      written_ += static_cast<std::size_t>(taken);
      said_ = written_ == options_.words.size();
      if (said_ && options_.stops_listening) ngtcp2_conn_shutdown_stream_read(quic_, stream_, 1);
    }
    to = remote_;
    bytes = std::as_bytes(std::span(buffer_).first(static_cast<std::size_t>(size)));
    return true;
  }

  std::vector<std::byte> heard;  // on the stream
  std::optional<std::uint64_t> close_code;
  bool close_is_application = false;
  std::string close_reason;

  std::optional<ngtcp2_transport_params> told;  // by the other side

  // Whether the other side named a server in its TLS hello.
  bool heard_a_server_name() const {
    char name[256];
    std::size_t size = sizeof name;
    unsigned type = 0;
    return gnutls_server_name_get(session_, name, &size, &type, 0) == 0;
  }
  bool is_gone() const { return gone_ && goodbye_bytes_ == 0; }

 private:
  // The alert of TLS, as QUIC tells it.
  void say_goodbye(Instant now) {
    ngtcp2_connection_close_error close;
    ngtcp2_connection_close_error_default(&close);
    ngtcp2_connection_close_error_set_transport_error_tls_alert(&close, ngtcp2_conn_get_tls_alert(quic_), nullptr, 0);
    const ngtcp2_ssize size = ngtcp2_conn_write_connection_close(
        quic_, nullptr, nullptr, buffer_.data(), buffer_.size(), &close, static_cast<ngtcp2_tstamp>(now.ns));
    if (size > 0) goodbye_bytes_ = static_cast<std::size_t>(size);
  }
  bool accept(ByteSpan datagram, Instant now) {
    ngtcp2_pkt_hd header{};
    if (ngtcp2_accept(&header, reinterpret_cast<const std::uint8_t*>(datagram.data()), datagram.size()) != 0) {
      return false;
    }
    const ngtcp2_cid ours = random_id();
    const auto calls = callbacks();
    const auto settings = settings_at(now);
    auto parameters = transport_parameters();
    parameters.original_dcid = header.dcid;
    WEIR_CHECK(ngtcp2_conn_server_new(&quic_, &header.scid, &ours, path_.get(), NGTCP2_PROTO_VER_V1, &calls, &settings,
                                      &parameters, nullptr, this) == 0,
               "a server");
    ngtcp2_conn_set_tls_native_handle(quic_, session_);
    return true;
  }

  static ngtcp2_callbacks callbacks() {
    ngtcp2_callbacks calls{};
    calls.client_initial = ngtcp2_crypto_client_initial_cb;
    calls.recv_client_initial = ngtcp2_crypto_recv_client_initial_cb;
    calls.recv_retry = ngtcp2_crypto_recv_retry_cb;
    calls.recv_crypto_data = ngtcp2_crypto_recv_crypto_data_cb;
    calls.encrypt = ngtcp2_crypto_encrypt_cb;
    calls.decrypt = ngtcp2_crypto_decrypt_cb;
    calls.hp_mask = ngtcp2_crypto_hp_mask_cb;
    calls.update_key = ngtcp2_crypto_update_key_cb;
    calls.delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb;
    calls.delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb;
    calls.get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb;
    calls.version_negotiation = ngtcp2_crypto_version_negotiation_cb;
    calls.rand = [](std::uint8_t* out, std::size_t size, const ngtcp2_rand_ctx*) {
      gnutls_rnd(GNUTLS_RND_NONCE, out, size);
    };
    calls.get_new_connection_id = [](ngtcp2_conn*, ngtcp2_cid* cid, std::uint8_t* token, std::size_t size, void*) {
      gnutls_rnd(GNUTLS_RND_NONCE, cid->data, size);
      gnutls_rnd(GNUTLS_RND_NONCE, token, NGTCP2_STATELESS_RESET_TOKENLEN);
      cid->datalen = size;
      return 0;
    };
    calls.recv_stream_data = [](ngtcp2_conn*, std::uint32_t, std::int64_t, std::uint64_t, const std::uint8_t* data,
                                std::size_t size, void* self, void*) {
      auto& all = static_cast<RawPeer*>(self)->heard;
      const auto piece = std::as_bytes(std::span(data, size));
      all.insert(all.end(), piece.begin(), piece.end());
      return 0;
    };
    return calls;
  }

  static ngtcp2_settings settings_at(Instant now) {
    ngtcp2_settings settings;
    ngtcp2_settings_default(&settings);
    settings.initial_ts = static_cast<ngtcp2_tstamp>(now.ns);
    settings.no_pmtud = 1;
    return settings;
  }

  static ngtcp2_transport_params transport_parameters() {
    ngtcp2_transport_params parameters;
    ngtcp2_transport_params_default(&parameters);
    parameters.initial_max_data = 1 << 16;
    parameters.initial_max_stream_data_bidi_local = 1 << 16;
    parameters.initial_max_stream_data_bidi_remote = 1 << 16;
    parameters.initial_max_streams_bidi = 4;
    return parameters;
  }

  static ngtcp2_cid random_id() {
    ngtcp2_cid id{};
    id.datalen = 18;
    gnutls_rnd(GNUTLS_RND_NONCE, id.data, id.datalen);
    return id;
  }

  Options options_;
  Address remote_;
  QuicPath path_;
  gnutls_session_t session_ = nullptr;
  gnutls_certificate_credentials_t no_certificate_ = nullptr;
  ngtcp2_conn* quic_ = nullptr;
  ngtcp2_crypto_conn_ref reference_{};
  std::int64_t stream_ = -1;
  std::size_t written_ = 0;
  bool said_ = false;
  bool gone_ = false;
  std::size_t goodbye_bytes_ = 0;  // at the beginning of buffer_, yet to be sent
  Instant expired_at_{0};
  std::array<std::uint8_t, 1200> buffer_{};
};

}  // namespace weir::handshake::testing
