// How every key comes from the shared secret. All derivations are HKDF-SHA256; each info string starts with a label
// and carries every field with its length or at a fixed size, so that no two sets of names give the same bytes.
//
//   shared secret ─┬─ hello key            (one for all who know the secret)
//                  ├─ answer key           (the same)
//                  └─ path secret          (per pair of incarnations, randoms and paths)
//                       ├─ control key     (per direction, workers, ports, key id)
//                       └─ retire key      (per direction)
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/bytes.h"
#include "crypto/secret.h"
#include "weir/error.h"

namespace weir::crypto {

// What both peers were configured with, stretched to 32 bytes. Wipes itself.
class SharedSecret {
 public:
  static constexpr std::size_t kMinBytes = 16;

  // invalid_argument if the text is shorter than kMinBytes.
  static Result<SharedSecret> from_text(std::string_view text);

  // What a handshake has agreed on takes the place of a configured one.
  static SharedSecret from_secret(const Secret& secret) { return SharedSecret{secret}; }

  SharedSecret() = default;  // all zeros: for nobody
  const Secret& secret() const { return secret_; }
  std::span<std::byte, kSecretBytes> writable() { return secret_.writable(); }

 private:
  explicit SharedSecret(Secret secret) : secret_(std::move(secret)) {}
  Secret secret_;
};

using Incarnation = std::array<std::byte, 16>;
using HandshakeRandom = std::array<std::byte, 32>;

struct PathNames {
  ByteSpan initiator_id;
  ByteSpan responder_id;
  Incarnation initiator_incarnation{};
  Incarnation responder_incarnation{};
  HandshakeRandom initiator_random{};
  HandshakeRandom responder_random{};
  std::uint32_t initiator_path = 0;
  std::uint32_t responder_path = 0;
};

Secret derive_path_secret(const SharedSecret& shared, const PathNames& names);

struct KeyNames {
  bool from_initiator = false;
  std::uint16_t sender_worker = 0;
  std::uint16_t sender_port = 0;
  std::uint16_t receiver_worker = 0;
  std::uint16_t receiver_port = 0;
  std::uint32_t key_id = 0;

  // Of the other direction.
  KeyNames reversed() const {
    return {.from_initiator = !from_initiator,
            .sender_worker = receiver_worker,
            .sender_port = receiver_port,
            .receiver_worker = sender_worker,
            .receiver_port = sender_port,
            .key_id = key_id};
  }
};

KeyBytes derive_control_key(const Secret& path, const KeyNames& names);

// Authenticates what a sender says about its own control keys. The nonce is the key id that is spoken of.
KeyBytes derive_retire_key(const Secret& path, bool from_initiator);

// Authenticates the prefixes of `first` packets, with Cmac: everyone who knows the secret has this key, in every
// incarnation, and nothing could keep nonces apart.
KeyBytes derive_hello_key(const SharedSecret& shared);

// Authenticates answers to hellos, in the same way.
KeyBytes derive_answer_key(const SharedSecret& shared);

// The key behind the tags of answers by somebody who has lost his state. It must survive that, so it comes from what a
// restart does not change.
KeyBytes derive_signer(const SharedSecret& shared);

// Which of two secrets that both sides agreed on at the same time they keep: the one with the lower order. Tells
// nothing about the secret.
std::uint64_t derive_order(const Secret& secret);

}  // namespace weir::crypto
