#include "engine/shared_links.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "engine/core.h"
#include "engine/engine_access.h"
#include "engine/engines_testing.h"

namespace weir::engine {
namespace {

using namespace std::chrono_literals;
using recovery::Bottleneck;

constexpr std::uint32_t kPacket = 1'472;

Address host(std::uint32_t number) { return Address::v4(0x0a000000 + number, 7); }

// Paths of one network, each with one packet size, and what is known of each packet at once.
struct Network {
  explicit Network(std::uint32_t paths, Instant begin = Instant{1'000'000'000}) : now(begin), shares(paths) {
    for (std::uint32_t i = 0; i < paths; ++i) links.join(shares[i], host(1 + i));
  }
  SharedLink& link() { return links.of(shares[0]); }
  std::uint64_t sum() const {
    std::uint64_t bytes = 0;
    for (const LinkShare& share : shares) bytes += share.bytes;
    return bytes;
  }
  // One packet of each path, acknowledged after `rtt`. Those of the first `losing` paths are lost.
  void round(Duration rtt, std::uint32_t losing = 0, std::uint32_t packets = 1) {
    std::vector<Bottleneck::Stamp> stamps(shares.size());
    const Instant sent_at = now;
    for (std::size_t i = 0; i < shares.size(); ++i) stamps[i] = links.on_sent(shares[i], packets * kPacket, now);
    now = now + rtt;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      Bottleneck::Outcome outcome{.rtt = rtt, .prompt_rtt = rtt};
      if (i < losing) {
        outcome.lost_packets = packets;
        outcome.lost_bytes = packets * kPacket;
        outcome.lost_sent_at = sent_at;
      } else {
        outcome.delivered_bytes = packets * kPacket;
        outcome.newest = stamps[i];
      }
      links.on_outcome(shares[i], 0, outcome, now);
    }
    now = now + 1us;
  }

