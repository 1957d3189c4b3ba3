// Outcome: what one handshake ended with.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/address.h"
#include "crypto/secret.h"
#include "handshake/names.h"
#include "handshake/secret_bytes.h"
#include "weir/error.h"

namespace weir::handshake {

inline constexpr std::size_t kMaxOfferBytes = 4096;  // of one negotiation message, either way

using CredentialId = std::array<std::byte, 16>;

// Exactly one per connect() that was not abandoned, and one per inbound handshake that succeeded, or failed after the
// peer had shown that it receives at its address (unless it had to make room: those are only counted).
struct Outcome {
  std::uint64_t tag = 0;  // connect()'s; 0: inbound
  bool inbound = false;
  Address remote;
  std::optional<Error> failure;  // what follows is complete only without one; `names` also if the answer refused
  Names names;                   // what the peer's certificate proves
  std::int64_t own_valid_until_seconds = 0;  // of the certificate that we showed
  SecretBytes offer;                         // the peer's negotiation message: its reset key is in it
  CredentialId credential{};                 // public; both sides have the same
  crypto::Secret secret;                     // both sides have the same, nobody else
};

}  // namespace weir::handshake
