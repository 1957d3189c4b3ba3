// A book of credentials, and what two sides have of one that they agreed on. The test is the one who shakes hands.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "crypto/cmac.h"
#include "crypto/reset.h"
#include "engine/credential.h"
#include "peer/hello_budget.h"

namespace weir::engine::testing {

class Book final : public CredentialBook {
 public:
  bool find(const CredentialId& id, Instant now, KnownCredential& out) const override {
    const auto found = known.find(id);
    if (found == known.end() || found->second.expires <= now) return false;
    out = found->second;
    return true;
  }
  transfer::ProvenNames names_of(const CredentialId& id) const override {
    const auto found = names.find(id);
    return found == names.end() ? nullptr : found->second;
  }
  void on_shown(const CredentialId& id) override { ++shown[id]; }
  bool may_greet(const Address& to, bool is_proven, Instant now) override { return budget.spend(to, is_proven, now); }
  void on_answer(const Address& from, Instant now) override { budget.on_answer(from, now); }

  std::map<CredentialId, KnownCredential> known;
  std::map<CredentialId, transfer::ProvenNames> names;
  std::map<CredentialId, int> shown;
  peer::HelloBudget budget;
};

// Encodes a hello with its tag (H-3), as one does who has the hello key.
inline std::size_t sign_hello(crypto::Aead& aead, const crypto::KeyBytes& hello_key, const wire::Hello& hello,
                              std::byte* to) {
  const std::size_t bytes = wire::encode(hello, to);
  const std::size_t covered = wire::covered_bytes(hello);
  std::vector<std::byte> text(8, std::byte{0xff});
  text.insert(text.end(), to, to + covered);
  std::ranges::copy(crypto::Cmac(aead, hello_key)(text), to + covered);
  return bytes;
}

struct Agreed {
  Credential ours;
  KnownCredential theirs;
};

inline constexpr crypto::KeyBytes kTestSigner{std::byte{1}, std::byte{2}};

// For calls to `data`, whose signer is the one above. Each number gives another.
inline Agreed agree(std::uint8_t number, const Address& data) {
  crypto::Secret secret;
  for (std::byte& byte : secret.writable()) byte = static_cast<std::byte>(number * 7);
  Agreed agreed;
  agreed.ours.id.fill(static_cast<std::byte>(number));
  agreed.ours.secret = agreed.theirs.secret = crypto::SharedSecret::from_secret(secret);
  agreed.ours.data = data;
  const auto aead = crypto::Aead::create(crypto::default_backend().backend);
  agreed.ours.reset_key = crypto::credential_reset_key(crypto::Prf(*aead, kTestSigner), agreed.ours.id);
  agreed.theirs.hello_key = crypto::derive_hello_key(agreed.theirs.secret);
  agreed.theirs.answer_key = crypto::derive_answer_key(agreed.theirs.secret);
  return agreed;
}

}  // namespace weir::engine::testing
