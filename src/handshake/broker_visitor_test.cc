// Brokers that differ: what a visitor's certificate says of where it may be called back, and releases of different
// versions side by side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "handshake/broker.h"
#include "handshake/broker_testing.h"
#include "handshake/raw_peer_testing.h"

namespace weir::handshake::testing {
namespace {

using ::testing::HasSubstr;

const Address kHost = Address::v4(0x0a010001, 4433);
const Address kVisitor = Address::v4(0x0a010002, 4433);

// ---- who is called back ----

struct Visit {
  explicit Visit(const NodeRequest& request, bool development = false)
      : Visit(make_credentials(test_authority(), request, "", development), development) {}
  Visit(const std::shared_ptr<const Credentials>& credentials, bool development)
      : network(1, {.delay = 1ms}),
        host(kHost, 11, 64, {},
             [&](Broker::Options& options) {
               if (development) {
                 options.credentials =
                     make_credentials(test_authority(), node_request({BrokerNode::ip_of(kHost)}), "", true);
               }
             }),
        visitor(kVisitor, 12, 64, {}, [&](Broker::Options& options) { options.credentials = credentials; }) {
    network.add(host.at, host);
    network.add(visitor.at, visitor);
    visitor.broker->want(host.at, "", network.now());
    network.run(100ms);
    const auto news = visitor.news();
    EXPECT_EQ(news.size(), 1u);
    if (news.empty() || news[0].failure) {
      ADD_FAILURE() << (news.empty() ? "no news" : news[0].failure->to_string());
      return;
    }
    id = news[0].credential.id;
    EXPECT_TRUE(host.broker->map().find(id, Instant{}, at_host)) << "its packets are opened in any case";
    // As the host's engines do when its first packet comes.
    EXPECT_TRUE(host.broker->map().mark_used(id, peer::SecretMap::Side::both));
    host.broker->on_shown(id, network.now());
  }
  bool can_be_called_back() {
    peer::Credential found;
    return host.broker->map().find_by_address(kVisitor, Instant{}, found) && found.id == id;
  }

  Network network;
  BrokerNode host;
  BrokerNode visitor;
  CredentialId id{};
  peer::Credential at_host;
};

TEST(BrokerAndVisitors, OneThatProvesItsAddressIsCalledBackWithoutAnotherHandshake) {
  Visit visit(node_request({BrokerNode::ip_of(kVisitor)}));
  EXPECT_TRUE(visit.can_be_called_back());
  visit.host.broker->want(kVisitor, "", visit.network.now());
  visit.network.run(100ms);
  const auto news = visit.host.news();
  ASSERT_EQ(news.size(), 1u);
  EXPECT_EQ(news[0].credential.id, visit.id);
  EXPECT_EQ(visit.host.broker->stats().started, 0u);
}

TEST(BrokerAndVisitors, OneThatProvesAnotherNameOrAddressIsNotCalledBack) {
  for (const char* name : {"other.example", "10.1.0.3", "10.1.0.1"}) {
    Visit visit(node_request({name}));
    EXPECT_FALSE(visit.can_be_called_back()) << name;
    EXPECT_TRUE(visit.at_host.handshake_address == Address{}) << name;
    // And is not taken for whoever is really there: that one has to prove itself.
    visit.host.broker->want(kVisitor, "", visit.network.now());
    visit.network.run(100ms);
    EXPECT_EQ(visit.host.broker->stats().started, 1u) << name;
    const auto news = visit.host.news();
    ASSERT_EQ(news.size(), 1u) << name;
    ASSERT_TRUE(news[0].failure) << name;
    EXPECT_EQ(news[0].failure->code(), Code::unauthenticated) << name;
  }
}

TEST(BrokerAndVisitors, OneWhoseCertificateIsNotForServersIsNotCalledBack) {
  NodeRequest request = node_request({BrokerNode::ip_of(kVisitor)});
  request.for_servers = false;
  EXPECT_FALSE(Visit(request).can_be_called_back());
}

// Such an identity proves every address, that is, none.
TEST(BrokerAndVisitors, OneWithADevelopmentIdentityIsNotCalledBack) {
  EXPECT_FALSE(Visit(node_request({BrokerNode::ip_of(kVisitor)}), true).can_be_called_back());
}

// ---- releases side by side ----

struct Releases {
  Releases(std::uint8_t callers_lowest, std::uint8_t callers_highest, std::uint8_t hosts_lowest,
           std::uint8_t hosts_highest)
      : network(1, {.delay = 1ms}),
        host(kHost, 11, 64, {}, speaking(hosts_lowest, hosts_highest)),
        caller(kVisitor, 12, 64, {}, speaking(callers_lowest, callers_highest)) {
    network.add(host.at, host);
    network.add(caller.at, caller);
    caller.broker->want(host.at, "", network.now());
    network.run(100ms);
    auto all = caller.news();
    EXPECT_EQ(all.size(), 1u);
    if (!all.empty()) news = std::move(all[0]);
  }
  static BrokerNode::Change speaking(std::uint8_t lowest, std::uint8_t highest) {
    return [=](Broker::Options& options) {
      options.self.min_version = lowest;
      options.self.max_version = highest;
    };
  }
  void expect_version(int version) {
    ASSERT_FALSE(news.failure) << news.failure->to_string();
    EXPECT_EQ(news.credential.version, version);
    peer::Credential at_host;
    ASSERT_TRUE(host.broker->map().find(news.credential.id, Instant{}, at_host));
    EXPECT_EQ(at_host.version, version);
    EXPECT_EQ(at_host.secret, news.credential.secret);
  }

