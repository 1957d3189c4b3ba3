#include "handshake/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "handshake/endpoint_testing.h"

namespace weir::handshake::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The one outcome of each side after a connect().
struct Ends {
  Outcome ours;
  std::optional<Outcome> theirs;  // none if the client did not get that far
};

Ends run(Pair& pair, std::string name = "") {
  EXPECT_TRUE(pair.connect(1, std::move(name)));
  pair.network.run();
  auto ours = pair.client->outcomes();
  auto theirs = pair.server->outcomes();
  EXPECT_EQ(ours.size(), 1u);
  EXPECT_LE(theirs.size(), 1u);
  for (const EndpointNode* node : {pair.client.get(), pair.server.get()}) {
    EXPECT_EQ(node->endpoint.stats().connections, 0u);
    EXPECT_EQ(node->endpoint.stats().half_open, 0u);
    EXPECT_EQ(node->endpoint.stats().closed, 0u);
  }
  Ends ends;
  if (!ours.empty()) ends.ours = std::move(ours[0]);
  if (!theirs.empty()) ends.theirs = std::move(theirs[0]);
  return ends;
}

std::string failure_of(const Outcome& outcome) { return outcome.failure ? outcome.failure->to_string() : "none"; }
std::string failure_of(const std::optional<Outcome>& outcome) { return outcome ? failure_of(*outcome) : "no outcome"; }

TEST(Endpoint, BothSidesGetTheSameSecretAndEachOthersWords) {
  Pair pair;
  ASSERT_TRUE(pair.connect(77));
  pair.network.run();
  const auto ours = pair.client->outcomes();
  const auto theirs = pair.server->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  ASSERT_EQ(theirs.size(), 1u);
  ASSERT_FALSE(ours[0].failure) << ours[0].failure->to_string();
  ASSERT_FALSE(theirs[0].failure) << theirs[0].failure->to_string();
  EXPECT_EQ(ours[0].tag, 77u);
  EXPECT_FALSE(ours[0].inbound);
  EXPECT_TRUE(theirs[0].inbound);
  EXPECT_EQ(ours[0].remote, kServerAddress);
  EXPECT_EQ(theirs[0].remote, kClientAddress);
  EXPECT_EQ(text_of(ours[0].offer), "answer");
  EXPECT_EQ(text_of(theirs[0].offer), "offer");
  EXPECT_TRUE(ours[0].names.proves("server.example"));
  EXPECT_TRUE(theirs[0].names.proves("client.example"));
  EXPECT_EQ(ours[0].credential, theirs[0].credential);
  EXPECT_EQ(ours[0].secret, theirs[0].secret);
  EXPECT_FALSE(ours[0].secret == crypto::Secret());
  EXPECT_EQ(pair.client->endpoint.stats().completed, 1u);
  EXPECT_EQ(pair.server->endpoint.stats().completed, 1u);
  EXPECT_EQ(pair.client->endpoint.stats().connections, 0u);
  EXPECT_EQ(pair.server->endpoint.stats().connections, 0u);
}

TEST(Endpoint, EveryHandshakeGivesAnotherSecretAndId) {
  Pair pair;
  std::set<std::string> seen;
  for (int i = 0; i < 10; ++i) {
    const Ends ends = run(pair);
    ASSERT_FALSE(ends.ours.failure) << failure_of(ends.ours);
    seen.insert(text_of(ends.ours.secret.bytes()));
    seen.insert(text_of(ends.ours.credential));
  }
  EXPECT_EQ(seen.size(), 20u);
}

TEST(Endpoint, NeverSendsMoreThanAnyPathCarries) {
  Pair pair(1, {}, [](auto& ours, auto& theirs) {
    ours.offer = [](const CredentialId&) { return std::vector<std::byte>(kMaxOfferBytes, std::byte{7}); };
    theirs.answer = [](const Outcome& visitor) -> Result<std::vector<std::byte>> {
      return std::vector<std::byte>(visitor.offer.begin(), visitor.offer.end());
    };
  });
  std::size_t largest = 0;
  pair.network.watch = [&](const Address&, const Address&, ByteSpan bytes) {
    largest = std::max(largest, bytes.size());
    return true;
  };
  const Ends ends = run(pair);
  ASSERT_FALSE(ends.ours.failure) << failure_of(ends.ours);
  EXPECT_EQ(ends.ours.offer, SecretBytes(kMaxOfferBytes, std::byte{7}));
  EXPECT_EQ(largest, kDatagramBytes);
}

