// What is sent again, and what is not (docs/protocol.md, rules ).
#include <gtest/gtest.h>

#include <vector>

#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::Pair;
using testing::TestCall;
using namespace std::chrono_literals;

// Nobody searches for the MTU.
EngineConfig small(bool accepts, std::uint16_t port) {
  EngineConfig config = testing::test_config(accepts, port);
  config.datagram_bytes = 1'200;
  return config;
}

// A path that has carried a call, to a server that keeps requests until it is told to answer.
struct Losses : ::testing::Test {
  Losses() {
    pair.serve_echo();
    pair.serve("keep", [this](Engine&, transfer::IncomingTransfer& request, Instant) { kept.push_back(&request); });
    pair.call(opens, "echo", "opens the path");
    EXPECT_TRUE(pair.run_until([this] { return opens.completions != 0; }));
    pair.run_for(50ms);
    before = counters();
  }
  const Counters& counters() { return pair.client().events().counters; }
  std::uint64_t sent_again() { return counters().frames_retransmitted - before.frames_retransmitted; }
  void answer() {
    for (transfer::IncomingTransfer* request : kept)
      pair.server().reply(*request, {}, weir::as_bytes("done"), pair.now);
    kept.clear();
  }

  Pair pair{small(false, 1111), small(true, 2222)};
  TestCall opens;
  std::vector<transfer::IncomingTransfer*> kept;
  Counters before;
};

TEST_F(Losses, FramesOfAPacketThatWasOnlyLateDoNotGoAgain) {
  TestCall calls[6];
  for (TestCall& call : calls) {
    pair.call(call, "keep", "in a packet of its own");
    pair.turn(0);
  }
  ASSERT_EQ(pair.wire.size(), 6u);
  // The first packet is overtaken by all others. The client hears of both at once.
  pair.wire[0].at = pair.wire[0].at + 20us;
  const Instant heard = pair.now + pair.latency + 100us;
  for (int i = 0; i < 2; ++i) {
    pair.now = pair.wire.back().to == 1 ? pair.wire.back().at : pair.wire.front().at;
    pair.turn(1);
  }
  ASSERT_EQ(pair.wire.size(), 2u);
  for (Pair::InFlight& datagram : pair.wire) datagram.at = heard;
  pair.now = heard;
  pair.turn(0);
  EXPECT_EQ(counters().packets_lost - before.packets_lost, 1u);
  EXPECT_EQ(counters().packets_late - before.packets_late, 1u);
  EXPECT_EQ(sent_again(), 0u);
  EXPECT_EQ(counters().bytes_retransmitted, before.bytes_retransmitted);
  EXPECT_EQ(counters().bytes_in_vain, before.bytes_in_vain);
  EXPECT_EQ(kept.size(), 6u);
  answer();
  ASSERT_TRUE(pair.run_until([&] { return calls[0].completions + calls[5].completions == 2; }));
  pair.run_for(100ms);
  EXPECT_EQ(sent_again(), 0u);
}

TEST_F(Losses, TheFirstProbeOfALatePeerRepeatsNothing) {
  TestCall call;
  pair.latency = 3ms;
  pair.call(call, "echo", "takes six milliseconds");
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed);
  EXPECT_EQ(counters().probe_timeouts - before.probe_timeouts, 1u);
  EXPECT_EQ(counters().probes_needless - before.probes_needless, 1u);
  EXPECT_EQ(sent_again(), 0u);
  EXPECT_EQ(pair.handled, 2);
}

TEST_F(Losses, TheFirstProbeFindsOutWhatWasLost) {
  TestCall call;
  pair.call(call, "keep", "is lost");
  pair.turn(0);
  ASSERT_EQ(pair.wire.size(), 1u);
  pair.wire.clear();
  const Instant lost_at = pair.now;
  ASSERT_TRUE(pair.run_until([&] { return !kept.empty(); }));
  EXPECT_LE(pair.now - lost_at, 3ms);
  pair.run_for(100ms);
  EXPECT_EQ(sent_again(), 1u);
  EXPECT_EQ(counters().probes_needless, before.probes_needless);
  answer();
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
}

TEST_F(Losses, FramesThatAProbeRepeatedDoNotGoAThirdTime) {
  TestCall call;
  pair.call(call, "keep", "is lost, and so is the first probe");
  pair.loss = 1;
  pair.run_for(10ms);
  EXPECT_EQ(sent_again(), 0u);
  pair.loss = 0;
  ASSERT_TRUE(pair.run_until([&] { return !kept.empty(); }));
  pair.run_for(200ms);
  EXPECT_EQ(sent_again(), 1u) << "the second probe has them, and the packet that was lost needs them no more";
  EXPECT_EQ(kept.size(), 1u);
  answer();
  ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
}

}  // namespace
}  // namespace weir::engine
