// Strangers: clients and servers that do not play by the rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "handshake/endpoint.h"
#include "handshake/endpoint_testing.h"
#include "handshake/initial_packet_testing.h"
#include "handshake/raw_peer_testing.h"

namespace weir::handshake::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kAlert = 0x100;  // QUIC's codes for TLS alerts

// A server and a raw client; the server's one outcome, if any.
struct Strange {
  // `proves`: the server asks for a proof of the address first, so that every failure has an outcome.
  explicit Strange(RawPeer::Options options, bool proves = false)
      : pair(1, {}, [&](auto&, auto& theirs) { theirs.retry_from = proves ? 0 : 64; }),
        client(std::move(options), kServerAddress, pair.network.now()) {
    pair.network.add(kClientAddress, client);
    pair.network.run();
    auto outcomes = pair.server->outcomes();
    EXPECT_LE(outcomes.size(), 1u);
    if (!outcomes.empty()) outcome = std::move(outcomes[0]);
    EXPECT_EQ(pair.server->endpoint.stats().connections, 0u);
    EXPECT_EQ(pair.server->endpoint.stats().closed, 0u);
  }
  std::string failure() const {
    return !outcome ? "no outcome" : !outcome->failure ? "none" : outcome->failure->to_string();
  }

  Pair pair;
  RawPeer client;
  std::optional<Outcome> outcome;
};

std::vector<std::byte> offer_of(std::size_t size, std::size_t claimed) {
  std::vector<std::byte> words(2 + size, std::byte{1});
  store(words.data(), static_cast<std::uint16_t>(claimed));
  return words;
}

TEST(EndpointAndStrangers, ARawPeerThatPlaysByTheRulesSucceeds) {
  const Strange strange({.credentials = client_credentials(), .words = offer_of(3, 3)});
  EXPECT_EQ(strange.failure(), "none");
  EXPECT_EQ(text_of(strange.client.heard).substr(3), "answer");
}

TEST(EndpointAndStrangers, NoCertificate) {
  const Strange strange({.words = offer_of(3, 3)});
  EXPECT_THAT(strange.failure(), HasSubstr("unauthenticated: 10.0.0.1:7001 showed no certificate"));
  EXPECT_EQ(strange.client.close_code, kAlert + GNUTLS_A_CERTIFICATE_REQUIRED);
  EXPECT_TRUE(strange.client.heard.empty());
}

TEST(EndpointAndStrangers, OnlyTls12) {
  const RawPeer::Options options{.priority = "NORMAL:-VERS-ALL:+VERS-TLS1.2", .credentials = client_credentials()};
  const Strange strange(options, true);
  EXPECT_EQ(strange.client.close_code, kAlert + GNUTLS_A_HANDSHAKE_FAILURE);
  EXPECT_THAT(strange.failure(), HasSubstr("refused: no common version or algorithms with 10.0.0.1:7001: TLS 1.3"));
  EXPECT_EQ(strange.pair.server->endpoint.stats().failed_unproven, 0u);
  // Whoever never showed that it receives at its address is told the same, but is only counted.
  const Strange unproven(options);
  EXPECT_EQ(unproven.client.close_code, kAlert + GNUTLS_A_HANDSHAKE_FAILURE);
  EXPECT_FALSE(unproven.outcome);
  EXPECT_EQ(unproven.pair.server->endpoint.stats().failed_unproven, 1u);
  ASSERT_TRUE(unproven.pair.server->endpoint.last_unproven_failure());
  EXPECT_THAT(unproven.pair.server->endpoint.last_unproven_failure()->to_string(), HasSubstr("no common version"));
}

TEST(EndpointAndStrangers, AnotherProtocol) {
  const Strange strange({.protocol = "h3", .credentials = client_credentials()}, true);
  EXPECT_EQ(strange.client.close_code, kAlert + GNUTLS_A_NO_APPLICATION_PROTOCOL);
  EXPECT_THAT(strange.failure(), HasSubstr("refused: no common protocol with 10.0.0.1:7001"));
}

TEST(EndpointAndStrangers, NoProtocol) {
  const Strange strange({.protocol = "", .credentials = client_credentials(), .words = offer_of(3, 3)});
  EXPECT_THAT(strange.failure(), HasSubstr("no common protocol"));
  EXPECT_TRUE(strange.client.heard.empty());
}