  Network network;
  BrokerNode host;
  BrokerNode caller;
  Broker::News news;
};

TEST(BrokersOfTwoReleases, SpeakTheHighestVersionThatBothKnow) {
  Releases(1, 1, 1, 1).expect_version(1);
  Releases(1, 2, 1, 1).expect_version(1);
  Releases(1, 1, 1, 2).expect_version(1);
  Releases(1, 3, 2, 4).expect_version(3);
}

TEST(BrokersOfTwoReleases, WithoutCommonVersionTellBothSides) {
  for (const std::uint8_t callers : {1, 2}) {
    const auto hosts = static_cast<std::uint8_t>(3 - callers);
    Releases releases(callers, callers, hosts, hosts);
    ASSERT_TRUE(releases.news.failure);
    EXPECT_EQ(releases.news.failure->code(), Code::refused);
    EXPECT_THAT(releases.news.failure->to_string(), HasSubstr("no common protocol version"));
    const auto refusal = releases.host.broker->take_refusal();
    ASSERT_TRUE(refusal);
    EXPECT_EQ(refusal->from, kVisitor);
    EXPECT_EQ(refusal->error.code(), Code::refused);
    EXPECT_THAT(refusal->error.to_string(), HasSubstr("no common protocol version"));
    peer::Credential kept;
    EXPECT_FALSE(releases.host.broker->map().find_by_address(kVisitor, Instant{}, kept));
    EXPECT_FALSE(releases.caller.broker->map().find_by_address(kHost, Instant{}, kept));
  }
}

// A later release says more of itself, in words that this one does not know.
TEST(BrokersOfTwoReleases, DoNotMindFieldsThatTheyDoNotKnow) {
  Network network(1, {.delay = 1ms});
  BrokerNode host(kHost, 11);
  network.add(host.at, host);
  Offer self{
      .min_version = 1, .max_version = 7, .incarnation = {std::byte{1}}, .name = "later", .workers = {{.port = 9}}};
  std::vector<std::byte> offer = value_of(encode(self));
  const std::byte unknown[] = {std::byte{0x34}, std::byte{0x12}, std::byte{3},  std::byte{0},
                               std::byte{'n'},  std::byte{'e'},  std::byte{'w'}};
  offer.insert(offer.begin(), std::begin(unknown), std::end(unknown));
  std::vector<std::byte> words(2);
  store(words.data(), static_cast<std::uint16_t>(offer.size()));
  words.insert(words.end(), offer.begin(), offer.end());
  RawPeer later({.credentials = make_credentials(test_authority(), {BrokerNode::ip_of(kVisitor)}), .words = words},
                kHost, network.now());
  network.add(kVisitor, later);
  network.run(100ms);
  ASSERT_FALSE(host.broker->take_refusal());
  ASSERT_GT(later.heard.size(), 3u);
  EXPECT_EQ(later.heard[0], std::byte{0}) << text_of(later.heard);
  const Result<Offer> answer = decode_offer(std::span(later.heard).subspan(3));
  ASSERT_TRUE(answer);
  EXPECT_EQ(value_of(agree(self, *answer)).version, 1);
  EXPECT_EQ(host.broker->map().stats().installed, 1u);
}

}  // namespace
}  // namespace weir::handshake::testing
