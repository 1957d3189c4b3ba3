// Two engines with a book of credentials each. The test is the one who shakes hands.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "crypto/reset.h"
#include "crypto/responder_key.h"
#include "engine/credential.h"
#include "engine/engine_testing.h"
#include "peer/hello_budget.h"

namespace weir::engine::testing {

class Book final : public CredentialBook {
 public:
  bool find(const CredentialId& id, KnownCredential& out) const override {
    const auto found = known.find(id);
    if (found == known.end()) return false;
    out = found->second;
    return true;
  }
  void on_shown(const CredentialId& id) override { ++shown[id]; }
  bool may_greet(const Address& to, bool is_proven, Instant now) override { return budget.spend(to, is_proven, now); }
  void on_answer(const Address& from, Instant now) override { budget.on_answer(from, now); }

  std::map<CredentialId, KnownCredential> known;
  std::map<CredentialId, int> shown;
  peer::HelloBudget budget;
};

struct Agreed {
  Credential ours;
  KnownCredential theirs;
};

class IdentityMode : public ::testing::Test {
 protected:
  static constexpr crypto::KeyBytes kSigner{std::byte{1}, std::byte{2}};

  EngineConfig config(bool accepts, Book& book, std::uint8_t incarnation) {
    EngineConfig config = test_config(accepts, accepts ? 2222 : 1111);
    config.credentials = &book;
    config.signer = kSigner;
    config.incarnation.fill(static_cast<std::byte>(incarnation));
    return config;
  }

  Agreed agree(std::uint8_t number) {
    crypto::Secret secret;
    for (std::byte& byte : secret.writable()) byte = static_cast<std::byte>(number * 7);
    Agreed agreed;
    agreed.ours.id.fill(static_cast<std::byte>(number));
    agreed.ours.secret = agreed.theirs.secret = crypto::SharedSecret::from_secret(secret);
    agreed.ours.data = pair.addresses[1];
    const auto aead = crypto::Aead::create(crypto::default_backend().backend);
    agreed.ours.reset_key = crypto::credential_reset_key(crypto::Prf(*aead, kSigner), agreed.ours.id);
    agreed.theirs.hello_key = crypto::derive_hello_key(agreed.theirs.secret);
    agreed.theirs.responder_key =
        crypto::derive_responder_key(*aead, agreed.theirs.secret, pair.configs[1].incarnation);
    return agreed;
  }
  void hand_out(const Agreed& agreed, bool to_server = true) {
    if (to_server) server_book.known[agreed.ours.id] = agreed.theirs;
    pair.client().install(pair.peer, agreed.ours, pair.now);
  }
  bool is_wanted(bool suspects) {
    Wanted wanted;
    if (!pair.client().take_wanted(wanted)) return false;
    EXPECT_EQ(wanted.peer, pair.peer);
    EXPECT_EQ(wanted.suspects, suspects);
    return true;
  }
  // When it became true. A step ends by moving time on, so this is not the time after it.
  template <class Done>
  Instant when(Done&& done) {
    Instant last = pair.now;
    EXPECT_TRUE(pair.run_until([&] { return done() || (last = pair.now, false); }));
    return last;
  }
  void restart_server(std::uint8_t incarnation) {
    server_book.known.clear();
    pair.configs[1].incarnation.fill(static_cast<std::byte>(incarnation));
    pair.start(1);
    pair.serve_echo();
  }
  void call_and_expect_echo() {
    TestCall call;
    pair.call(call, "echo", "body");
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
    EXPECT_EQ(call.reply, "body");
  }

  Book client_book, server_book;
  Pair pair{config(false, client_book, 1), config(true, server_book, 2)};
};

}  // namespace weir::engine::testing
