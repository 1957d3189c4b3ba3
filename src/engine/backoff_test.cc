// A receiver without room answers every packet that it refuses. Its answers must not bring the packets again.
#include <gtest/gtest.h>

#include "engine/credential_testing.h"
#include "engine/engine_access.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::Pair;
using testing::TestCall;
using namespace std::chrono_literals;

struct Listener : Subscriber {
  void on(const event::HandshakeFailed& e) override {
    ++events;
    left_out += e.left_out;
  }
  int events = 0;
  std::uint64_t left_out = 0;
};

// The server's record of requests is full of others' for as long as the test likes.
TEST(Backoff, GrowsWhileTheReceiverAnswersWithoutAcknowledging) {
  Pair pair;
  pair.serve_echo();
  TestCall opens, refused;
  pair.call(opens, "echo", "opens the path");
  ASSERT_TRUE(pair.run_until([&] { return opens.completions != 0; }));
  pair.run_for(50ms);
  Core& server = EngineAccess::core(pair.server());
  std::vector<transfer::IncomingTransfer*> others;
  while (transfer::IncomingTransfer* other = server.incoming.acquire()) others.push_back(other);
  pair.call(refused, "echo", "body", {}, 60s);
  const std::uint64_t before = pair.client().events().counters.probe_timeouts;
  // The server has something to say every millisecond, but acknowledges nothing.
  for (int millisecond = 0; millisecond < 2'000; ++millisecond) {
    server.paths.for_each([&](Path& path) {
      path.credit_levels_owed = 1;
      server.touch(path);
    });
    const Instant next = pair.now + 1ms;
    for (int i = 0; i < 4; ++i, pair.now = pair.now + pair.latency) {
      pair.turn(0);
      pair.turn(1);
    }
    pair.now = next;
  }
  EXPECT_EQ(refused.completions, 0);
  EXPECT_LE(pair.client().events().counters.probe_timeouts - before, 14u) << "each wait is twice as long as the last";
  for (transfer::IncomingTransfer* other : others) server.incoming.release(other);
  pair.on_wire = nullptr;
  ASSERT_TRUE(pair.run_until([&] { return refused.completions != 0; }));
  EXPECT_FALSE(refused.failed) << refused.reply;
}

TEST(HandshakeFailed, IsToldOncePerSecondAndPeerAndCountsTheOthers) {
  Pair pair;
  Listener listener;
  pair.subscribers[0] = &listener;
  pair.start(0);
  pair.loss = 1;
  std::vector<std::byte> hello;
  pair.on_wire = [&](int from, MutableByteSpan datagram) {
    if (from == 0) hello.assign(datagram.begin(), datagram.end());
  };
  constexpr int kCalls = 300;
  for (int i = 0; i < kCalls; ++i) {
    TestCall call;
    pair.call(call, "echo", "body", {}, 60s);
    pair.turn(0);
    ASSERT_FALSE(hello.empty());
    pair.client().on_unreachable(pair.addresses[1], ByteSpan(hello).first(64), pair.now);
    pair.client().deliver(pair.now);
    ASSERT_EQ(call.code, Code::peer_failed);
    hello.clear();
    pair.now = pair.now + 10ms;
  }
  EXPECT_EQ(listener.events, 3) << "in three seconds";
  EXPECT_EQ(listener.left_out, 198u) << "of the first two seconds";
  EXPECT_EQ(pair.client().events().counters.handshakes_failed, std::uint64_t{kCalls});
}

}  // namespace
}  // namespace weir::engine
