// What a connection tells ngtcp2: callbacks, settings, transport parameters.
#include <ngtcp2/ngtcp2_crypto.h>

#include <algorithm>
#include <span>

#include "handshake/connection.h"

namespace weir::handshake {
namespace {

constexpr std::uint64_t kWindowBytes = 16 * 1024;  // more than any message, so that a larger one is told so

}  // namespace

ngtcp2_settings Connection::settings(Instant now) const {
  ngtcp2_settings settings;
  ngtcp2_settings_default(&settings);
  settings.cc_algo = NGTCP2_CC_ALGO_RENO;
  settings.initial_ts = static_cast<ngtcp2_tstamp>(std::max<std::int64_t>(now.ns, 0));
  settings.initial_rtt = static_cast<ngtcp2_duration>(context_->initial_rtt.count());
  settings.handshake_timeout = static_cast<ngtcp2_duration>(context_->timeout.count());
  settings.max_tx_udp_payload_size = kDatagramBytes;
  settings.no_pmtud = 1;
  settings.rand_ctx.native_handle = &context_->entropy;
  return settings;
}

ngtcp2_transport_params Connection::parameters() const {
  ngtcp2_transport_params parameters;
  ngtcp2_transport_params_default(&parameters);
  parameters.initial_max_data = kWindowBytes;
  parameters.initial_max_stream_data_bidi_local = kWindowBytes;
  parameters.initial_max_stream_data_bidi_remote = kWindowBytes;
  parameters.initial_max_streams_bidi = role_ == Role::responder ? 1 : 0;
  parameters.initial_max_streams_uni = 0;
  parameters.max_idle_timeout = static_cast<ngtcp2_duration>(context_->timeout.count());
  parameters.max_udp_payload_size = kDatagramBytes;
  parameters.active_connection_id_limit = 2;  // the least that there is
  parameters.disable_active_migration = 1;
  return parameters;
}

bool Connection::issue_id(ngtcp2_cid& cid, std::uint8_t* reset_token) {
  cid = ConnectionIds::quic(ids_.emplace_back(context_->ids.add(owner_)));
  // Nobody can ever send one of ours: we keep no key for them, so the token is a number that nobody knows.
  context_->entropy.fill(std::as_writable_bytes(std::span(reset_token, NGTCP2_STATELESS_RESET_TOKENLEN)));
  return true;
}

void Connection::retire_id(const ngtcp2_cid& cid) {
  if (cid.datalen != kConnectionIdBytes) return;
  const auto id = load<std::uint64_t>(reinterpret_cast<const std::byte*>(cid.data));
  if (std::erase(ids_, id) > 0) context_->ids.remove(id);
}

ngtcp2_callbacks Connection::callbacks(Role role) {
  ngtcp2_callbacks calls{};
  if (role == Role::initiator) {
    calls.client_initial = ngtcp2_crypto_client_initial_cb;
    calls.recv_retry = ngtcp2_crypto_recv_retry_cb;
  } else {
    calls.recv_client_initial = ngtcp2_crypto_recv_client_initial_cb;
  }
  calls.encrypt = ngtcp2_crypto_encrypt_cb;
  calls.decrypt = ngtcp2_crypto_decrypt_cb;
  calls.hp_mask = ngtcp2_crypto_hp_mask_cb;
  calls.update_key = ngtcp2_crypto_update_key_cb;
  calls.delete_crypto_aead_ctx = ngtcp2_crypto_delete_crypto_aead_ctx_cb;
  calls.delete_crypto_cipher_ctx = ngtcp2_crypto_delete_crypto_cipher_ctx_cb;
  calls.get_path_challenge_data = ngtcp2_crypto_get_path_challenge_data_cb;
  calls.version_negotiation = ngtcp2_crypto_version_negotiation_cb;
  calls.recv_crypto_data = [](ngtcp2_conn* quic, ngtcp2_crypto_level level, std::uint64_t offset,
                              const std::uint8_t* data, std::size_t size, void* self) {
    static_cast<Connection*>(self)->heard_ = true;
    return ngtcp2_crypto_recv_crypto_data_cb(quic, level, offset, data, size, self);
  };
  calls.recv_tx_key = [](ngtcp2_conn*, ngtcp2_crypto_level, void* self) {
    static_cast<Connection*>(self)->has_keys_ = true;
    return 0;
  };
  calls.handshake_completed = [](ngtcp2_conn*, void* self) {
    static_cast<Connection*>(self)->completed_ = true;
    return 0;
  };
  calls.rand = [](std::uint8_t* out, std::size_t size, const ngtcp2_rand_ctx* context) {
    static_cast<crypto::Entropy*>(context->native_handle)->fill(std::as_writable_bytes(std::span(out, size)));
  };
  calls.get_new_connection_id = [](ngtcp2_conn*, ngtcp2_cid* cid, std::uint8_t* token, std::size_t, void* self) {
    return static_cast<Connection*>(self)->issue_id(*cid, token) ? 0 : NGTCP2_ERR_CALLBACK_FAILURE;
  };
  calls.remove_connection_id = [](ngtcp2_conn*, const ngtcp2_cid* cid, void* self) {
    static_cast<Connection*>(self)->retire_id(*cid);
    return 0;
  };
  calls.recv_stream_data = [](ngtcp2_conn*, std::uint32_t flags, std::int64_t stream, std::uint64_t,
                              const std::uint8_t* data, std::size_t size, void* user, void*) {
    auto& self = *static_cast<Connection*>(user);
    if (stream != 0 || self.inbound_too_large_) return 0;
    const auto piece = std::as_bytes(std::span(data, size));
    self.inbound_.insert(self.inbound_.end(), piece.begin(), piece.end());
    self.inbound_too_large_ =
        self.inbound_.size() > kMaxOfferBytes + (self.inbound() ? kOfferHeaderBytes : kAnswerHeaderBytes);
    self.inbound_ended_ = self.inbound_ended_ || (flags & NGTCP2_STREAM_DATA_FLAG_FIN) != 0;
    return 0;
  };
  calls.stream_close = [](ngtcp2_conn*, std::uint32_t, std::int64_t stream, std::uint64_t, void* self, void*) {
    if (stream == 0) static_cast<Connection*>(self)->stream_closed_ = true;
    return 0;
  };
  return calls;
}

}  // namespace weir::handshake