TEST(Endpoint, WorksOverIPv6) {
  Pair pair(1, {}, [](auto&, auto& theirs) { theirs.credentials = make_credentials(test_authority(), {"fd00::2"}); });
  const Address v6 = Address::parse("[fd00::2]:7002").value();
  pair.network.add(v6, *pair.server);
  pair.network.remove(kServerAddress);
  ASSERT_TRUE(pair.client->endpoint.connect(1, v6, "", pair.network.now()));
  pair.network.run();
  const auto ours = pair.client->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  EXPECT_FALSE(ours[0].failure) << failure_of(ours[0]);
}

TEST(Endpoint, BothSidesAtOnceGiveTwoHandshakes) {
  Pair pair(1, {}, [](auto& ours, auto& theirs) {
    ours.accepts = true;
    ours.answer = theirs.answer;
  });
  ASSERT_TRUE(pair.connect(1));
  ASSERT_TRUE(pair.server->endpoint.connect(2, kClientAddress, "", pair.network.now()));
  pair.network.run();
  const auto ours = pair.client->outcomes();
  const auto theirs = pair.server->outcomes();
  ASSERT_EQ(ours.size(), 2u);
  ASSERT_EQ(theirs.size(), 2u);
  for (const Outcome& outcome : ours) {
    ASSERT_FALSE(outcome.failure) << failure_of(outcome);
    const auto match = std::find_if(theirs.begin(), theirs.end(), [&](const Outcome& other) {
      return other.inbound != outcome.inbound && other.credential == outcome.credential;
    });
    ASSERT_NE(match, theirs.end());
    EXPECT_EQ(match->secret, outcome.secret);
  }
}

TEST(Endpoint, AnExpectedNameIsEnough) {
  Pair pair(1, {},
            [](auto&, auto& theirs) { theirs.credentials = make_credentials(test_authority(), {"db7.example"}); });
  const Ends ends = run(pair, "db7.example");
  EXPECT_FALSE(ends.ours.failure) << failure_of(ends.ours);
}

TEST(Endpoint, RefusesAServerThatProvesAnotherName) {
  Pair pair;
  const Ends ends = run(pair, "other.example");
  ASSERT_TRUE(ends.ours.failure);
  EXPECT_EQ(ends.ours.failure->code(), Code::unauthenticated);
  EXPECT_THAT(failure_of(ends.ours),
              HasSubstr("does not prove the name other.example; its first name is server.example"));
  EXPECT_THAT(failure_of(ends.theirs), HasSubstr("10.0.0.1:7001 did not accept our certificate"));
  EXPECT_THAT(failure_of(ends.theirs), HasSubstr("other.example"));  // the reason travels
}

TEST(Endpoint, RefusesAServerThatDoesNotProveItsAddress) {
  Pair pair(1, {}, [](auto&, auto& theirs) {
    theirs.credentials = make_credentials(test_authority(), {"server.example", "10.0.0.3"});
  });
  const Ends ends = run(pair);
  ASSERT_TRUE(ends.ours.failure);
  EXPECT_EQ(ends.ours.failure->code(), Code::unauthenticated);
  EXPECT_THAT(failure_of(ends.ours), HasSubstr("does not prove that address"));
}

TEST(Endpoint, RefusesAForeignRootOnEitherSide) {
  const Authority stranger = make_authority("stranger");
  const std::string trusted = test_authority().certificate_pem();
  {
    Pair pair(1, {}, [&](auto&, auto& theirs) {
      theirs.credentials = make_credentials(stranger, node_request({"10.0.0.2"}), trusted);
    });
    const Ends ends = run(pair);
    ASSERT_TRUE(ends.ours.failure);
    EXPECT_EQ(ends.ours.failure->code(), Code::unauthenticated);
    EXPECT_THAT(failure_of(ends.ours), HasSubstr("stranger"));
    EXPECT_THAT(failure_of(ends.theirs), HasSubstr("did not accept our certificate"));
  }
  {
    Pair pair(1, {}, [&](auto& ours, auto&) {
      ours.credentials = make_credentials(stranger, node_request({"10.0.0.1"}), trusted);
    });
    const Ends ends = run(pair);
    EXPECT_EQ(ends.ours.failure->code(), Code::unauthenticated);
    EXPECT_THAT(failure_of(ends.ours), HasSubstr("10.0.0.2:7002 did not accept our certificate"));
    ASSERT_TRUE(ends.theirs && ends.theirs->failure);
    EXPECT_EQ(ends.theirs->failure->code(), Code::unauthenticated);
    EXPECT_THAT(failure_of(ends.theirs), HasSubstr("stranger"));
  }
}

