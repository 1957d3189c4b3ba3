// Keying: the keys that the handshake of one path uses (docs/protocol.md, rules K-1 and K-3). They come from the secret
// that all share, or from one credential. In identity mode there is no shared secret, so there is nothing to fall back
// to when a credential has ended.
#pragma once

#include <memory>
#include <utility>

#include "crypto/cmac.h"
#include "crypto/derive.h"
#include "engine/credential.h"

namespace weir::engine {

// What an engine has in shared-secret mode, and in no other.
class SharedSecretMode {
 public:
  SharedSecretMode(crypto::Aead& aead, const crypto::SharedSecret& secret)
      : secret_(secret),
        hello_mac_(make(aead, crypto::derive_hello_key(secret))),
        answer_mac_(make(aead, crypto::derive_answer_key(secret))) {}

  const crypto::SharedSecret& secret() const { return secret_; }
  const crypto::Cmac& hello_mac() const { return *hello_mac_; }
  const crypto::Cmac& answer_mac() const { return *answer_mac_; }

 private:
  static std::unique_ptr<crypto::Cmac> make(crypto::Aead& aead, crypto::KeyBytes key) {
    auto mac = std::make_unique<crypto::Cmac>(aead, key);
    crypto::wipe(key);
    return mac;
  }

  crypto::SharedSecret secret_;
  std::unique_ptr<crypto::Cmac> hello_mac_;
  std::unique_ptr<crypto::Cmac> answer_mac_;
};

// Refers to what it was made from.
class Keying {
 public:
  explicit Keying(const SharedSecretMode& shared) : secret_(&shared.secret()), shared_(&shared) {}
  explicit Keying(const Credential& credential)
      : secret_(&credential.secret), hello_key_(&credential.hello_key), answer_key_(&credential.answer_key) {}
  explicit Keying(const KnownCredential& known)
      : secret_(&known.secret), hello_key_(&known.hello_key), answer_key_(&known.answer_key) {}

  const crypto::SharedSecret& secret() const { return *secret_; }
  // `scratch` may become the result, until it is given another key.
  const crypto::Cmac& hello_mac(crypto::Cmac& scratch) const {
    return shared_ != nullptr ? shared_->hello_mac() : rekeyed(scratch, *hello_key_);
  }
  const crypto::Cmac& answer_mac(crypto::Cmac& scratch) const {
    return shared_ != nullptr ? shared_->answer_mac() : rekeyed(scratch, *answer_key_);
  }

 private:
  static const crypto::Cmac& rekeyed(crypto::Cmac& scratch, const crypto::KeyBytes& key) {
    scratch.rekey(key);
    return scratch;
  }

  const crypto::SharedSecret* secret_;
  const SharedSecretMode* shared_ = nullptr;
  const crypto::KeyBytes* hello_key_ = nullptr;
  const crypto::KeyBytes* answer_key_ = nullptr;
};

// The credential that an engine has for a peer. Nobody reads it without saying when: after its end there is none.
class HeldCredential {
 public:
  const Credential* at(Instant now) const { return held_ != nullptr && now < held_->expires ? held_.get() : nullptr; }
  // Names it, also after its end; zeros if there is none.
  CredentialId id() const { return held_ != nullptr ? held_->id : CredentialId{}; }
  void set(const Credential& credential) {
    held_ = std::make_unique<Credential>(credential);
    held_->hello_key = crypto::derive_hello_key(credential.secret);
    held_->answer_key = crypto::derive_answer_key(credential.secret);
  }
  void reset() { held_.reset(); }

 private:
  std::unique_ptr<Credential> held_;
};

}  // namespace weir::engine
