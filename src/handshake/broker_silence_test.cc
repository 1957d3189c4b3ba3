// Brokers whose peers say nothing for a while: they are away, far away, or slow to say who may call.
#include <gtest/gtest.h>
#include <ngtcp2/ngtcp2.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "handshake/broker.h"
#include "handshake/broker_testing.h"

namespace weir::handshake::testing {
namespace {

constexpr Duration kProbe = 76ms;
constexpr Duration kDelay = 1ms;
constexpr Duration kRoundTrips = 4 * kDelay;  // the two of a handshake
const Address kServer = Address::v4(0x0a010001, 4433);
Address caller_at(std::uint32_t i) { return Address::v4(0x0a000100 + i, 7'000); }

// Its application takes its time to say who may call; its thread does nothing else meanwhile.
struct SlowNode final : Node {
  SlowNode(const Address& address, std::uint64_t seed, Duration time)
      : answer_time(time), node(address, seed, 64, {}, [this](Broker::Options& options) {
          options.allows = [this](const Names&) {
            ++asked;
            return true;
          };
        }) {}
  void receive(MutableByteSpan datagram, const Address& from, Instant now) override {
    if (!busy_until) return node.receive(datagram, from, now);
    waiting.emplace_back(from, std::vector<std::byte>(datagram.begin(), datagram.end()));
  }
  void expire(Instant now) override {
    busy_until.reset();
    for (auto& [from, datagram] : std::exchange(waiting, {})) node.receive(datagram, from, now);
    if (node.deadline() <= now) node.expire(now);
  }
  Instant deadline() const override { return busy_until ? *busy_until : node.deadline(); }
  bool take(Address& to, ByteSpan& bytes, Instant now) override {
    if (busy_until) return false;
    if (node.broker->take_datagram(to, bytes, now)) return true;
    if (node.broker->answer_one(now)) busy_until = now + answer_time;
    return false;
  }

  Duration answer_time;
  int asked = 0;
  std::optional<Instant> busy_until;
  std::vector<std::pair<Address, std::vector<std::byte>>> waiting;
  BrokerNode node;
};

// Callers of one slow server.
struct Crowd {
  Crowd(std::uint32_t size, Duration answer_time, Duration timeout = 5s)
      : network(1, {.delay = kDelay}), server(kServer, 1, answer_time) {
    network.add(kServer, server);
    network.add(Address::v4(1, 1), alarm);
    for (std::uint32_t i = 0; i < size; ++i) {
      callers.push_back(std::make_unique<BrokerNode>(caller_at(i), 2 + i, 64, crypto::KeyBytes{},
                                                     [&](Broker::Options& options) { options.timeout = timeout; }));
      network.add(caller_at(i), *callers.back());
    }
  }
  void call(std::uint32_t i) { callers[i]->broker->want(kServer, "", network.now()); }
  void pass(Duration time) {
    alarm.pass(network, time);
    for (const auto& caller : callers) {
      for (const Broker::News& each : caller->news()) ++(each.failure ? failed : reached);
    }
  }

  Network network;
  SlowNode server;
  Alarm alarm;
  std::vector<std::unique_ptr<BrokerNode>> callers;
  int reached = 0;
  int failed = 0;
};

TEST(BrokerAndSilence, AnApplicationThatTakesLongIsAskedOnce) {
  for (const Duration time : {Duration{100ms}, Duration{1s}, Duration{2600ms}, Duration{4s}}) {
    Crowd crowd(1, time);
    crowd.call(0);
    crowd.pass(time + kRoundTrips);
    EXPECT_EQ(crowd.reached, 1) << time.count();
    crowd.pass(20s);
    EXPECT_EQ(crowd.server.asked, 1) << time.count();
    EXPECT_EQ(crowd.failed, 0) << time.count();
    EXPECT_EQ(crowd.callers[0]->broker->stats().connections, 0u);
    EXPECT_EQ(crowd.server.node.broker->stats().connections, 0u);
  }
}

TEST(BrokerAndSilence, ManyCallersOfASlowApplicationAreAskedAboutOnceEach) {
  constexpr std::uint32_t kCallers = 20;
  Crowd crowd(kCallers, 100ms);
  for (std::uint32_t i = 0; i < kCallers; ++i) crowd.call(i);
  crowd.pass(kCallers * 100ms + kRoundTrips);
  EXPECT_EQ(crowd.reached, static_cast<int>(kCallers));
  crowd.pass(20s);
  EXPECT_EQ(crowd.server.asked, static_cast<int>(kCallers));
  EXPECT_EQ(crowd.failed, 0);
  EXPECT_EQ(crowd.server.node.broker->stats().connections, 0u);
}

// The second one comes at any step of its handshake while the first one's question is being answered.
TEST(BrokerAndSilence, ACallerThatWaitsForAnotherCallersAnswerIsAskedAboutOnce) {
  for (Duration apart = 0ms; apart <= 10 * kDelay; apart += kDelay / 2) {
    Crowd crowd(2, 2s);
    crowd.call(0);
    crowd.pass(apart);
    crowd.call(1);
    crowd.pass(4s + kProbe + 2 * kRoundTrips);
    EXPECT_EQ(crowd.reached, 2) << apart.count();
    crowd.pass(20s);
    EXPECT_EQ(crowd.server.asked, 2) << apart.count();
  }
}

TEST(BrokerAndSilence, NobodyIsAskedAboutACallerThatHasGivenUp) {
  Crowd crowd(2, 3s, 1s);
  crowd.call(0);
  crowd.call(1);
  crowd.pass(2s);
  EXPECT_EQ(crowd.failed, 2) << "the time is the caller's";
  crowd.pass(20s);
  EXPECT_EQ(crowd.server.asked, 1);
  EXPECT_EQ(crowd.server.node.broker->stats().connections, 0u);
}

// ---- peers that are away ----

TEST(BrokerAndSilence, APeerThatWasAwayIsFoundWithinAProbeIntervalHoweverLongItWasAway) {
  for (const Duration away : {50ms, 100ms, 200ms, 500ms, 1000ms, 1700ms, 2900ms, 4500ms}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      Network network(seed, {.delay = kDelay});
      Alarm alarm;
      network.add(Address::v4(1, 1), alarm);
      BrokerNode caller(kClientAddress, 10 + seed), server(kServer, 20 + seed);
      network.add(caller.at, caller);
      caller.broker->want(kServer, "", network.now());
      alarm.pass(network, away);
      network.add(kServer, server);
      alarm.pass(network, kProbe + kRoundTrips);
      const std::vector<Broker::News> news = caller.news();
      ASSERT_EQ(news.size(), 1u) << away.count() << ", seed " << seed;
      EXPECT_FALSE(news[0].failure.has_value());
    }
  }
}

// Each time it is heard, and dies before it answers.
TEST(BrokerAndSilence, APeerThatDiesAgainAndAgainIsFoundWithinAProbeIntervalEachTime) {
  constexpr std::size_t kLives = 6;
  for (const Duration away : {0ms, 300ms}) {
    Network network(1, {.delay = kDelay});
    Alarm alarm;
    network.add(Address::v4(1, 1), alarm);
    BrokerNode caller(kClientAddress, 11);
    network.add(caller.at, caller);
    std::vector<std::unique_ptr<BrokerNode>> lives;
    caller.broker->want(kServer, "", network.now());
    for (std::size_t life = 0; life <= kLives; ++life) {
      lives.push_back(std::make_unique<BrokerNode>(kServer, 100 + life));
      network.add(kServer, *lives.back());
      bool has_spoken = false;
      network.watch = [&](const Address& from, const Address&, ByteSpan) {
        if (from == kServer && !std::exchange(has_spoken, true) && life < kLives) network.remove(kServer);
        return true;
      };
      alarm.pass(network, kProbe + kRoundTrips);
      EXPECT_TRUE(has_spoken) << "life " << life;
      if (life < kLives) alarm.pass(network, away);
    }
    const std::vector<Broker::News> news = caller.news();
    ASSERT_EQ(news.size(), 1u);
    EXPECT_FALSE(news[0].failure.has_value());
  }
}

TEST(BrokerAndSilence, APeerThatIsFarAwayIsReachedInTwoRoundTrips) {
  for (const Duration delay : {30ms, 50ms, 150ms, 500ms, 1000ms}) {
    Network network(1, {.delay = delay});
    Alarm alarm;
    network.add(Address::v4(1, 1), alarm);
    BrokerNode caller(kClientAddress, 11), server(kServer, 12);
    network.add(caller.at, caller);
    network.add(kServer, server);
    caller.broker->want(kServer, "", network.now());
    alarm.pass(network, 4 * delay + 1ms);
    const std::vector<Broker::News> news = caller.news();
    ASSERT_EQ(news.size(), 1u) << delay.count();
    EXPECT_FALSE(news[0].failure.has_value()) << delay.count();
    EXPECT_LE(server.broker->stats().accepted, 3u) << delay.count();
    alarm.pass(network, 10s);
    EXPECT_EQ(server.broker->stats().connections, 0u) << delay.count();
    EXPECT_EQ(server.broker->stats().completed, 1u) << delay.count();
  }
}

TEST(BrokerAndSilence, ManySilentPeersAreAskedAtABoundedRate) {
  constexpr std::uint32_t kSilent = 64;
  Network network(1, {.delay = kDelay});
  Alarm alarm;
  network.add(Address::v4(1, 1), alarm);
  BrokerNode caller(kClientAddress, 11);
  network.add(caller.at, caller);
  std::size_t sent = 0;
  network.watch = [&](const Address&, const Address&, ByteSpan) { return ++sent != 0; };
  for (std::uint32_t i = 0; i < kSilent; ++i) {
    caller.broker->want(Address::v4(0x0b000000 + i, 4433), "", network.now());
  }
  alarm.pass(network, 4s);
  constexpr std::size_t kOwnOfQuic = 7;  // at 0, 76, 228, 532, 1140 and 2356 ms, and some of two datagrams
  EXPECT_LE(sent, 4s / kRepeatSpacing + kOwnOfQuic * kSilent);
  EXPECT_GE(sent, 4s / kRepeatSpacing * 3 / 4) << "the test no longer meets what it is about";
  EXPECT_EQ(caller.broker->stats().started, kSilent) << "and none of that costs another key";
}

// Peers far away are heard after QUIC's first probe, when a repetition is due, or in the line of those that repeat.
TEST(BrokerAndSilence, ASilentPeerIsAskedAsOftenBesideManyThatAreFarAway) {
  constexpr std::uint32_t kFar = 120;
  const Address silent = Address::v4(0x0b000000, 4433);
  Network network(1, {.delay = 70ms});
  Alarm alarm;
  network.add(Address::v4(1, 1), alarm);
  BrokerNode caller(kClientAddress, 11, 2 * kFar);
  network.add(caller.at, caller);
  caller.broker->want(silent, "", network.now());
  std::vector<std::unique_ptr<BrokerNode>> far;
  for (std::uint32_t i = 0; i < kFar; ++i) {
    far.push_back(std::make_unique<BrokerNode>(Address::v4(0x0c000000 + i, 4433), 100 + i));
    network.add(far.back()->at, *far.back());
    caller.broker->want(far.back()->at, "", network.now());
  }
  const Instant heard = network.now() + 140ms;  // all but one
  Instant last = network.now();
  Duration longest{0};
  network.watch = [&](const Address&, const Address& to, ByteSpan) {
    if (to != silent) return true;
    if (last >= heard) longest = std::max(longest, network.now() - last);
    last = network.now();
    return true;
  };
  alarm.pass(network, 2s);
  EXPECT_EQ(caller.news().size(), kFar);
  EXPECT_GT(longest, Duration{0});
  EXPECT_LE(longest, kRepeat + 1ms) << "timers have a resolution of a millisecond";
}

TEST(BrokerAndSilence, ASilentPeerIsSentNoMoreThanAResponderTakesIn) {
  constexpr std::size_t kRestOfAHandshake = 8;
  for (const Duration timeout : {Duration{5s}, Duration{10s}, Duration{60s}}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      Network network(seed);
      Alarm alarm;
      network.add(Address::v4(1, 1), alarm);
      BrokerNode caller(kClientAddress, seed, 64, {}, [&](Broker::Options& options) { options.timeout = timeout; });
      network.add(caller.at, caller);
      caller.broker->want(kServer, "", network.now());
      std::vector<std::byte> last;
      int repeats = 0;
      network.watch = [&](const Address&, const Address&, ByteSpan bytes) {
        repeats += std::ranges::equal(bytes, last);
        last.assign(bytes.begin(), bytes.end());
        return true;
      };
      alarm.pass(network, timeout + 1s);
      EXPECT_EQ(caller.news().size(), 1u);
      EXPECT_LE(repeats, kMostRepeats) << timeout.count();
      EXPECT_GE(repeats, kMostRepeats / 2) << timeout.count();
      EXPECT_LT(network.sent() + kRestOfAHandshake, kMaxDatagramsPerHandshake) << timeout.count();
    }
  }
}

// ---- closed ports ----

// A host where no process listens.
struct ClosedPort final : Node {
  explicit ClosedPort(const Address& address, BrokerNode& peer) : at(address), caller(peer) {}
  void receive(MutableByteSpan datagram, const Address&, Instant now) override {
    caller.broker->on_unreachable(at, datagram, now);
  }
  void expire(Instant) override {}
  Instant deadline() const override { return Instant::never(); }
  bool take(Address&, ByteSpan&, Instant) override { return false; }

