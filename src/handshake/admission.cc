#include "handshake/admission.h"

#include <ngtcp2/ngtcp2_crypto.h>

#include <algorithm>
#include <span>

#include "handshake/quic_path.h"

namespace weir::handshake {
namespace {

constexpr std::size_t kMaxReplyBytes = 512;

ngtcp2_tstamp stamp(Instant now) { return static_cast<ngtcp2_tstamp>(std::max<std::int64_t>(now.ns, 0)); }

const std::uint8_t* bytes(const crypto::Secret& secret) {
  return reinterpret_cast<const std::uint8_t*>(secret.bytes().data());
}

// `write` fills the buffer and returns a size, or an error below zero.
template <class Write>
std::vector<std::byte> reply(Write write) {
  std::vector<std::byte> out(kMaxReplyBytes);
  const ngtcp2_ssize size = write(reinterpret_cast<std::uint8_t*>(out.data()), out.size());
  out.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return out;
}

}  // namespace

Admission::Admission(crypto::Entropy& entropy, const ConnectionIds& ids) : entropy_(&entropy), ids_(&ids) {
  entropy.fill(secret_.writable());
}

Admission::Proof Admission::proof(const ngtcp2_pkt_hd& header, const Address& from, ngtcp2_cid& before_retry,
                                  Instant now) const {
  if (header.token.len == 0 || header.token.base[0] != NGTCP2_CRYPTO_TOKEN_MAGIC_RETRY) return Proof::none;
  const QuicPath path(from);
  const int error =
      ngtcp2_crypto_verify_retry_token(&before_retry, header.token.base, header.token.len, bytes(secret_),
                                       crypto::kSecretBytes, header.version, path.remote().addr, path.remote().addrlen,
                                       &header.dcid, static_cast<ngtcp2_duration>(kRetryTokenLife.count()), stamp(now));
  return error == 0 ? Proof::valid : Proof::invalid;
}

std::vector<std::byte> Admission::retry(const ngtcp2_pkt_hd& header, const Address& from, Instant now) const {
  const QuicPath path(from);
  const ngtcp2_cid ours = ConnectionIds::quic(ids_->draw());
  std::array<std::uint8_t, NGTCP2_CRYPTO_MAX_RETRY_TOKENLEN> token;
  const ngtcp2_ssize size =
      ngtcp2_crypto_generate_retry_token(token.data(), bytes(secret_), crypto::kSecretBytes, header.version,
                                         path.remote().addr, path.remote().addrlen, &ours, &header.dcid, stamp(now));
  if (size < 0) return {};
  return reply([&](std::uint8_t* out, std::size_t room) {
    return ngtcp2_crypto_write_retry(out, room, header.version, &header.scid, &ours, &header.dcid, token.data(),
                                     static_cast<std::size_t>(size));
  });
}

std::vector<std::byte> Admission::invalid_token(const ngtcp2_pkt_hd& header) const {
  return reply([&](std::uint8_t* out, std::size_t room) {
    return ngtcp2_crypto_write_connection_close(out, room, header.version, &header.scid, &header.dcid,
                                                NGTCP2_INVALID_TOKEN, nullptr, 0);
  });
}

std::vector<std::byte> Admission::versions(const ngtcp2_version_cid& ids) const {
  constexpr std::uint32_t kVersions[] = {NGTCP2_PROTO_VER_V1};
  std::uint8_t filler = 0;
  entropy_->fill(std::as_writable_bytes(std::span(&filler, 1)));
  return reply([&](std::uint8_t* out, std::size_t room) -> ngtcp2_ssize {
    if (ids.dcidlen + ids.scidlen + 16 > room) return 0;  // a stranger may choose ids of 255 bytes
    return ngtcp2_pkt_write_version_negotiation(out, room, filler, ids.scid, ids.scidlen, ids.dcid, ids.dcidlen,
                                                kVersions, 1);
  });
}

}  // namespace weir::handshake