TEST(Endpoint, RefusesCertificatesOutsideTheirTimeOnEitherSide) {
  const auto at = [](std::int64_t from, std::int64_t until, const char* name) {
    NodeRequest request = node_request({name});
    request.validity = {kTestWallSeconds + from, kTestWallSeconds + until};
    return make_credentials(test_authority(), request);
  };
  struct Case {
    std::int64_t from;
    std::int64_t until;
    const char* word;
  };
  for (const Case& c : {Case{-2 * kDaySeconds, -60, "expired"}, Case{60, kDaySeconds, "not valid before"}}) {
    {
      Pair pair(1, {}, [&](auto&, auto& theirs) { theirs.credentials = at(c.from, c.until, "10.0.0.2"); });
      const Ends ends = run(pair);
      EXPECT_EQ(ends.ours.failure->code(), Code::unauthenticated);
      EXPECT_THAT(failure_of(ends.ours), HasSubstr(c.word));
    }
    {
      Pair pair(1, {}, [&](auto& ours, auto&) { ours.credentials = at(c.from, c.until, "10.0.0.1"); });
      const Ends ends = run(pair);
      EXPECT_EQ(ends.ours.failure->code(), Code::unauthenticated);
      EXPECT_THAT(failure_of(ends.ours), HasSubstr("did not accept our certificate"));
      EXPECT_THAT(failure_of(ends.ours), HasSubstr(c.word));
      EXPECT_THAT(failure_of(ends.theirs), HasSubstr(c.word));
    }
  }
}

TEST(Endpoint, TheAnswerCanRefuse) {
  Pair pair(1, {}, [](auto&, auto& theirs) {
    theirs.answer = [](const Outcome& visitor) -> Result<std::vector<std::byte>> {
      return std::unexpected(Error(Code::refused, visitor.names.first() + " may not talk to us"));
    };
  });
  const Ends ends = run(pair);
  ASSERT_TRUE(ends.ours.failure);
  EXPECT_EQ(ends.ours.failure->code(), Code::refused);
  EXPECT_THAT(failure_of(ends.ours), HasSubstr("10.0.0.2:7002 refused: client.example may not talk to us"));
  EXPECT_EQ(ends.ours.secret, crypto::Secret());
  ASSERT_TRUE(ends.theirs && ends.theirs->failure);
  EXPECT_EQ(ends.theirs->failure->code(), Code::refused);
  EXPECT_EQ(ends.theirs->secret, crypto::Secret());
  EXPECT_TRUE(ends.theirs->names.proves("client.example"));
}

TEST(Endpoint, RefusesToSayTooMuch) {
  Pair pair(1, {}, [](auto& ours, auto&) {
    ours.offer = [](const CredentialId&) { return std::vector<std::byte>(kMaxOfferBytes + 1); };
  });
  const Ends ends = run(pair);
  ASSERT_TRUE(ends.ours.failure);
  EXPECT_EQ(ends.ours.failure->code(), Code::too_large);
  EXPECT_EQ(pair.client->endpoint.stats().connections, 0u);
}

TEST(Endpoint, BoundsItsOwnHandshakes) {
  Pair pair(1, {}, [](auto& ours, auto&) { ours.max_outgoing = 2; });
  ASSERT_TRUE(pair.connect(1));
  EXPECT_EQ(pair.connect(1).error().code(), Code::invalid_argument);
  ASSERT_TRUE(pair.connect(2));
  EXPECT_EQ(pair.connect(3).error().code(), Code::overloaded);
  pair.network.run();
  EXPECT_EQ(pair.client->outcomes().size(), 2u);
  EXPECT_TRUE(pair.connect(3));
}