TEST(EndpointAndStrangers, AnotherCipher) {
  const Strange strange(
      {.priority = "NORMAL:-VERS-ALL:+VERS-TLS1.3:-CIPHER-ALL:+CHACHA20-POLY1305:%DISABLE_TLS13_COMPAT_MODE",
       .credentials = client_credentials()},
      true);
  EXPECT_EQ(strange.client.close_code, kAlert + GNUTLS_A_HANDSHAKE_FAILURE);
  EXPECT_THAT(strange.failure(), HasSubstr("refused: no common version or algorithms"));
}

TEST(EndpointAndStrangers, AnOfferOfAnotherLengthThanItSays) {
  for (const std::size_t claimed : {0, 2, 4, 65535}) {
    const Strange strange({.credentials = client_credentials(), .words = offer_of(3, claimed)});
    EXPECT_THAT(strange.failure(), HasSubstr("another length"));
    ASSERT_FALSE(strange.client.heard.empty());
    EXPECT_EQ(strange.client.heard[0], static_cast<std::byte>(Code::invalid_argument));
  }
  for (const std::size_t size : {0, 1}) {
    const Strange strange({.credentials = client_credentials(), .words = std::vector<std::byte>(size)});
    EXPECT_THAT(strange.failure(), HasSubstr("another length"));
  }
}

