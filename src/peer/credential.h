// What one handshake between two pools has agreed on: a secret with a public name, and the terms for using it
// (docs/protocol.md, rules I-5 and I-6).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/address.h"
#include "base/time.h"
#include "crypto/derive.h"
#include "crypto/secret.h"

namespace weir::peer {

using CredentialId = std::array<std::byte, 16>;

inline constexpr std::size_t kMaxCredentialName = 64;
inline constexpr std::size_t kMaxDataAddresses = 8;  // a peer may have more workers; these are the ones we use

// Where one worker of the peer receives. `validated` is false where the peer merely claims the IP: nothing but the
// handshake's own IP is known to be the peer's.
struct DataAddress {
  Address address;
  std::uint16_t worker = 0;
  std::uint16_t nic = 0;
  bool validated = false;

  bool operator==(const DataAddress&) const = default;
};

// A plain value; wipes its keys. About 440 bytes.
struct Credential {
  CredentialId id{};
  crypto::Secret secret;
  crypto::KeyBytes hello_key{};
  crypto::KeyBytes answer_key{};
  crypto::KeyBytes reset_key{};  // the peer's: authenticates its word that it no longer knows this credential
  crypto::Incarnation remote_incarnation{};
  Address handshake_address;  // all zeros if the peer's certificate did not prove one
  std::array<char, kMaxCredentialName> name_bytes{};
  std::uint8_t name_length = 0;
  std::uint8_t version = 0;
  std::uint8_t transport = 0;      // a bit of the offer's set
  bool initiator = false;          // we began the handshake
  bool may_call = false;           // our rules let the peer call us
  std::uint32_t mtu = 0;           // of the largest datagram that both sides try for
  std::int64_t expires_ns = 0;     // an Instant: from then on it is of no use; at once if nobody says otherwise
  std::uint64_t member = 0;        // of the peer's certificate: the same for all credentials made with it
  std::uint16_t worker_count = 0;  // of the peer; the first kMaxDataAddresses are below
  std::array<DataAddress, kMaxDataAddresses> workers{};

  ~Credential() {
    crypto::wipe(hello_key);
    crypto::wipe(answer_key);
    crypto::wipe(reset_key);
  }

  std::string_view name() const { return {name_bytes.data(), name_length}; }
  // Cuts what is longer than kMaxCredentialName.
  void set_name(std::string_view text) {
    name_length = static_cast<std::uint8_t>(text.copy(name_bytes.data(), name_bytes.size()));
  }
  std::span<const DataAddress> data_addresses() const {
    return {workers.data(), worker_count < kMaxDataAddresses ? worker_count : kMaxDataAddresses};
  }

  bool operator==(const Credential&) const = default;
};

// Why a handshake that was wanted already should be tried at once.
enum class Hurry : std::uint8_t {
  none,
  path_lost,   // its path was given up: the peer may be back, and somebody calls it
  heard_from,  // the peer said so itself: it is there
};

// What a responder needs of a credential that a hello names. Wipes its keys.
struct KnownCredential {
  crypto::SharedSecret secret;
  crypto::KeyBytes hello_key{};
  crypto::KeyBytes answer_key{};
  std::uint32_t mtu = 0;  // of the largest datagram that both sides try for; 0: not agreed
  Instant expires = Instant::never();
  std::uint64_t member = 0;  // of the caller's certificate, whose paths share what one member may take; 0: not known

  ~KnownCredential() {
    crypto::wipe(hello_key);
    crypto::wipe(answer_key);
  }
};

}  // namespace weir::peer