  Instant now;
  SharedLinks links{1'000};
  std::vector<LinkShare> shares;
};

TEST(SharedLinks, APathAmongOthersHasATurnOfFourPackets) {
  Network network(4);
  SharedLink& link = network.link();
  network.links.on_sent(network.shares[1], kPacket, network.now);
  link.begin_turn(true, false);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(link.has_turn_left()) << i;
    network.links.on_sent(network.shares[0], kPacket, network.now);
  }
  EXPECT_FALSE(link.has_turn_left());
  link.begin_turn(true, true);
  EXPECT_FALSE(link.has_turn_left());  // but for the message that was begun
  link.begin_turn(false, false);
  for (int i = 0; i < 40; ++i) network.links.on_sent(network.shares[0], kPacket, network.now);
  EXPECT_TRUE(link.has_turn_left());
}

TEST(SharedLinks, PathsToOneNetworkShareALinkAndOthersHaveTheirOwn) {
  SharedLinks links(10);
  LinkShare a, b, c, d;
  links.join(a, Address::v4(0x0a000001, 1));
  links.join(b, Address::v4(0x0a0000fe, 2));
  links.join(c, Address::v4(0x0a000101, 1));
  links.join(d, Address::v4(0x0a0001fe, 1));
  EXPECT_EQ(a.link, b.link);
  EXPECT_EQ(c.link, d.link);
  EXPECT_NE(a.link, c.link);
}

TEST(SharedLinks, FewPathsShareNothing) {
  Network three(3);
  EXPECT_FALSE(three.link().is_shared());
  EXPECT_TRUE(three.link().is_free());
  EXPECT_EQ(three.links.on_sent(three.shares[0], 1 << 30, three.now), 0u);
  Network four(4);
  EXPECT_TRUE(four.link().is_shared());
  EXPECT_NE(four.links.on_sent(four.shares[0], kPacket, four.now), 0u);
}

TEST(SharedLinks, NothingLimitsTheLoopbackInterface) {
  SharedLinks links(100);
  std::vector<LinkShare> shares(100);
  for (std::uint32_t i = 0; i < shares.size(); ++i) links.join(shares[i], Address::v4(0x7f000001, 1 + i));
  for (LinkShare& share : shares) (void)links.on_sent(share, 1 << 20, Instant{1});
  EXPECT_TRUE(links.of(shares[0]).is_free());
  EXPECT_TRUE(links.of(shares[0]).is_free_to_ask());
  EXPECT_EQ(links.of(shares[0]).model.in_flight(), 0u);
}

TEST(SharedLinks, ColdPathsHaveOneWindowTogether) {
  Network network(100);
  std::uint64_t sent = 0;
  for (std::size_t i = 0; network.link().is_free() && i < 1'000; ++i) {
    (void)network.links.on_sent(network.shares[i % 100], kPacket, network.now);
    sent += kPacket;
  }
  EXPECT_LE(sent, Bottleneck::Options{}.initial_window + kPacket);
  EXPECT_EQ(network.link().model.in_flight(), network.sum());
}

TEST(SharedLinks, ASilentPeerHoldsNoWindow) {
  Network network(10);
  (void)network.links.on_sent(network.shares[3], 64 * 1024, network.now);
  EXPECT_FALSE(network.link().model.has_room());
  network.links.on_silence(network.shares[3], network.now + 10ms);
  EXPECT_TRUE(network.link().model.has_room());
  EXPECT_EQ(network.link().model.in_flight(), 0u);
  // What becomes of the old packets later takes nothing from what is sent meanwhile.
  (void)network.links.on_sent(network.shares[3], kPacket, network.now + 11ms);
  network.links.on_outcome(network.shares[3], 30 * kPacket, {.delivered_bytes = kPacket}, network.now + 12ms);
  EXPECT_EQ(network.link().model.in_flight(), kPacket);
  network.links.on_outcome(network.shares[3], 0, {.delivered_bytes = 31 * kPacket}, network.now + 13ms);
  EXPECT_EQ(network.link().model.in_flight(), 0u);
}

TEST(SharedLinks, APathThatLeavesTakesItsBytesAndItsPlaceAlong) {
  Network network(10);
  (void)network.links.on_sent(network.shares[3], 20'000, network.now);
  (void)network.links.on_sent(network.shares[4], 30'000, network.now);
  network.links.wait(network.shares[3], 3, 5, false);
  network.links.leave(network.shares[3], network.now);
  EXPECT_EQ(network.link().model.in_flight(), 30'000u);
  EXPECT_TRUE(network.link().line.empty());
  EXPECT_FALSE(network.links.anyone_waits());
}

TEST(SharedLinks, OnePathHasAQuarterOfAWindowForWhichOthersWait) {
  Network network(10);
  const std::uint64_t quarter = network.link().model.window() / SharedLink::kWindowPart;
  (void)network.links.on_sent(network.shares[0], static_cast<std::uint32_t>(quarter - 1), network.now);
  EXPECT_FALSE(network.link().has_too_much(network.shares[0], false));
  (void)network.links.on_sent(network.shares[0], 1, network.now);
  EXPECT_TRUE(network.link().has_too_much(network.shares[0], false));
  EXPECT_FALSE(network.link().has_too_much(network.shares[1], false));
  EXPECT_FALSE(network.link().has_too_much(network.shares[0], true)) << "the end of a message may go";
  (void)network.links.on_sent(network.shares[0], SharedLink::kLeastShare, network.now);
  EXPECT_TRUE(network.link().has_too_much(network.shares[0], true));
}

// The window is small, and the probe timeouts of those whose packets fill it may be long.
TEST(SharedLinks, ALinkThatIsSilentDoesNotWaitForWhatIsOnTheWay) {
  Network network(10);
  for (int i = 0; i < 20; ++i) network.round(i < 10 ? 100us : 3ms, 0, 2);
  (void)network.links.on_sent(network.shares[3], 64 * 1024, network.now);
  network.links.wait(network.shares[4], 4, 3, false);
  ASSERT_FALSE(network.link().model.has_room());
  const Instant silent_at = network.link().silent_at();
  EXPECT_EQ(network.link().next_turn(network.now), silent_at);
  EXPECT_GE(silent_at, network.now + SharedLink::kShortestSilence);
  EXPECT_LE(silent_at, network.now + SharedLink::kLongestSilence);
  const std::uint64_t window = network.link().model.window();
  network.links.look_for_silence(network.link(), silent_at - 1ns);
  EXPECT_FALSE(network.link().model.has_room());
  network.links.look_for_silence(network.link(), silent_at);
  EXPECT_EQ(network.link().model.in_flight(), 0u);
  EXPECT_FALSE(network.link().has_too_much(network.shares[3], false));
  EXPECT_LT(network.link().model.window(), window);
  // What becomes of it later takes nothing from what is sent meanwhile.
  (void)network.links.on_sent(network.shares[4], kPacket, silent_at);
  network.links.on_outcome(network.shares[3], 0, {.lost_bytes = 64 * 1024, .lost_packets = 45}, silent_at + 1ms);
  EXPECT_EQ(network.link().model.in_flight(), kPacket);
  // Silence that goes on lasts longer and longer.
  (void)network.links.on_sent(network.shares[5], 64 * 1024, silent_at + 2ms);
  EXPECT_EQ(network.link().silent_at() - silent_at, 2 * (silent_at - (network.now + Duration{0})));
}

TEST(SharedLinks, WaitingPathsGoByUrgencyAndKeepOnePlace) {
  Network network(4);
  network.links.wait(network.shares[0], 100, 7, false);
  network.links.wait(network.shares[1], 101, 3, false);
  network.links.wait(network.shares[0], 100, 7, false);
  EXPECT_EQ(network.link().line.size(), 2u);
  EXPECT_EQ(network.link().line.front()->path, 101u);
  network.links.wait(network.shares[0], 100, 0, false);  // something more urgent has come
  EXPECT_EQ(network.link().line.front()->path, 100u);
  network.links.wait(network.shares[2], 102, 0, false, true);  // it has sent a part of a message
  EXPECT_EQ(network.link().line.front()->path, 102u);
  network.links.stop_waiting(network.shares[2]);
  network.links.wait(network.shares[0], 100, 0, true);
  EXPECT_EQ(network.link().line.size(), 1u);
  EXPECT_EQ(network.link().asking.front()->path, 100u);
}

// Otherwise nobody would collect packets when time alone lets the next one out.
TEST(SharedLinks, ATurnThatIsDueIsWork) {
  Network network(4);
  network.links.note_due();
  EXPECT_FALSE(network.links.has_turns());  // nobody waits
  network.links.wait(network.shares[0], 0, 3, false);
  EXPECT_TRUE(network.links.has_turns());
  network.links.end_turn();
  EXPECT_FALSE(network.links.has_turns());
  network.links.note_due();
  EXPECT_TRUE(network.links.has_turns());
  network.links.end_turn();
  network.links.on_outcome(network.shares[1], 0, {.delivered_bytes = 1}, network.now);
  EXPECT_TRUE(network.links.has_turns());
  network.links.end_turn();
  transfer::OutgoingCall call;
  network.links.on_asked(network.shares[1], call, network.now);
  EXPECT_FALSE(network.links.has_turns());
  network.links.on_reply(network.shares[1], call, 64);
  EXPECT_TRUE(network.links.has_turns());
}

TEST(SharedLinks, LossesOfOnePathDoNotSlowTheOthersDown) {
  Network network(20);
  for (int i = 0; i < 5; ++i) network.round(100us);
  const std::uint64_t window = network.link().model.window();
  for (int i = 0; i < 500; ++i) network.round(100us, 1);
  EXPECT_GE(network.link().model.window(), window);
  EXPECT_TRUE(network.link().model.is_searching());
  for (int i = 0; i < 5; ++i) network.round(100us, 15);
  EXPECT_FALSE(network.link().model.is_searching());
  EXPECT_LT(network.link().model.window(), window);
}

// Packets that were late, not lost, are taken back as far as they were counted.
TEST(SharedLinks, LatePacketsOfOnePathTakeBackOnlyItsOwnLosses) {
  Network network(100);
  for (int i = 0; i < 12; ++i) network.round(100us);
  const std::uint64_t window = network.link().model.window();
  for (int i = 0; i < 20; ++i) {
    network.links.on_outcome(network.shares[99], 0, {.spurious_packets = 50}, network.now);
    network.round(5ms, 40);
  }
  EXPECT_FALSE(network.link().model.is_searching());
  EXPECT_LT(network.link().model.window(), window);
}

// A peer may count marks that no packet had.
TEST(SharedLinks, MarksOfOnePeerDoNotEndTheSearch) {
  Network network(100);
  for (int i = 0; i < 20; ++i) {
    network.links.on_marked(network.shares[0], kPacket);
    network.round(100us);
  }
  EXPECT_TRUE(network.link().model.is_searching());
}

TEST(SharedLinks, ALinkThatTakesThePlaceOfAnotherHasNothingToSettle) {
  SharedLinks links(1'000);
  std::vector<LinkShare> shares(SharedLinks::kMaxLinks * 4 + 1);
  const Instant now{1'000'000'000};
  for (std::uint32_t i = 0; i < SharedLinks::kMaxLinks * 4u; ++i) {
    links.join(shares[i], Address::v4(0x0a000001 + ((i / 4) << 8) + i % 4, 7));
  }
  transfer::OutgoingCall call;
  links.on_asked(shares[0], call, now);
  ASSERT_NE(call.reply_stamp, 0u);
  links.on_end(shares[0], call);
  for (std::uint32_t i = 0; i < 4; ++i) links.leave(shares[i], now);
  links.join(shares.back(), Address::v4(0x0b000001, 7));
  EXPECT_EQ(shares.back().link, 0u) << "the place of the first link";
  links.settle(now);
}

TEST(SharedLinks, APeerThatIsFarAwayIsNoQueue) {
  Network network(20);
  for (int i = 0; i < 10; ++i) network.round(100us);
  const std::uint64_t window = network.link().model.window();
  // One path has a round trip of 5 ms, always, and sends alone.
  LinkShare far;
  network.links.join(far, host(100));
  for (int i = 0; i < 200; ++i) {
    const Bottleneck::Stamp stamp = network.links.on_sent(far, static_cast<std::uint32_t>(window), network.now);
    network.now = network.now + 5ms;
    network.links.on_outcome(far, 0, {.delivered_bytes = window, .newest = stamp, .rtt = 5ms, .prompt_rtt = 5ms},
                             network.now);
  }
  EXPECT_GE(network.link().model.window(), window / 2);
}

TEST(SharedLinks, MorePrefixesThanLinksShareThem) {
  SharedLinks links(1'000);
  std::vector<LinkShare> shares(300);
  for (std::uint32_t i = 0; i < shares.size(); ++i) links.join(shares[i], Address::v4(0x0a000001 + (i << 8), 1));
  EXPECT_EQ(links.size(), SharedLinks::kMaxLinks);
  std::uint32_t paths = 0;
  for (std::size_t i = 0; i < links.size(); ++i) paths += links[static_cast<std::uint8_t>(i)].paths;
  EXPECT_EQ(paths, 300u);
  for (LinkShare& share : shares) links.leave(share, Instant{5});
  LinkShare again;
  links.join(again, Address::v4(0x0b000001, 1));
  EXPECT_EQ(links.of(again).paths, 1u);
}

TEST(SharedLinks, TheQueueOfRequestsIsNotBlamedOnReplies) {
  Network network(20);
  std::vector<transfer::OutgoingCall> calls(4);
  // Little is asked for, and always something waits for it.
  for (int i = 0; i < 400; ++i) {
    for (transfer::OutgoingCall& call : calls) network.links.on_asked(network.shares[0], call, network.now);
    network.links.wait(network.shares[0], 0, 0, true);
    network.round(i < 10 ? 100us : 2ms, 0, 4);
    for (transfer::OutgoingCall& call : calls) network.links.on_reply(network.shares[0], call, 64);
    network.links.settle(network.now);
    network.links.end_turn();
  }
  EXPECT_GE(network.link().replies->model().window(), 64u * 1024);
  EXPECT_EQ(network.link().replies->model().in_flight(), 0u);
}

// Whoever is called and never answers.
TEST(SharedLinks, HelloPathsLeaveTheirLinkWhenTheyAreGivenUp) {
  testing::Engines engines;
  engines.add(true, nullptr);
  engines.add(false, nullptr);
  engines.cut_off(0);
  Core& core = testing::EngineAccess::core(engines.engine(1));
  for (int i = 0; i < 3; ++i) {
    testing::TestCall call;
    engines.call(1, 0, call, 100);
    ASSERT_TRUE(engines.run_until([&] { return call.completions == 1; }));
    EXPECT_TRUE(call.failed);
    engines.run_for(std::chrono::seconds(3));
    std::uint64_t on_links = 0;
    for (std::size_t link = 0; link < core.links.size(); ++link) {
      on_links += core.links[static_cast<std::uint8_t>(link)].paths;
    }
    EXPECT_EQ(on_links, core.paths.live());
  }
}

// Only paths that wait to send are served after a silence. A timer that is due at once would fire again and again.
TEST(SharedLinks, ALinkOnWhichPathsOnlyWaitToAskHasNoTurnOfItsOwn) {
  Network network(4);
  transfer::OutgoingCall call;
  network.links.on_asked(network.shares[0], call, network.now);
  for (int i = 0; i < 100; ++i) (void)network.links.on_sent(network.shares[1], kPacket, network.now);
  network.links.wait(network.shares[2], 3, 3, true);
  ASSERT_FALSE(network.link().model.has_room());
  EXPECT_TRUE(network.link().next_turn(network.now + 3s).is_never());
}

TEST(SharedLinks, ALongRoundTripIsNoSilence) {
  Network network(4);
  for (int i = 0; i < 10; ++i) network.round(1500ms, 0, 4);
  for (int i = 0; network.link().model.has_room(); ++i) {
    (void)network.links.on_sent(network.shares[static_cast<std::size_t>(i % 4)], kPacket, network.now);
  }
  EXPECT_GT(network.link().silent_at(), network.now + 2'900ms);
}

}  // namespace
}  // namespace weir::engine
