// Handshakes over networks that lose, repeat, reorder and cut datagrams, and against peers that vanish.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "handshake/endpoint.h"
#include "handshake/endpoint_testing.h"

namespace weir::handshake::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kSeeds = 200;

struct Tally {
  int succeeded = 0;
  int failed = 0;
};

// One handshake each way per seed: whatever the weather does, every side ends within the timeout, with the same keys
// wherever both succeeded, and nothing is left.
Tally run_seeds(const std::function<Weather(Random&)>& weather_of) {
  Tally tally;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Pair pair(seed, weather_of(random), [](auto& ours, auto& theirs) {
      ours.accepts = true;
      ours.answer = theirs.answer;
    });
    EXPECT_TRUE(pair.connect(1));
    EXPECT_TRUE(pair.server->endpoint.connect(2, kClientAddress, "", pair.network.now()));
    pair.network.run();
    const auto ours = pair.client->outcomes();
    const auto theirs = pair.server->outcomes();
    for (const auto* side : {&ours, &theirs}) {
      int outgoing = 0;
      for (const Outcome& outcome : *side) {
        if (outcome.failure) {
          EXPECT_EQ(outcome.failure->code(), Code::peer_failed) << outcome.failure->to_string();
        }
        if (outcome.inbound) continue;
        ++outgoing;
        ++(outcome.failure ? tally.failed : tally.succeeded);
        if (outcome.failure) continue;
        const auto& others = side == &ours ? theirs : ours;
        const bool shared = std::any_of(others.begin(), others.end(), [&](const Outcome& other) {
          return other.inbound && !other.failure && other.credential == outcome.credential &&
                 other.secret == outcome.secret;
        });
        EXPECT_TRUE(shared) << "the responder knows nothing of a handshake that the initiator completed";
      }
      EXPECT_EQ(outgoing, 1);
    }
    for (const EndpointNode* node : {pair.client.get(), pair.server.get()}) {
      EXPECT_EQ(node->endpoint.stats().connections, 0u);
      EXPECT_EQ(node->endpoint.stats().closed, 0u);
    }
    if (::testing::Test::HasFailure()) break;
  }
  return tally;
}

TEST(EndpointUnderLoss, AlwaysSucceedsWithoutLossHoweverDatagramsAreReorderedAndRepeated) {
  const Tally tally = run_seeds([](Random& random) {
    return Weather{.duplication = 0.3 * random.fraction(), .jitter = Duration(random.below(5'000'000))};
  });
  EXPECT_EQ(tally.failed, 0);
}

TEST(EndpointUnderLoss, NearlyAlwaysSucceedsAtUpToThirtyPercent) {
  const Tally tally = run_seeds([](Random& random) {
    return Weather{.loss = 0.3 * random.fraction(),
                   .duplication = 0.1,
                   .delay = Duration(10'000 + random.below(2'000'000)),
                   .jitter = Duration(random.below(1'000'000))};
  });
  EXPECT_LE(tally.failed, tally.succeeded / 100);
}

TEST(EndpointUnderLoss, TruncatedDatagramsAreOnlyLost) {
  const Tally tally = run_seeds([](Random&) { return Weather{.truncation = 0.15, .jitter = 500us}; });
  EXPECT_LE(tally.failed, tally.succeeded / 100);
}

// Nothing is heard of `who` from its k-th datagram on.
void vanish_after(const Address& who, std::size_t k, bool& reached) {
  SCOPED_TRACE(who.to_string() + " vanishes after " + std::to_string(k) + " datagrams");
  Pair pair(k + 1);
  std::size_t sent = 0;
  bool gone = false;
  pair.network.watch = [&](const Address& from, const Address& to, ByteSpan) {
    if (from == who && ++sent > k) gone = true;
    return !(gone && (from == who || to == who));
  };
  const Instant begin = pair.network.now();
  ASSERT_TRUE(pair.connect());
  pair.network.run();
  reached = gone;
  // The survivor ended in time, with a clear word, and holds nothing.
  EndpointNode& survivor = who == kClientAddress ? *pair.server : *pair.client;
  EXPECT_EQ(survivor.endpoint.stats().connections, 0u);
  EXPECT_EQ(survivor.endpoint.stats().half_open, 0u);
  EXPECT_EQ(survivor.endpoint.stats().closed, 0u);
  EXPECT_LE(pair.network.now() - begin, 5s + 2s);
  const auto outcomes = survivor.outcomes();
  if (who == kServerAddress) {
    ASSERT_EQ(outcomes.size(), 1u);
  }
  ASSERT_LE(outcomes.size(), 1u);
  for (const Outcome& outcome : outcomes) {
    if (!outcome.failure) continue;
    EXPECT_EQ(outcome.failure->code(), Code::peer_failed);
    EXPECT_THAT(outcome.failure->to_string(), AnyOf(HasSubstr("did not answer"), HasSubstr("fell silent")));
  }
}

TEST(EndpointUnderLoss, EitherSideMayVanishAtAnyDatagram) {
  for (const Address& who : {kClientAddress, kServerAddress}) {
    bool reached = true;
    std::size_t k = 0;
    for (; reached && k < 64; ++k) vanish_after(who, k, reached);
    EXPECT_GT(k, 2u);
    EXPECT_LT(k, 20u) << "a handshake is a few datagrams";
  }
}

TEST(EndpointUnderLoss, TheAnswerIsSentAgainIfItWasLost) {
  Pair pair;
  bool answered = false;
  pair.network.watch = [&](const Address& from, const Address&, ByteSpan) {
    if (from == kServerAddress && pair.server->endpoint.stats().completed == 1 && !answered) {
      answered = true;
      return false;
    }
    return true;
  };
  ASSERT_TRUE(pair.connect());
  pair.network.run();
  EXPECT_TRUE(answered);
  const auto ours = pair.client->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  EXPECT_FALSE(ours[0].failure) << ours[0].failure->to_string();
}

TEST(EndpointUnderLoss, AServerWhoseClientIsDoneIsToldAgain) {
  Pair pair;
  bool lost = false;
  pair.network.watch = [&](const Address& from, const Address&, ByteSpan) {
    if (from == kClientAddress && pair.client->endpoint.stats().completed == 1 && !lost) {
      lost = true;  // the client's farewell
      return false;
    }
    return true;
  };
  const Instant begin = pair.network.now();
  ASSERT_TRUE(pair.connect());
  pair.network.run(1s);
  EXPECT_TRUE(lost);
  EXPECT_EQ(pair.server->endpoint.stats().connections, 0u) << "long before its timeout";
  EXPECT_LE(pair.network.now() - begin, 1s);
}

TEST(EndpointUnderLoss, ARefusalIsToldAgainIfItWasLost) {
  Pair pair(1, {}, [](auto& ours, auto&) {
    NodeRequest request = node_request({"10.0.0.1"});
    request.validity = {kTestWallSeconds - 2 * kDaySeconds, kTestWallSeconds - kDaySeconds};
    ours.credentials = make_credentials(test_authority(), request);
  });
  bool lost = false;
  pair.network.watch = [&](const Address& from, const Address&, ByteSpan) {
    if (from == kServerAddress && pair.server->endpoint.stats().failed == 1 && !lost) {
      lost = true;
      return false;
    }
    return true;
  };
  ASSERT_TRUE(pair.connect());
  pair.network.run();
  EXPECT_TRUE(lost);
  const auto ours = pair.client->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  ASSERT_TRUE(ours[0].failure);
  EXPECT_THAT(ours[0].failure->to_string(), HasSubstr("expired"));
}

}  // namespace
}  // namespace weir::handshake::testing
