// What an engine knows of secrets that were agreed for one pair of peers (identity mode). In shared-secret mode there
// is one secret for all, and none of this.
#pragma once

#include <string_view>

#include "base/address.h"
#include "base/time.h"
#include "crypto/derive.h"
#include "crypto/prf.h"
#include "peer/credential.h"
#include "transfer/known_caller.h"
#include "wire/packet.h"

namespace weir::engine {

using peer::Hurry;
using peer::KnownCredential;
using wire::CredentialId;

// What an initiator is given: a secret that it shares with one peer, and where that peer's worker is. Wipes its keys.
struct Credential {
  CredentialId id{};
  crypto::SharedSecret secret;
  crypto::KeyBytes reset_key{};  // authenticates the peer's unknown_secret answers
  crypto::KeyBytes hello_key{};  // these two are derived from the secret when it is installed
  crypto::KeyBytes answer_key{};
  Address data;
  bool is_proven = false;              // the peer has shown that it receives at that IP; otherwise it merely says so
  std::uint32_t mtu = 0;               // of the largest datagram that both sides try for; 0: not agreed
  std::uint64_t member = 0;            // of the peer's certificate; 0: not known
  Instant expires = Instant::never();  // nothing is done with it from then on, and what was made with it ends

  ~Credential() {
    crypto::wipe(reset_key);
    crypto::wipe(hello_key);
    crypto::wipe(answer_key);
  }
};

// Where an engine looks such credentials up. Shared by the engines of a pool and called by their threads.
class CredentialBook {
 public:
  virtual ~CredentialBook() = default;
  // What is there and has not ended at `now`. Must not lock or allocate: anybody can send hellos. The others come once
  // for each path or hello of our own.
  virtual bool find(const CredentialId& id, Instant now, KnownCredential& out) const = 0;
  // What the certificate of one that was found proves; null if it has gone meanwhile. Once for each path.
  virtual transfer::ProvenNames names_of(const CredentialId& id) const = 0;
  // A packet of the other side has authenticated under a key derived from it.
  virtual void on_shown(const CredentialId& id) = 0;
  // Whether one more hello may go to an address that a peer says is its own, which counts it. `is_proven`: as in
  // Credential. All engines share one count, or a peer could have an address greeted by each.
  virtual bool may_greet(const Address& to, bool is_proven, Instant now) = 0;
  // A sealed packet came back from there.
  virtual void on_answer(const Address& from, Instant now) = 0;
};

// A peer for which the engine has no credential, or has reason to believe that the one it has is no longer known.
struct Wanted {
  std::uint32_t peer = 0;
  bool suspects = false;  // the latter
  peer::Hurry hurry = peer::Hurry::none;
  CredentialId suspected{};
};

// An address as pseudorandom functions take it.
crypto::Prf::Context address_bytes(const Address& address);

}  // namespace weir::engine
