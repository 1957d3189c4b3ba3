// The life of a credential (docs/protocol.md, rules I-7 and I-8).
#include "peer/secret_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/random.h"
#include "crypto/derive.h"
#include "peer/secret_map_testing.h"

namespace weir::peer {
namespace {

using namespace std::chrono_literals;
using testing::numbered;
using testing::numbered_address;
using testing::numbered_id;
using Confirmation = SecretMap::Confirmation;
using Side = SecretMap::Side;
using State = SecretMap::State;

constexpr Instant kStart{1'000'000'000};

bool knows(const SecretMap& map, std::uint64_t number) {
  Credential out;
  return map.find(numbered_id(number), Instant{}, out);
}

// 0: none.
std::uint64_t current(const SecretMap& map, std::uint64_t owner) {
  Credential out;
  return map.find_by_address(numbered_address(owner), Instant{}, out) ? load<std::uint64_t>(out.id.data()) : 0;
}

void install(SecretMap& map, std::uint64_t number, std::uint64_t owner, Instant now = kStart) {
  ASSERT_TRUE(map.install(numbered(number, owner), now));
}

void establish(SecretMap& map, std::uint64_t number, std::uint64_t owner, Instant now = kStart) {
  install(map, number, owner, now);
  ASSERT_EQ(map.confirm(numbered_id(number), now), Confirmation::current);
}

std::uint64_t order_of(std::uint64_t number) { return crypto::derive_order(numbered(number, 0).secret); }

TEST(SecretMap, FindsNothingFromTheEndOfACredentialOn) {
  SecretMap map({.lifetime = 1h});
  Credential in = numbered(7, 3);
  in.expires_ns = (kStart + 5s).ns;
  in.may_call = true;
  ASSERT_TRUE(map.install(in, kStart));
  ASSERT_EQ(map.confirm(in.id, kStart), Confirmation::current);
  for (const auto& [at, is_there] : {std::pair{kStart + 5s - 1ns, true}, std::pair{kStart + 5s, false}}) {
    Credential out;
    KnownCredential known;
    EXPECT_EQ(map.find(in.id, at, out), is_there);
    EXPECT_EQ(map.find_by_address(in.handshake_address, at, out), is_there);
    EXPECT_EQ(map.find_caller(in.id, at, known), is_there);
  }
  EXPECT_EQ(map.next_deadline(), kStart + 5s) << "its end, and not the longest life";
  EXPECT_EQ(map.expire(kStart + 5s), 1u);
}

TEST(SecretMap, KeepsNoReplacedOrRetiredCredentialBeyondItsEnd) {
  SecretMap map({.grace = 30s, .lifetime = 1h});
  Credential in = numbered(7, 3);
  in.expires_ns = (kStart + 5s).ns;
  ASSERT_TRUE(map.install(in, kStart));
  ASSERT_EQ(map.confirm(in.id, kStart), Confirmation::current);
  establish(map, 8, 3, kStart + 1s);
  EXPECT_EQ(map.state(in.id), State::superseded);
  EXPECT_EQ(map.next_deadline(), kStart + 5s);
  ASSERT_TRUE(map.retire(in.id, kStart + 40s));
  EXPECT_EQ(map.next_deadline(), kStart + 5s);
  EXPECT_EQ(map.expire(kStart + 5s), 1u);
}

TEST(SecretMap, ReturnsEveryFieldAsItWasInstalled) {
  SecretMap map({});
  Credential in = numbered(7, 3);
  in.initiator = true;
  in.member = 12;
  in.remote_incarnation.fill(std::byte{9});
  ASSERT_TRUE(map.install(in, kStart));
  Credential out;
  ASSERT_TRUE(map.find(in.id, Instant{}, out));
  EXPECT_TRUE(out == in);
  EXPECT_EQ(out.name(), in.name());
}

TEST(SecretMap, GivesTheKeysOfThoseWhoMayCallAndOfNobodyElse) {
  SecretMap map({});
  Credential in = numbered(7, 3);
  in.may_call = true;
  in.member = 12;
  ASSERT_TRUE(map.install(in, kStart));
  KnownCredential out;
  ASSERT_TRUE(map.find_caller(in.id, Instant{}, out));
  EXPECT_EQ(out.member, 12u);
  EXPECT_TRUE(out.secret.secret() == in.secret);
  EXPECT_EQ(out.hello_key, in.hello_key);
  EXPECT_EQ(out.answer_key, in.answer_key);
  EXPECT_EQ(out.mtu, in.mtu);
  EXPECT_EQ(out.expires.ns, in.expires_ns);
  Credential other = numbered(8, 4);
  other.may_call = false;
  ASSERT_TRUE(map.install(other, kStart));
  KnownCredential nothing;
  EXPECT_FALSE(map.find_caller(other.id, Instant{}, nothing));
  EXPECT_FALSE(map.find_caller(numbered_id(9), Instant{}, nothing));
}

TEST(SecretMap, RefusesAnIdThatItKnows) {
  SecretMap map({});
  install(map, 1, 1);
  EXPECT_FALSE(map.install(numbered(1, 2), kStart));
  EXPECT_EQ(map.size(), 1u);
}

TEST(SecretMap, IsOpenableBeforeItIsUsable) {
  SecretMap map({});
  install(map, 1, 5);
  EXPECT_TRUE(knows(map, 1));
  EXPECT_EQ(current(map, 5), 0u);
  EXPECT_EQ(map.confirm(numbered_id(1), kStart), Confirmation::current);
  EXPECT_EQ(current(map, 5), 1u);
  EXPECT_EQ(map.confirm(numbered_id(1), kStart), Confirmation::current) << "again";
  EXPECT_EQ(map.confirm(numbered_id(2), kStart), Confirmation::unknown);
}

TEST(SecretMap, AnAddressThatWasNotProvenFindsNothing) {
  SecretMap map({});
  establish(map, 1, 0);
  Credential out;
  EXPECT_FALSE(map.find_by_address(Address{}, Instant{}, out));
  EXPECT_TRUE(knows(map, 1));
}

TEST(SecretMap, ALaterHandshakeTakesTheAddressOnlyOnceConfirmed) {
  SecretMap map({});
  establish(map, 1, 5);
  install(map, 2, 5, kStart + 1h);
  EXPECT_EQ(current(map, 5), 1u);
  EXPECT_EQ(map.confirm(numbered_id(2), kStart + 1h), Confirmation::current);
  EXPECT_EQ(current(map, 5), 2u);
  EXPECT_TRUE(knows(map, 1)) << "the old one can still be opened";
  EXPECT_EQ(map.confirm(numbered_id(1), kStart + 1h), Confirmation::lost) << "there is no way back";
}

TEST(SecretMap, ASupersededOneStaysUntilBothSidesUseTheNewOne) {
  SecretMap map({.grace = 30s});
  establish(map, 1, 5);
  establish(map, 2, 5, kStart + 60s);
  const Instant later = kStart + 60s;
  for (int i = 1; i <= 10; ++i) EXPECT_EQ(map.expire(later + i * 30s), 0u);
  EXPECT_EQ(map.state(numbered_id(1)), State::superseded);
  EXPECT_TRUE(map.mark_used(numbered_id(2), Side::us));
  EXPECT_FALSE(map.mark_used(numbered_id(2), Side::us)) << "no news";
  EXPECT_EQ(map.expire(later + 11 * 30s), 0u);
  EXPECT_EQ(map.state(numbered_id(1)), State::superseded) << "only one side";
  EXPECT_TRUE(map.mark_used(numbered_id(2), Side::peer));
  EXPECT_EQ(map.expire(later + 12 * 30s), 0u);
  EXPECT_EQ(map.state(numbered_id(1)), State::retired);
  EXPECT_TRUE(knows(map, 1)) << "the grace period";
  EXPECT_EQ(map.expire(later + 13 * 30s), 1u);
  EXPECT_FALSE(knows(map, 1));
  EXPECT_EQ(current(map, 5), 2u);
}

TEST(SecretMap, ASupersededOneGoesWithItsSuccessor) {
  SecretMap map({.grace = 30s});
  establish(map, 1, 5);
  establish(map, 2, 5, kStart + 60s);
  EXPECT_TRUE(map.retire(numbered_id(2), kStart + 61s));
  EXPECT_EQ(map.expire(kStart + 61s), 1u);
  EXPECT_EQ(map.expire(kStart + 90s), 0u);
  EXPECT_EQ(map.expire(kStart + 120s), 1u);
  EXPECT_EQ(map.size(), 0u);
}

TEST(SecretMap, OfTwoSimultaneousHandshakesBothSidesKeepTheSame) {
  for (std::uint64_t pair = 1; pair <= 40; pair += 2) {
    const std::uint64_t ours = pair, theirs = pair + 1;
    const std::uint64_t winner = order_of(ours) < order_of(theirs) ? ours : theirs;
    // Each side confirms its own at once and the other one when it is shown; who shows first must not matter.
    for (const bool swapped : {false, true}) {
      SecretMap map({});
      Credential a = numbered(ours, 5), b = numbered(theirs, 5);
      a.initiator = !swapped;
      b.initiator = swapped;
      const Credential& first = swapped ? b : a;
      const Credential& second = swapped ? a : b;
      ASSERT_TRUE(map.install(first, kStart));
      ASSERT_EQ(map.confirm(first.id, kStart), Confirmation::current);
      ASSERT_TRUE(map.install(second, kStart + 1s));
      const bool second_wins = second.id == numbered_id(winner);
      EXPECT_EQ(map.confirm(second.id, kStart + 2s), second_wins ? Confirmation::current : Confirmation::lost);
      EXPECT_EQ(current(map, 5), winner);
      EXPECT_TRUE(knows(map, ours) && knows(map, theirs)) << "both can be opened";
    }
  }
}

// HKDF-Expand of the secret 00 01 ... 1f with the label "weir 1 order", computed elsewhere.
TEST(SecretMap, TheOrderIsWhatTheProtocolSays) {
  crypto::Secret secret;
  for (std::size_t i = 0; i < crypto::kSecretBytes; ++i) secret.writable()[i] = static_cast<std::byte>(i);
  EXPECT_EQ(crypto::derive_order(secret), 0x7ab8ec8a46051ae6u);
}

TEST(SecretMap, TheLoserOfTwoSimultaneousOnesIsRetiredAfterBothUsedTheWinner) {
  SecretMap map({.grace = 30s});
  Credential a = numbered(1, 5), b = numbered(2, 5);
  a.initiator = true;
  ASSERT_TRUE(map.install(a, kStart));
  ASSERT_TRUE(map.install(b, kStart));
  map.confirm(a.id, kStart);
  map.confirm(b.id, kStart);
  const std::uint64_t winner = current(map, 5), loser = 3 - winner;
  EXPECT_EQ(map.expire(kStart + 30s), 0u);
  EXPECT_EQ(map.state(numbered_id(loser)), State::superseded);
  map.mark_used(numbered_id(winner), Side::both);
  EXPECT_EQ(map.expire(kStart + 60s), 0u);
  EXPECT_EQ(map.expire(kStart + 90s), 1u);
  EXPECT_FALSE(knows(map, loser));
  EXPECT_EQ(current(map, 5), winner);
}

TEST(SecretMap, TheLaterOneWinsUnlessTheHandshakesWereSimultaneous) {
  // The pair's later one has the higher order, so it can only win for being later.
  const std::uint64_t low = order_of(1) < order_of(2) ? 1 : 2, high = 3 - low;
  const auto winner = [&](bool same_side, bool restarted, Duration apart) {
    SecretMap map({.simultaneous = 10s});
    Credential old = numbered(low, 5), late = numbered(high, 5);
    old.initiator = true;
    late.initiator = same_side;
    if (restarted) late.remote_incarnation.fill(std::byte{1});
    EXPECT_TRUE(map.install(old, kStart));
    map.confirm(old.id, kStart);
    EXPECT_TRUE(map.install(late, kStart + apart));
    map.confirm(late.id, kStart + apart);
    return current(map, 5);
  };
  EXPECT_EQ(winner(false, false, 10s), low);
  EXPECT_EQ(winner(true, false, 10s), high) << "one side makes one handshake after the other";
  EXPECT_EQ(winner(false, true, 10s), high) << "the peer restarted";
  EXPECT_EQ(winner(false, false, 11s), high) << "long apart";
}

TEST(SecretMap, AnotherOrderCanDecideBetweenSimultaneousHandshakes) {
  for (const bool ours_wins : {true, false}) {
    SecretMap map({.order = [&](const Credential& credential) { return credential.initiator == ours_wins ? 1u : 2u; }});
    Credential ours = numbered(1, 5), theirs = numbered(2, 5);
    ours.initiator = true;
    for (const Credential& each : {ours, theirs}) EXPECT_TRUE(map.install(each, kStart));
    for (const Credential& each : {ours, theirs}) map.confirm(each.id, kStart);
    EXPECT_EQ(current(map, 5), ours_wins ? 1u : 2u);
  }
}

TEST(SecretMap, ARetiredOneIsFoundByIdUntilItsTime) {
  SecretMap map({});
  establish(map, 1, 5);
  EXPECT_TRUE(map.retire(numbered_id(1), kStart + 5s));
  EXPECT_EQ(current(map, 5), 0u);
  EXPECT_EQ(map.next_deadline(), kStart + 5s);
  EXPECT_EQ(map.expire(kStart + 5s - 1ns), 0u);
  EXPECT_TRUE(knows(map, 1));
  EXPECT_TRUE(map.retire(numbered_id(1), kStart + 50s)) << "does not live longer for it";
  EXPECT_EQ(map.expire(kStart + 5s), 1u);
  EXPECT_FALSE(knows(map, 1));
  EXPECT_TRUE(map.next_deadline().is_never());
  EXPECT_FALSE(map.retire(numbered_id(1), kStart));
}

TEST(SecretMap, NothingOutlivesItsLifetime) {
  SecretMap map({.lifetime = 100s});
  establish(map, 1, 5);
  EXPECT_EQ(map.expire(kStart + 99s), 0u);
  EXPECT_EQ(map.expire(kStart + 100s), 1u);
  EXPECT_FALSE(knows(map, 1));
  EXPECT_EQ(current(map, 5), 0u);
}

TEST(SecretMap, AFullMapGivesUpWhatWasNotLookedUpForLongest) {
  SecretMap map({.capacity = 4});
  for (std::uint64_t i = 1; i <= 4; ++i) establish(map, i, i);
  establish(map, 5, 5);  // all were new, so the hand went round and took the first
  EXPECT_FALSE(knows(map, 1));
  EXPECT_TRUE(knows(map, 2));
  EXPECT_EQ(current(map, 4), 4u);
  establish(map, 6, 6);
  EXPECT_FALSE(knows(map, 3)) << "the one that nobody asked for";
  EXPECT_TRUE(knows(map, 2) && knows(map, 4) && knows(map, 5));
  EXPECT_EQ(map.stats().evicted, 2u);
  EXPECT_EQ(map.size(), 4u);
}

TEST(SecretMap, TheSupersededGoFirst) {
  SecretMap map({.capacity = 3});
  establish(map, 1, 1);
  establish(map, 2, 2);
  establish(map, 3, 2, kStart + 1min);
  EXPECT_TRUE(knows(map, 1) && knows(map, 2) && knows(map, 3));
  establish(map, 4, 4, kStart + 1min);
  EXPECT_FALSE(knows(map, 2));
  EXPECT_TRUE(knows(map, 1) && knows(map, 3) && knows(map, 4));
}

TEST(SecretMap, AgreesWithAModelUnderRandomOperations) {
  struct Model {
    std::uint64_t owner;
    State state;
    Instant deadline, end;
    std::uint64_t winner;
    bool us, peer;
  };
  constexpr Duration kGrace = 7s, kLifetime = 300s;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random{seed};
    SecretMap map({.capacity = 200, .grace = kGrace, .lifetime = kLifetime, .hash_seed = random.next()});
    std::map<std::uint64_t, Model> model;
    std::map<std::uint64_t, std::uint64_t> addresses;
    Instant now = kStart;
    std::uint64_t newest = 0;
    const auto any = [&] { return newest == 0 ? 1 : newest - random.below(std::min<std::uint64_t>(newest, 150)); };
    const auto leave = [&](std::uint64_t number) {
      const auto at = addresses.find(model.at(number).owner);
      if (at != addresses.end() && at->second == number) addresses.erase(at);
    };
    for (int step = 0; step < 3'000; ++step) {
      const std::uint64_t action = random.below(10);
      if (action < 3 && model.size() < 200) {
        const std::uint64_t owner = random.below(30);
        install(map, ++newest, owner, now);
        model[newest] = {owner, State::openable, now + kLifetime, now + kLifetime, 0, false, false};
      } else if (action < 6) {
        const std::uint64_t number = any();
        const Confirmation got = map.confirm(numbered_id(number), now);
        const auto at = model.find(number);
        if (at == model.end()) {
          EXPECT_EQ(got, Confirmation::unknown);
        } else if (at->second.state == State::openable) {
          EXPECT_EQ(got, Confirmation::current);
          at->second.state = State::usable;
          if (at->second.owner != 0) {
            const auto rival = addresses.find(at->second.owner);
            if (rival != addresses.end()) {
              Model& old = model.at(rival->second);
              old.state = State::superseded;
              old.winner = number;
              old.deadline = earliest(old.end, now + kGrace);
            }
            addresses[at->second.owner] = number;
          }
        } else {
          EXPECT_EQ(got, at->second.state == State::usable ? Confirmation::current : Confirmation::lost);
        }
      } else if (action == 6) {
        const std::uint64_t number = any();
        const bool us = random.chance(0.5);
        const auto at = model.find(number);
        bool news = false;
        if (at != model.end()) news = !std::exchange(us ? at->second.us : at->second.peer, true);
        EXPECT_EQ(map.mark_used(numbered_id(number), us ? Side::us : Side::peer), news);
      } else if (action == 7 && random.chance(0.3)) {
        const std::uint64_t number = any();
        const Instant when = now + Duration{static_cast<std::int64_t>(random.below(20'000'000'000))};
        const auto at = model.find(number);
        EXPECT_EQ(map.retire(numbered_id(number), when), at != model.end());
        if (at != model.end()) {
          leave(number);
          const Instant limit = at->second.state == State::retired ? at->second.deadline : at->second.end;
          at->second.deadline = earliest(limit, when);
          at->second.state = State::retired;
        }
      } else if (action >= 8) {
        now = now + Duration{static_cast<std::int64_t>(random.below(3'000'000'000))};
        std::size_t removed = 0;
        const auto goes = [now](const Model& entry) {
          return entry.deadline <= now && (entry.state != State::superseded || now >= entry.end);
        };
        std::erase_if(model, [&](const auto& item) {
          if (!goes(item.second)) return false;
          leave(item.first);
          ++removed;
          return true;
        });
        for (auto& [number, entry] : model) {
          if (entry.deadline > now) continue;
          const auto winner = model.find(entry.winner);
          if (winner == model.end() || (winner->second.us && winner->second.peer)) entry.state = State::retired;
          entry.deadline = earliest(entry.end, now + kGrace);
        }
        EXPECT_EQ(map.expire(now), removed);
      }
      Instant next = Instant::never();
      for (const auto& [number, entry] : model) next = earliest(next, entry.deadline);
      ASSERT_EQ(map.next_deadline(), next);
      ASSERT_EQ(map.size(), model.size());
      if (step % 50 != 0) continue;
      for (std::uint64_t number = 1; number <= newest; ++number) {
        const auto at = model.find(number);
        ASSERT_EQ(knows(map, number), at != model.end()) << number;
        if (at == model.end()) continue;
        ASSERT_EQ(map.state(numbered_id(number)), at->second.state) << number;
      }
      for (std::uint64_t owner = 1; owner < 30; ++owner) {
        const auto at = addresses.find(owner);
        ASSERT_EQ(current(map, owner), at == addresses.end() ? 0 : at->second) << owner;
      }
    }
  }
}

}  // namespace
}  // namespace weir::peer