TEST(EndpointAndStrangers, AnOfferThatIsTooLarge) {
  for (const std::size_t size : {kMaxOfferBytes + 1, std::size_t{10'000}}) {
    const Strange strange({.credentials = client_credentials(), .words = offer_of(size, size)});
    EXPECT_THAT(strange.failure(), HasSubstr("too_large"));
    ASSERT_FALSE(strange.client.heard.empty());
    EXPECT_EQ(strange.client.heard[0], static_cast<std::byte>(Code::too_large));
  }
  // More than the window: the client itself stops, and times out.
  const Strange strange({.credentials = client_credentials(), .words = offer_of(40'000, 40'000)});
  EXPECT_THAT(strange.failure(), HasSubstr("too_large"));
}

TEST(EndpointAndStrangers, AnOfferThatNeverEnds) {
  const Strange strange({.credentials = client_credentials(), .words = offer_of(3, 3), .ends_words = false});
  EXPECT_THAT(strange.failure(), HasSubstr("peer_failed: 10.0.0.1:7001 fell silent"));
}

// Our client's outcome with a server that is not ours.
std::string failure_with(RawPeer::Options options) {
  options.role = Role::responder;
  Pair pair;
  RawPeer server(std::move(options), kClientAddress, pair.network.now());
  pair.network.add(kServerAddress, server);
  EXPECT_TRUE(pair.connect());
  pair.network.run();
  const auto ours = pair.client->outcomes();
  EXPECT_EQ(ours.size(), 1u);
  EXPECT_EQ(pair.client->endpoint.stats().connections, 0u);
  if (ours.empty()) return "no outcome";
  return ours[0].failure ? ours[0].failure->to_string() : "none: " + text_of(ours[0].offer);
}

std::vector<std::byte> answer_of(int status, std::string_view text, std::size_t claimed) {
  std::vector<std::byte> words(3);
  words[0] = static_cast<std::byte>(status);
  store(words.data() + 1, static_cast<std::uint16_t>(claimed));
  const auto content = bytes_of(text);
  words.insert(words.end(), content.begin(), content.end());
  return words;
}

TEST(EndpointAndStrangers, ServersThatBreakTheRules) {
  const auto answering = [](std::vector<std::byte> words) {
    return failure_with({.credentials = server_credentials(), .words = std::move(words)});
  };
  EXPECT_EQ(answering(answer_of(0, "yes", 3)), "none: yes");
  EXPECT_THAT(answering(answer_of(0, "yes", 4)), HasSubstr("10.0.0.2:7002: a negotiation message has another length"));
  EXPECT_THAT(answering({std::byte{0}}), HasSubstr("another length"));
  EXPECT_THAT(answering(answer_of(0, std::string(5000, 'x'), 5000)), HasSubstr("too_large: 10.0.0.2:7002"));
  EXPECT_THAT(answering(answer_of(static_cast<int>(Code::overloaded), "later", 5)),
              HasSubstr("overloaded: 10.0.0.2:7002 refused: later"));
  EXPECT_THAT(answering(answer_of(200, "\x1b[31mred", 8)), HasSubstr("refused: 10.0.0.2:7002 refused: "));
  EXPECT_THAT(answering(answer_of(200, "\x1b[31mred", 8)), ::testing::Not(HasSubstr("\x1b")));
  EXPECT_THAT(failure_with({.credentials = server_credentials(), .words = answer_of(0, "", 0), .ends_words = false}),
              HasSubstr("peer_failed: 10.0.0.2:7002 fell silent"));
}

TEST(EndpointAndStrangers, ServersOfAnotherProtocol) {
  for (const char* protocol : {"h3", ""}) {
    EXPECT_THAT(failure_with({.protocol = protocol, .credentials = server_credentials(), .words = answer_of(0, "", 0)}),
                HasSubstr("refused: no common protocol"))
        << protocol;
  }
}

TEST(EndpointAndStrangers, AServerWithoutCertificate) {
  EXPECT_THAT(failure_with({.words = answer_of(0, "", 0)}), HasSubstr("refused: no common version or algorithms"));
}

TEST(EndpointAndStrangers, AnotherVersionIsToldOursIfItPaidForTheAnswer) {
  Pair pair;
  std::vector<std::byte> datagram(1200);
  datagram[0] = std::byte{0xc0};
  store(datagram.data() + 1, std::uint32_t{0x3a2a1a0a});
  datagram[5] = std::byte{8};
  datagram[14] = std::byte{8};
  Address to;
  ByteSpan bytes;
  auto short_one = datagram;
  short_one.resize(1199);
  pair.server->endpoint.on_datagram(short_one, kClientAddress, pair.network.now());
  EXPECT_FALSE(pair.server->endpoint.take_datagram(to, bytes, pair.network.now()));
  pair.server->endpoint.on_datagram(datagram, kClientAddress, pair.network.now());
  ASSERT_TRUE(pair.server->endpoint.take_datagram(to, bytes, pair.network.now()));
  EXPECT_EQ(to, kClientAddress);
  EXPECT_LT(bytes.size(), 64u);
  EXPECT_EQ(load<std::uint32_t>(bytes.data() + 1), 0u);
  EXPECT_EQ(pair.server->endpoint.stats().versions_sent, 1u);
  EXPECT_EQ(pair.server->endpoint.stats().connections, 0u);
}

TEST(EndpointAndStrangers, AServerOfAnotherVersionIsAClearError) {
  Pair pair;
  pair.network.remove(kServerAddress);
  const auto first = first_datagram(pair);
  // Version negotiation with the ids swapped and one version that nobody has.
  const auto ids = std::span(first).subspan(5);
  const auto dcid_size = static_cast<std::size_t>(ids[0]);
  const auto dcid = ids.subspan(0, 1 + dcid_size);
  const auto scid = ids.subspan(1 + dcid_size, 1 + static_cast<std::size_t>(ids[1 + dcid_size]));
  std::vector<std::byte> reply(5);
  reply[0] = std::byte{0x80};
  reply.insert(reply.end(), scid.begin(), scid.end());
  reply.insert(reply.end(), dcid.begin(), dcid.end());
  for (const int byte : {0x1a, 0x2a, 0x3a, 0x4a}) reply.push_back(static_cast<std::byte>(byte));
  pair.client->endpoint.on_datagram(reply, kServerAddress, pair.network.now());
  const auto ours = pair.client->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  EXPECT_THAT(ours[0].failure->to_string(), HasSubstr("refused: no common QUIC version"));
}

TEST(EndpointAndStrangers, AProofOfAddressDoesNotOutliveTheProcessThatGaveIt) {
  Pair pair(1, {}, [](auto&, auto& theirs) { theirs.retry_from = 0; });
  TestEntropy entropy(55);
  auto options = server_options(entropy);
  EndpointNode restarted(std::move(options));
  pair.network.watch = [&](const Address& from, const Address&, ByteSpan) {
    if (from == kServerAddress) pair.network.add(kServerAddress, restarted);
    return true;
  };
  ASSERT_TRUE(pair.connect());
  pair.network.run();
  const auto ours = pair.client->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  ASSERT_TRUE(ours[0].failure);
  EXPECT_EQ(ours[0].failure->code(), Code::reset);
}

TEST(EndpointAndStrangers, AHelloWithoutTransportParameters) {
  Pair source;
  const std::vector<std::byte> first = first_datagram(source);
  const auto* text = reinterpret_cast<const std::uint8_t*>(first.data());
  const InitialHeader header{.to = Octets(text + 6, text + 14), .from = Octets(text + 15, text + 23), .token = {}};
  const InitialPackets packets(header.to, true);
  auto frames = packets.open(first);
  ASSERT_TRUE(frames);
  constexpr std::array<std::uint8_t, 2> kExtension = {0x00, 0x39};
  // Its type comes right before its length and the first parameter; the one that holds our connection id is in it.
  const auto id = std::search(frames->begin(), frames->end(), header.from.begin(), header.from.end());
  const auto at = std::find_end(frames->begin(), id, kExtension.begin(), kExtension.end());
  ASSERT_NE(at, id);
  Pair pair;
  auto intact = packets.seal(header, 0, *frames);
  pair.server->endpoint.on_datagram(intact, stranger(1), pair.network.now());
  EXPECT_EQ(pair.server->endpoint.stats().half_open, 1u);
  at[1] = 0x3a;  // an extension that nobody knows
  auto changed = packets.seal(header, 0, *frames);
  pair.server->endpoint.on_datagram(changed, stranger(2), pair.network.now());
  EXPECT_EQ(pair.server->endpoint.stats().accepted, 2u) << "it was a hello";
  EXPECT_EQ(pair.server->endpoint.stats().half_open, 1u) << "and was refused";
  pair.network.run();
  EXPECT_EQ(pair.server->endpoint.stats().connections, 0u);
  EXPECT_TRUE(pair.server->outcomes().empty());
}

TEST(EndpointAndStrangers, NobodyElseCanSpeakForAPeer) {
  Pair pair;
  std::vector<std::vector<std::byte>> seen;
  pair.network.watch = [&](const Address& from, const Address&, ByteSpan bytes) {
    if (from == kServerAddress) return true;
    seen.emplace_back(bytes.begin(), bytes.end());
    return seen.size() <= 1;  // the second and later ones reach the server only from elsewhere
  };
  ASSERT_TRUE(pair.connect());
  pair.network.run(10ms);
  ASSERT_GE(seen.size(), 2u);
  ASSERT_EQ(pair.server->endpoint.stats().half_open, 1u);
  const auto before = pair.server->endpoint.stats().dropped_garbage;
  pair.server->endpoint.on_datagram(seen[1], stranger(1), pair.network.now());
  EXPECT_GT(pair.server->endpoint.stats().dropped_garbage, before);
  EXPECT_EQ(pair.server->endpoint.stats().half_open, 1u);
  EXPECT_TRUE(pair.server->outcomes().empty());
}

TEST(EndpointAndStrangers, ARecordedConversationRunsNothingAgain) {
  std::vector<std::pair<Address, std::vector<std::byte>>> recorded;
  int answers = 0;
  Pair pair(1, {}, [&](auto&, auto& theirs) {
    theirs.answer = [&](const Outcome&) -> Result<std::vector<std::byte>> {
      ++answers;
      return bytes_of("answer");
    };
  });
  pair.network.watch = [&](const Address& from, const Address&, ByteSpan bytes) {
    recorded.emplace_back(from, std::vector<std::byte>(bytes.begin(), bytes.end()));
    return true;
  };
  ASSERT_TRUE(pair.connect());
  pair.network.run();
  ASSERT_EQ(pair.server->outcomes().size(), 1u);
  ASSERT_EQ(pair.client->outcomes().size(), 1u);
  ASSERT_EQ(answers, 1);
  const auto conversation = recorded;
  for (int round = 0; round < 3; ++round) {
    for (const auto& [from, bytes] : conversation) {
      auto copy = bytes;
      EndpointNode& to = from == kClientAddress ? *pair.server : *pair.client;
      to.endpoint.on_datagram(copy, from, pair.network.now());
    }
  }
  pair.network.run();
  EXPECT_EQ(answers, 1);
  EXPECT_TRUE(pair.server->outcomes().empty());
  EXPECT_TRUE(pair.client->outcomes().empty());
  EXPECT_EQ(pair.server->endpoint.stats().connections, 0u);
}

}  // namespace
}  // namespace weir::handshake::testing
