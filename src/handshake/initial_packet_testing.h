// Initial packets made by hand: their keys follow from what everybody sees, so a stranger can put any frames into them.
#pragma once

#include <gnutls/crypto.h>
#include <ngtcp2/ngtcp2.h>
#include <ngtcp2/ngtcp2_crypto.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace weir::handshake::testing {

using Octets = std::vector<std::uint8_t>;

struct InitialHeader {
  Octets to;  // connection ids
  Octets from;
  Octets token;  // a client's
};

// QUIC version 1 (RFC 9001, section 5).
class InitialPackets {
 public:
  // `first_id`: the one that the client chose for the server. `by_client`: who seals.
  InitialPackets(std::span<const std::uint8_t> first_id, bool by_client) {
    static constexpr std::array<std::uint8_t, 20> kSalt = {0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17,
                                                           0x9a, 0xe6, 0xa4, 0xc8, 0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a};
    Octets common(32);
    const gnutls_datum_t id{const_cast<std::uint8_t*>(first_id.data()), static_cast<unsigned>(first_id.size())};
    const gnutls_datum_t salt{const_cast<std::uint8_t*>(kSalt.data()), kSalt.size()};
    gnutls_hkdf_extract(GNUTLS_MAC_SHA256, &id, &salt, common.data());
    const Octets secret = expand(common, by_client ? "client in" : "server in", 32);
    key_ = expand(secret, "quic key", 16);
    iv_ = expand(secret, "quic iv", 12);
    header_key_ = expand(secret, "quic hp", 16);
  }

  std::vector<std::byte> seal(const InitialHeader& header, std::uint32_t number, Octets frames,
                              std::size_t least_bytes = 1200) const {
    Octets packet = {0xc3, 0, 0, 0, 1};
    append_sized(packet, header.to);
    append_sized(packet, header.from);
    append_number(packet, header.token.size());
    packet.insert(packet.end(), header.token.begin(), header.token.end());
    constexpr std::size_t kOverhead = 2 + 4 + 16;  // length, packet number, tag
    if (packet.size() + kOverhead + frames.size() < least_bytes) {
      frames.resize(least_bytes - packet.size() - kOverhead);
    }
    append_number(packet, 4 + frames.size() + 16);
    const std::size_t number_at = packet.size();
    for (int shift = 24; shift >= 0; shift -= 8) packet.push_back(static_cast<std::uint8_t>(number >> shift));
    const Octets sealed = crypt(nonce(number), packet, frames, true).value_or(Octets());
    packet.insert(packet.end(), sealed.begin(), sealed.end());
    protect(packet, number_at, true);
    const auto bytes = std::as_bytes(std::span(packet));
    return {bytes.begin(), bytes.end()};
  }

  // The frames of a packet that a client of ours made (four bytes of packet number at most, one packet per datagram).
  std::optional<Octets> open(ByteSpan datagram) const {
    Octets packet(reinterpret_cast<const std::uint8_t*>(datagram.data()),
                  reinterpret_cast<const std::uint8_t*>(datagram.data()) + datagram.size());
    ngtcp2_pkt_hd header{};
    const ngtcp2_ssize at = ngtcp2_pkt_decode_hd_long(&header, packet.data(), packet.size());
    if (at < 0) return std::nullopt;
    const auto number_at = static_cast<std::size_t>(at);
    packet.resize(std::min(packet.size(), number_at + header.len));
    protect(packet, number_at, false);
    const std::size_t number_bytes = 1 + (packet[0] & 3);
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < number_bytes; ++i) number = number << 8 | packet[number_at + i];
    const Octets sealed(packet.begin() + static_cast<std::ptrdiff_t>(number_at + number_bytes), packet.end());
    packet.resize(number_at + number_bytes);
    return crypt(nonce(number), packet, sealed, false);
  }

 private:
  static Octets expand(const Octets& secret, std::string_view label, std::size_t size) {
    Octets out(size);
    ngtcp2_crypto_md md;
    ngtcp2_crypto_md_init(&md, reinterpret_cast<void*>(GNUTLS_DIG_SHA256));
    ngtcp2_crypto_hkdf_expand_label(out.data(), size, &md, secret.data(), secret.size(),
                                    reinterpret_cast<const std::uint8_t*>(label.data()), label.size());
    return out;
  }

  static void append_sized(Octets& out, const Octets& content) {
    out.push_back(static_cast<std::uint8_t>(content.size()));
    out.insert(out.end(), content.begin(), content.end());
  }
  static void append_number(Octets& out, std::size_t value) {  // always two bytes
    out.push_back(static_cast<std::uint8_t>(0x40 | (value >> 8)));
    out.push_back(static_cast<std::uint8_t>(value));
  }

  Octets nonce(std::uint32_t number) const {
    Octets out = iv_;
    for (std::size_t i = 0; i < 4; ++i) out[11 - i] ^= static_cast<std::uint8_t>(number >> (8 * i));
    return out;
  }

  std::optional<Octets> crypt(const Octets& nonce, const Octets& header, const Octets& in, bool seal) const {
    gnutls_aead_cipher_hd_t cipher;
    const gnutls_datum_t key{const_cast<std::uint8_t*>(key_.data()), static_cast<unsigned>(key_.size())};
    if (gnutls_aead_cipher_init(&cipher, GNUTLS_CIPHER_AES_128_GCM, &key) != 0) return std::nullopt;
    Octets out(in.size() + 16);
    std::size_t size = out.size();
    const auto work = seal ? gnutls_aead_cipher_encrypt : gnutls_aead_cipher_decrypt;
    const int error = work(cipher, nonce.data(), nonce.size(), header.data(), header.size(), 16, in.data(), in.size(),
                           out.data(), &size);
    gnutls_aead_cipher_deinit(cipher);
    if (error != 0) return std::nullopt;
    out.resize(size);
    return out;
  }

  // Hides or shows the first byte's low bits and the packet number.
  void protect(Octets& packet, std::size_t number_at, bool hide) const {
    if (packet.size() < number_at + 20) return;
    std::array<std::uint8_t, 16> mask;
    std::array<std::uint8_t, 16> zero{};
    gnutls_cipher_hd_t cipher;
    const gnutls_datum_t key{const_cast<std::uint8_t*>(header_key_.data()), static_cast<unsigned>(header_key_.size())};
    const gnutls_datum_t iv{zero.data(), zero.size()};
    if (gnutls_cipher_init(&cipher, GNUTLS_CIPHER_AES_128_CBC, &key, &iv) != 0) return;
    gnutls_cipher_encrypt2(cipher, packet.data() + number_at + 4, 16, mask.data(), mask.size());
    gnutls_cipher_deinit(cipher);
    const std::size_t shown = 1 + (packet[0] & 3);
    packet[0] ^= mask[0] & 0x0f;
    const std::size_t bytes = hide ? shown : 1 + (packet[0] & 3);
    for (std::size_t i = 0; i < bytes; ++i) packet[number_at + i] ^= mask[1 + i];
  }

  Octets key_;
  Octets iv_;
  Octets header_key_;
};

}  // namespace weir::handshake::testing