TEST(Endpoint, AnAbandonedHandshakeHasNoOutcomeAndLeavesNothing) {
  Pair pair;
  ASSERT_TRUE(pair.connect(1));
  pair.network.run(150us);  // the first datagram is under way or there
  pair.client->endpoint.abandon(1, pair.network.now());
  pair.client->endpoint.abandon(99, pair.network.now());
  EXPECT_EQ(pair.client->endpoint.stats().connections, 0u);
  pair.network.run();
  EXPECT_TRUE(pair.client->outcomes().empty());
  EXPECT_EQ(pair.server->endpoint.stats().connections, 0u);
  EXPECT_EQ(pair.server->endpoint.stats().completed, 0u);
  EXPECT_TRUE(pair.connect(1));
}

TEST(Endpoint, NewCredentialsConcernOnlyHandshakesThatBeginLater) {
  const Authority stranger = make_authority("stranger");
  Pair pair;
  ASSERT_TRUE(pair.connect(1));
  pair.network.run(150us);
  ASSERT_EQ(pair.server->endpoint.stats().half_open, 1u);
  pair.server->endpoint.set_credentials(make_credentials(stranger, {"10.0.0.2"}));
  pair.client->endpoint.set_credentials(make_credentials(stranger, {"10.0.0.1"}));
  pair.network.run();
  auto ours = pair.client->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  EXPECT_FALSE(ours[0].failure) << failure_of(ours[0]);  // still with the old ones
  EXPECT_EQ(pair.server->outcomes().size(), 1u);
  const Ends ends = run(pair);  // with the new ones
  EXPECT_FALSE(ends.ours.failure) << failure_of(ends.ours);
  pair.client->endpoint.set_credentials(client_credentials());
  EXPECT_TRUE(run(pair).ours.failure);  // one old, one new
}

TEST(Endpoint, SilenceEndsWithAClearErrorAtTheTimeout) {
  Pair pair;
  pair.network.remove(kServerAddress);
  const Instant begin = pair.network.now();
  ASSERT_TRUE(pair.connect());
  pair.network.run();
  const auto ours = pair.client->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  ASSERT_TRUE(ours[0].failure);
  EXPECT_EQ(ours[0].failure->code(), Code::peer_failed);
  EXPECT_THAT(failure_of(ours[0]), HasSubstr("did not answer"));
  EXPECT_LE(pair.network.now() - begin, 5s + 1ms);
  EXPECT_EQ(pair.client->endpoint.stats().connections, 0u);
}

TEST(Endpoint, AnEndpointThatDoesNotAcceptIsSilent) {
  Pair pair(1, {}, [](auto&, auto& theirs) { theirs.accepts = false; });
  const Ends ends = run(pair);
  EXPECT_THAT(failure_of(ends.ours), HasSubstr("did not answer"));
  EXPECT_FALSE(ends.theirs);
}

TEST(Endpoint, LogsKeysOnlyWhenAsked) {
  std::vector<std::string> lines;
  Pair pair(1, {}, [&](auto& ours, auto&) { ours.key_log = [&](std::string_view line) { lines.emplace_back(line); }; });
  const Ends ends = run(pair);
  ASSERT_FALSE(ends.ours.failure);
  std::set<std::string> labels;
  std::set<std::string> randoms;
  for (const std::string& line : lines) {
    const std::size_t first = line.find(' ');
    const std::size_t second = line.find(' ', first + 1);
    ASSERT_NE(second, std::string::npos);
    labels.insert(line.substr(0, first));
    randoms.insert(line.substr(first + 1, second - first - 1));
    EXPECT_EQ(line.size() - second - 1, 64u) << line;  // SHA-256 secrets
  }
  EXPECT_TRUE(labels.contains("CLIENT_HANDSHAKE_TRAFFIC_SECRET"));
  EXPECT_TRUE(labels.contains("SERVER_TRAFFIC_SECRET_0"));
  EXPECT_EQ(randoms.size(), 1u);
  EXPECT_EQ(randoms.begin()->size(), 64u);
}

TEST(Endpoint, RunsRepeatToTheByteCountWithFixedSizeSignatures) {
  const auto trace = [] {
    std::vector<std::pair<std::int64_t, std::size_t>> sizes;
    Pair pair(5, {.loss = 0.2, .duplication = 0.1, .jitter = 1ms});
    pair.network.watch = [&](const Address&, const Address&, ByteSpan bytes) {
      sizes.emplace_back(pair.network.now().ns, bytes.size());
      return true;
    };
    run(pair);
    return sizes;
  };
  EXPECT_EQ(trace(), trace());
}

}  // namespace
}  // namespace weir::handshake::testing