  Address at;
  BrokerNode& caller;
};

TEST(BrokerAndSilence, APeerThatOpensItsPortIsFoundWithinAProbeIntervalHoweverLongItWasClosed) {
  for (const Duration away : {20ms, 100ms, 500ms, 1700ms, 4500ms}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      Network network(seed, {.delay = kDelay});
      Alarm alarm;
      network.add(Address::v4(1, 1), alarm);
      BrokerNode caller(kClientAddress, 10 + seed), server(kServer, 20 + seed);
      ClosedPort closed(kServer, caller);
      network.add(caller.at, caller);
      network.add(kServer, closed);
      int refused = 0;
      for (Duration passed{0}; passed < away; passed += 10ms) {
        caller.broker->want(kServer, "", network.now());
        alarm.pass(network, 10ms);
        for (const Broker::News& each : caller.news()) refused += each.failure.has_value();
      }
      EXPECT_GE(refused, away / (2 * kProbe)) << "whoever waits is told each time";
      EXPECT_EQ(caller.broker->stats().started, 1u) << "and that costs no keys";
      network.add(kServer, server);
      alarm.pass(network, kProbe + kRoundTrips);
      const std::vector<Broker::News> news = caller.news();
      ASSERT_EQ(news.size(), 1u) << away.count() << ", seed " << seed;
      EXPECT_FALSE(news[0].failure.has_value());
    }
  }
}

TEST(BrokerAndSilence, AClosedPortKeepsNobodyWaitingForItsPlace) {
  Network network(1, {.delay = kDelay});
  Alarm alarm;
  network.add(Address::v4(1, 1), alarm);
  BrokerNode caller(kClientAddress, 11, 1), server(kServer, 12);
  const Address empty = Address::v4(0x0b000000, 4433);
  ClosedPort closed(empty, caller);
  network.add(caller.at, caller);
  network.add(kServer, server);
  network.add(empty, closed);
  caller.broker->want(empty, "", network.now());
  caller.broker->want(kServer, "", network.now());
  alarm.pass(network, 2 * kDelay + kRoundTrips);
  EXPECT_EQ(caller.news().size(), 2u);
}

// ---- peers that say something, and no more ----

// The first one may only be slow, so the false answers of the second one end nothing; nor are they asked for in haste.
TEST(BrokerAndSilence, AProcessThatAnswersFalselyIsAskedOncePerProbeInterval) {
  Network network(1, {.delay = kDelay});
  Alarm alarm;
  network.add(Address::v4(1, 1), alarm);
  BrokerNode caller(kClientAddress, 11), first(kServer, 12), last(kServer, 13);
  network.add(caller.at, caller);
  network.add(kServer, first);
  network.watch = [&](const Address& from, const Address&, ByteSpan) {
    if (from == kServer) network.remove(kServer);
    return true;
  };
  caller.broker->want(kServer, "", network.now());
  alarm.pass(network, 10ms);
  network.watch = nullptr;
  TestEntropy entropy(14);
  Endpoint::Options options = server_options(entropy);
  options.credentials = make_credentials(test_authority(), {BrokerNode::ip_of(kServer)});
  int answers = 0;
  options.answer = [&](const Outcome&) -> Result<std::vector<std::byte>> {
    ++answers;
    return std::unexpected(Error(Code::peer_failed, "false"));
  };
  EndpointNode rude(std::move(options));
  network.add(kServer, rude);
  alarm.pass(network, 4 * kProbe);
  EXPECT_TRUE(caller.news().empty());
  EXPECT_GE(answers, 2);
  EXPECT_LE(answers, 4);
  network.add(kServer, last);
  alarm.pass(network, kProbe + kRoundTrips);
  const std::vector<Broker::News> news = caller.news();
  ASSERT_EQ(news.size(), 1u);
  EXPECT_FALSE(news[0].failure.has_value());
}

// It repeats the beginning of its answer, as QUIC does, and never hears any of ours.
TEST(BrokerAndSilence, APeerThatAlwaysBeginsToAnswerIsGivenUpAtLast) {
  constexpr Duration kTimeout = 5s;
  Network network(1, {.delay = kDelay});
  Alarm alarm;
  network.add(Address::v4(1, 1), alarm);
  BrokerNode caller(kClientAddress, 11), server(kServer, 12);
  network.add(caller.at, caller);
  network.add(kServer, server);
  std::set<std::vector<std::byte>> own_ids;  // of the server
  network.watch = [&](const Address& from, const Address&, ByteSpan bytes) {
    ngtcp2_version_cid ids{};
    const auto* at = reinterpret_cast<const std::uint8_t*>(bytes.data());
    if (ngtcp2_pkt_decode_version_cid(&ids, at, bytes.size(), kConnectionIdBytes) != 0) return false;
    const auto id = [](const std::uint8_t* data, std::size_t size) {
      const auto span = std::as_bytes(std::span(data, size));
      return std::vector<std::byte>(span.begin(), span.end());
    };
    if (from == kServer) return own_ids.insert(id(ids.scid, ids.scidlen)), true;
    return !own_ids.contains(id(ids.dcid, ids.dcidlen));
  };
  caller.broker->want(kServer, "", network.now());
  std::size_t most = 0;
  for (Duration passed{0}; passed < 2 * kTimeout; passed += 50ms) {
    alarm.pass(network, 50ms);
    most = std::max(most, caller.broker->stats().connections);
  }
  EXPECT_EQ(most, Broker::kHandshakesPerPlace);
  alarm.pass(network, kProbe);
  const std::vector<Broker::News> news = caller.news();
  ASSERT_EQ(news.size(), 1u);
  EXPECT_TRUE(news[0].failure.has_value());
  EXPECT_GT(caller.broker->stats().started, 2u) << "the test no longer meets what it is about";
}

}  // namespace
}  // namespace weir::handshake::testing
