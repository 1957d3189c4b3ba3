// Brokers whose certificates end: nothing that came from one is given out afterwards, and new ones are fetched in time.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "handshake/broker.h"
#include "handshake/broker_testing.h"

namespace weir::handshake::testing {
namespace {

const Address kCaller = Address::v4(0x0a010001, 4433), kCallee = Address::v4(0x0a010002, 4433);

// Two brokers whose wall clocks go with the virtual time. The test replaces their certificates.
struct Mortals {
  Mortals() {
    for (BrokerNode* node : {&caller, &callee}) network.add(node->at, *node);
    network.add(Address::v4(1, 1), alarm);
  }
  std::int64_t wall() const { return kTestWallSeconds + network.now().ns / 1'000'000'000 - start_seconds; }
  std::shared_ptr<const Credentials> issue(const Address& address, std::int64_t seconds) {
    NodeRequest request = node_request({BrokerNode::ip_of(address)});
    request.validity = {wall() - 60, wall() + seconds};
    return make_credentials(test_authority(), request);
  }
  void replace(BrokerNode& node, std::int64_t seconds) { node.broker->set_credentials(issue(node.at, seconds)); }
  BrokerNode::Change mortal(const Address& address, std::int64_t seconds) {
    return [this, address, seconds](Broker::Options& options) {
      options.wall_clock = [this] { return wall(); };
      options.credentials = issue(address, seconds);
    };
  }

  Network network{1};
  const std::int64_t start_seconds = network.now().ns / 1'000'000'000;
  BrokerNode caller{kCaller, 11, 64, {}, mortal(kCaller, 3'600)};
  BrokerNode callee{kCallee, 12, 64, {}, mortal(kCallee, 5)};
  Alarm alarm;
};

TEST(BrokerAtTheEnd, ACredentialEndsWithTheFirstOfBothCertificates) {
  for (const bool of_caller : {false, true}) {
    Mortals both;
    if (of_caller) {
      both.replace(both.caller, 3);
      both.replace(both.callee, 3'600);
    }
    both.caller.broker->want(kCallee, "", both.network.now());
    both.alarm.pass(both.network, 100ms);
    const std::vector<Broker::News> news = both.caller.news();
    ASSERT_EQ(news.size(), 1u);
    ASSERT_FALSE(news[0].failure);
    const Instant end{news[0].credential.expires_ns};
    EXPECT_LE(end, both.network.now() + (of_caller ? 3s : 5s));
    peer::Credential found;
    peer::KnownCredential known;
    EXPECT_TRUE(both.callee.broker->map().find_caller(news[0].credential.id, both.network.now(), known));
    both.alarm.pass(both.network, of_caller ? 3s : 5s);
    EXPECT_FALSE(both.callee.broker->map().find_caller(news[0].credential.id, both.network.now(), known));
    EXPECT_FALSE(both.caller.broker->map().find_by_address(kCallee, both.network.now(), found) &&
                 found.id == news[0].credential.id);
  }
}

TEST(BrokerAtTheEnd, WhoWantsACredentialAfterTheEndGetsAHandshakeAtOnceAndAtABoundedRate) {
  Mortals both;
  both.caller.broker->want(kCallee, "", both.network.now());
  both.alarm.pass(both.network, 100ms);
  ASSERT_EQ(both.caller.news().size(), 1u);
  both.alarm.pass(both.network, 7s);
  both.caller.news();
  const std::uint64_t before = both.caller.broker->stats().started;
  int failures = 0;
  for (int i = 0; i < 1'000; ++i) {  // as an engine asks that has a call to make
    both.caller.broker->want(kCallee, "", both.network.now());
    both.alarm.pass(both.network, 1ms);
    for (const Broker::News& each : both.caller.news()) {
      EXPECT_TRUE(each.failure) << "an ended certificate was taken";
      ++failures;
    }
  }
  EXPECT_GE(failures, 1);
  EXPECT_LE(both.caller.broker->stats().started - before, 8u) << "backoff";
  both.replace(both.callee, 3'600);
  both.alarm.pass(both.network, 3s);
  both.caller.news();
  both.caller.broker->want(kCallee, "", both.network.now());
  both.alarm.pass(both.network, 3s);
  const std::vector<Broker::News> news = both.caller.news();
  ASSERT_FALSE(news.empty());
  EXPECT_FALSE(news.back().failure);
}

// The renewals of ten minutes. Whoever calls always has a credential that both sides take for valid.
TEST(BrokerAtTheEnd, CertificatesOfThirtySecondsThatAreReplacedAtHalfTimeLeaveNoGap) {
  Mortals both;
  both.replace(both.caller, 30);
  both.replace(both.callee, 30);
  both.caller.broker->want(kCallee, "", both.network.now());
  both.alarm.pass(both.network, 100ms);
  peer::Credential current;
  const auto use_newest = [&] {
    for (const Broker::News& each : both.caller.news()) {
      ASSERT_FALSE(each.failure) << each.failure->to_string();
      current = each.credential;
      for (BrokerNode* node : {&both.caller, &both.callee}) {  // as engines do that have opened a path
        if (node->broker->map().mark_used(current.id, peer::SecretMap::Side::both)) {
          node->broker->on_shown(current.id, both.network.now());
        }
      }
    }
  };
  use_newest();
  for (int half_second = 1; half_second <= 1'200; ++half_second) {
    if (half_second % 30 == 7) both.replace(both.caller, 30);
    if (half_second % 30 == 22) both.replace(both.callee, 30);
    both.alarm.pass(both.network, 500ms);
    use_newest();
    peer::KnownCredential known;
    ASSERT_LT(both.network.now().ns + 3'000'000'000, current.expires_ns) << half_second << ": nearly at its end";
    ASSERT_TRUE(both.callee.broker->map().find_caller(current.id, both.network.now(), known)) << half_second;
  }
  const std::uint64_t handshakes = both.caller.broker->stats().started + both.callee.broker->stats().started;
  EXPECT_LE(handshakes, 2u * 600 / 5) << "one every five seconds and side at most";
}

}  // namespace
}  // namespace weir::handshake::testing
