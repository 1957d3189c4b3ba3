// What an engine tells a subscriber: each event in a small story, and that the counters say the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/engine_access.h"
#include "engine/engine_testing.h"
#include "weir/event.h"

namespace weir::engine {
namespace {

using event::PeerHealth;
using event::TransferStage;
using ::testing::ElementsAre;
using testing::Pair;
using testing::TestCall;
using transfer::IncomingTransfer;
using namespace std::chrono_literals;

class Recorder final : public Subscriber {
 public:
  bool wants_transfers() const override { return wants; }
  void on(const event::TransferMoved& e) override { keep(moved, e); }
  void on(const event::TransferFailed& e) override { keep(failed, e); }
  void on(const event::PacketRejected& e) override { keep(rejected, e); }
  void on(const event::PacketsLost& e) override { keep(lost, e); }
  void on(const event::ProbeTimeout& e) override { keep(probes, e); }
  void on(const event::CongestionChanged& e) override { keep(congestion, e); }
  void on(const event::MtuChanged& e) override { keep(mtu, e); }
  void on(const event::KeyRotated& e) override { keep(rotated, e); }
  void on(const event::CreditBlocked& e) override { keep(blocked, e); }
  void on(const event::MemoryAwaited& e) override { keep(awaited, e); }
  void on(const event::RegionGranted& e) override { keep(granted, e); }
  void on(const event::RegionRevoked& e) override { keep(revoked, e); }
  void on(const event::RegionExhausted& e) override { keep(exhausted, e); }
  void on(const event::RegionLost& e) override { keep(regions_lost, e); }
  void on(const event::WriteRefused& e) override { keep(refused, e); }
  void on(const event::PeerHealthChanged& e) override {
    keep(health, e);
    peers.emplace_back(e.peer);
  }
  void on(const event::PeerRestarted& e) override { keep(restarted, e); }
  void on(const event::HandshakeFailed& e) override { keep(handshakes, e); }

  std::vector<TransferStage> stages() const {
    std::vector<TransferStage> all;
    for (const event::TransferMoved& one : moved) all.push_back(one.stage);
    return all;
  }
  std::vector<PeerHealth> healths() const {
    std::vector<PeerHealth> all;
    for (const event::PeerHealthChanged& one : health) all.push_back(one.health);
    return all;
  }

  // What is counted is what was told.
  void expect_counted(const Counters& counters) const {
    std::uint64_t packets_lost = 0;
    for (const event::PacketsLost& one : lost) packets_lost += one.packets;
    EXPECT_EQ(counters.calls_failed, failed.size());
    EXPECT_EQ(counters.packets_rejected, rejected.size());
    EXPECT_EQ(counters.packets_lost, packets_lost);
    EXPECT_EQ(counters.probe_timeouts, probes.size());
    EXPECT_EQ(counters.key_rotations, rotated.size());
    EXPECT_EQ(counters.credit_blocked, blocked.size());
    EXPECT_EQ(counters.handshakes_failed, handshakes.size());
    EXPECT_EQ(counters.regions_granted, granted.size());
    EXPECT_EQ(counters.regions_revoked, revoked.size());
    EXPECT_EQ(counters.regions_exhausted, exhausted.size());
    EXPECT_EQ(counters.regions_lost, regions_lost.size());
    EXPECT_EQ(counters.writes_refused, refused.size());
  }

  bool wants = true;
  std::int64_t last_time = 0;
  std::vector<event::TransferMoved> moved;
  std::vector<event::TransferFailed> failed;
  std::vector<event::PacketRejected> rejected;
  std::vector<event::PacketsLost> lost;
  std::vector<event::ProbeTimeout> probes;
  std::vector<event::CongestionChanged> congestion;
  std::vector<event::MtuChanged> mtu;
  std::vector<event::KeyRotated> rotated;
  std::vector<event::CreditBlocked> blocked;
  std::vector<event::MemoryAwaited> awaited;
  std::vector<event::RegionGranted> granted;
  std::vector<event::RegionRevoked> revoked;
  std::vector<event::RegionExhausted> exhausted;
  std::vector<event::RegionLost> regions_lost;
  std::vector<event::WriteRefused> refused;
  std::vector<event::PeerHealthChanged> health;
  std::vector<std::string> peers;
  std::vector<event::PeerRestarted> restarted;
  std::vector<event::HandshakeFailed> handshakes;

 private:
  template <class Event>
  void keep(std::vector<Event>& all, const Event& event) {
    EXPECT_GE(event.meta.time_ns, last_time);
    last_time = event.meta.time_ns;
    all.push_back(event);
  }
};

class Events : public ::testing::Test {
 protected:
  // Both sides' events are recorded from here on.
  void begin(const EngineConfig& client_config = testing::test_config(false, 1111),
             const EngineConfig& server_config = testing::test_config(true, 2222)) {
    pair = std::make_unique<Pair>(client_config, server_config);
    pair->subscribers[0] = &client;
    pair->subscribers[1] = &server;
    pair->start(0);
    pair->start(1);
    pair->serve_echo();
    pair->serve("hold", [this](Engine&, IncomingTransfer& request, Instant) { held.push_back(&request); });
  }
  void TearDown() override {
    client.expect_counted(pair->client().events().counters);
    server.expect_counted(pair->server().events().counters);
  }
  void echo(std::string_view body = "x") {
    TestCall call;
    pair->call(call, "echo", body);
    ASSERT_TRUE(pair->run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
  }
  // A call that the server does not answer.
  void hold(TestCall& call, Duration deadline = std::chrono::hours(1)) {
    const std::size_t before = held.size();
    pair->call(call, "hold", "x", {}, deadline);
    ASSERT_TRUE(pair->run_until([&] { return held.size() == before + 1; }));
  }
  bool ends(TestCall& call) {
    return pair->run_until([&] { return call.completions != 0; });
  }

  Recorder client, server;
  std::unique_ptr<Pair> pair;
  std::vector<IncomingTransfer*> held;
};

// ---- transfers ----

TEST_F(Events, ACallMovesFromStageToStage) {
  begin();
  echo();
  EXPECT_THAT(client.stages(), ElementsAre(TransferStage::submitted, TransferStage::sent, TransferStage::completed));
  EXPECT_THAT(server.stages(), ElementsAre(TransferStage::dispatched, TransferStage::replied));
  for (const event::TransferMoved& one : client.moved) EXPECT_FALSE(one.incoming);
  for (const event::TransferMoved& one : server.moved) EXPECT_TRUE(one.incoming);
  // Both sides name it alike once it has a name.
  EXPECT_NE(client.moved[1].transfer, 0u);
  EXPECT_EQ(client.moved[1].transfer, client.moved[2].transfer);
  EXPECT_EQ(client.moved[1].transfer, server.moved[0].transfer);
  EXPECT_EQ(server.moved[0].transfer, server.moved[1].transfer);
}

TEST_F(Events, NobodyWhoDoesNotAskHearsOfEveryTransfer) {
  client.wants = server.wants = false;
  begin();
  echo();
  EXPECT_TRUE(client.moved.empty());
  EXPECT_TRUE(server.moved.empty());
  EXPECT_FALSE(client.health.empty());
}

TEST_F(Events, ACallThatFailsSaysWhyAndWhetherItMayHaveRun) {
  begin();
  TestCall unserved;
  pair->call(unserved, "nobody", "x");
  ASSERT_TRUE(ends(unserved));
  TestCall late;
  hold(late, 50ms);
  ASSERT_TRUE(ends(late));
  ASSERT_TRUE(pair->run_until([&] { return held[0]->cancelled.load(); }));
  ASSERT_EQ(client.failed.size(), 2u);
  EXPECT_EQ(client.failed[0].code, Code::unknown_method);
  EXPECT_FALSE(client.failed[0].may_have_run);
  EXPECT_EQ(client.failed[1].code, Code::timeout);
  EXPECT_TRUE(client.failed[1].may_have_run);
  EXPECT_EQ(client.failed[1].transfer, server.moved.back().transfer);
  EXPECT_EQ(client.stages()[2], TransferStage::failed) << "the peer's word, as told by stages";
  EXPECT_EQ(server.stages().back(), TransferStage::cancelled);
  pair->server().reply(*held[0], {}, {}, pair->now);
}

// ---- recovery and congestion ----

TEST_F(Events, LossIsToldWithWhatItDoesToTheWindow) {
  begin();
  pair->loss = 0.2;
  for (int i = 0; i < 100; ++i) echo(std::string(8'000, 'x'));
  ASSERT_FALSE(client.lost.empty());
  for (const event::PacketsLost& one : client.lost) {
    EXPECT_GT(one.packets, 0u);
    EXPECT_GT(one.bytes, 0u);
  }
  std::size_t by_loss = 0;
  for (const event::CongestionChanged& one : client.congestion) {
    EXPECT_GT(one.window_bytes, 0u);
    EXPECT_FALSE(one.by_ecn);
    by_loss += one.by_loss;
  }
  EXPECT_EQ(by_loss, client.lost.size()) << "each time that packets are found lost, what it does to the window";
}

TEST_F(Events, UnansweredProbesAreToldWithTheirBackoff) {
  begin();
  TestCall call;
  hold(call);
  pair->loss = 1;
  TestCall next;
  pair->call(next, "echo", "x", {}, 200ms);
  ASSERT_TRUE(ends(next));
  ASSERT_GE(client.probes.size(), 3u);
  for (std::size_t i = 0; i < client.probes.size(); ++i) EXPECT_EQ(client.probes[i].backoff, i + 1);
}

TEST_F(Events, ALargerDatagramThatArrivesIsTold) {
  begin();
  for (int i = 0; i < 20; ++i) echo();
  ASSERT_FALSE(client.mtu.empty());
  EXPECT_EQ(client.mtu.back().datagram_bytes, 65'507u);
}

TEST_F(Events, EachNewKeyIsTold) {
  auto client_config = testing::test_config(false, 1);
  client_config.rotate_packets = 5;
  begin(client_config);
  for (int i = 0; i < 50; ++i) echo();
  ASSERT_GE(client.rotated.size(), 5u);
  for (std::size_t i = 0; i < client.rotated.size(); ++i) EXPECT_EQ(client.rotated[i].key_id, i + 1);
  EXPECT_TRUE(server.rotated.empty()) << "each side turns its own keys";
}

// ---- backpressure ----

TEST_F(Events, ACallThatWaitsForCreditIsTold) {
  auto server_config = testing::test_config(true, 2);
  server_config.limits.request_bytes = 256 * 1024;
  begin(testing::test_config(false, 1), server_config);
  std::vector<std::unique_ptr<TestCall>> calls;
  for (int i = 0; i < 100; ++i) {
    calls.push_back(std::make_unique<TestCall>());
    pair->call(*calls.back(), "hold", std::string(4'000, 'x'), {}, std::chrono::hours(1));
  }
  pair->run_for(1s);
  ASSERT_FALSE(client.blocked.empty());
  for (const event::CreditBlocked& one : client.blocked) EXPECT_LE(one.limit, 256u * 1024);
  EXPECT_LT(held.size(), calls.size());
  EXPECT_TRUE(server.blocked.empty());
  pair->client().close(pair->now);
  pair->run_for(1s);
  for (IncomingTransfer* request : held) pair->server().reply(*request, {}, {}, pair->now);
}

TEST_F(Events, ALargeMessageThatWaitsForThePeersMemoryIsTold) {
  auto server_config = testing::test_config(true, 2);
  server_config.limits.large_request_bytes = server_config.limits.large_bytes_per_peer = 1 << 20;
  begin(testing::test_config(false, 1), server_config);
  pair->serve("keep", [this](Engine&, IncomingTransfer& request, Instant) {
    detail::pin(request.landing());  // its memory stays taken
    held.push_back(&request);
  });
  const std::string body(800'000, 'x');
  TestCall calls[2];
  for (TestCall& call : calls) pair->call_large(call, "keep", body, {}, std::chrono::hours(1));
  pair->run_for(1s);
  ASSERT_EQ(held.size(), 1u) << "there is room for one";
  ASSERT_FALSE(client.awaited.empty());
  ASSERT_FALSE(client.moved.empty());
  EXPECT_EQ(client.awaited[0].transfer, client.moved.back().transfer) << "the second one";
  EXPECT_GT(client.awaited[0].retry_hint, 500us) << "half a megabyte is missing";
  EXPECT_LT(client.awaited[0].retry_hint, 600us);
  // The server says the same of itself.
  ASSERT_FALSE(server.granted.empty());
  EXPECT_GE(server.granted[0].bytes, body.size());
  ASSERT_EQ(server.exhausted.size(), 1u);
  EXPECT_EQ(server.exhausted[0].transfer, client.awaited[0].transfer);
  pair->client().close(pair->now);
  pair->run_for(1s);
  buffer::Landing* const kept = held[0]->landing();
  pair->server().reply(*held[0], {}, {}, pair->now);
  detail::unpin(kept);
}

TEST_F(Events, MemoryThatIsTakenBackIsToldByBothAndSoIsWhatIsWrittenIntoItAllTheSame) {
  begin();
  TestCall call;
  pair->serve("take", [](Engine& engine, IncomingTransfer& request, Instant at) { engine.reply(request, {}, {}, at); });
  pair->call_large(call, "take", std::string(8 << 20, 'x'), {}, std::chrono::hours(1));
  const auto has_begun = [&] {
    return !server.granted.empty() && pair->server().events().counters.payload_bytes_received > (1u << 20);
  };
  ASSERT_TRUE(pair->run_until(has_begun));
  const std::uint64_t region = server.granted[0].region;
  EXPECT_EQ(testing::EngineAccess::revoke_regions(pair->server(), pair->now, [](const auto&) { return true; }), 1u);
  ASSERT_EQ(server.revoked.size(), 1u);
  EXPECT_EQ(server.revoked[0].region, region);
  ASSERT_TRUE(ends(call));
  EXPECT_FALSE(call.failed) << call.reply;
  ASSERT_EQ(client.regions_lost.size(), 1u);
  EXPECT_EQ(client.regions_lost[0].region, region);
  EXPECT_EQ(client.regions_lost[0].transfer, server.revoked[0].transfer);
  ASSERT_FALSE(server.refused.empty()) << "what was on its way";
  for (const event::WriteRefused& one : server.refused) {
    EXPECT_EQ(one.region, region);
    EXPECT_GT(one.bytes, 0u);
  }
}

// ---- peers ----

TEST_F(Events, APeerIsHealthyFromTheFirstPathUntilItCloses) {
  begin();
  TestCall call;
  hold(call);
  pair->run_for(1ms);
  EXPECT_THAT(client.healths(), ElementsAre(PeerHealth::connecting, PeerHealth::healthy));
  pair->server().close(pair->now);
  ASSERT_TRUE(ends(call));
  EXPECT_THAT(client.healths(), ElementsAre(PeerHealth::connecting, PeerHealth::healthy, PeerHealth::closed));
  EXPECT_EQ(client.health[2].path, client.health[1].path);
  for (const std::string& name : client.peers) EXPECT_EQ(name, pair->addresses[1].to_string());
  EXPECT_TRUE(server.health.empty()) << "the caller watches whom it calls";
}

TEST_F(Events, AnIdlePeerIsClosedAndConnectedAgain) {
  begin();
  echo();
  pair->run_for(std::chrono::hours(1));
  EXPECT_THAT(client.healths(), ElementsAre(PeerHealth::connecting, PeerHealth::healthy, PeerHealth::closed));
  echo();
  EXPECT_EQ(client.healths().back(), PeerHealth::healthy);
  pair->client().close(pair->now);
  EXPECT_EQ(client.healths().back(), PeerHealth::closed);
}

TEST_F(Events, AProbedPeerThatAnswersIsHealthyAgain) {
  begin();
  TestCall call;
  hold(call);
  const Duration silence = pair->configs[0].timeouts.silence;
  pair->run_for(2 * silence);
  // A handler that takes long is probed again and again; each answer ends the doubt.
  const std::vector<PeerHealth> all = client.healths();
  ASSERT_GE(all.size(), 6u);
  EXPECT_EQ(all.size() % 2, 0u);
  for (std::size_t i = 2; i < all.size(); i += 2) {
    EXPECT_EQ(all[i], PeerHealth::probing);
    EXPECT_EQ(all[i + 1], PeerHealth::healthy);
  }
  pair->server().reply(*held[0], {}, {}, pair->now);
  ASSERT_TRUE(ends(call));
}

TEST_F(Events, APeerThatFallsSilentIsProbedOnceToldAndFails) {
  begin();
  TestCall call;
  hold(call);
  pair->loss = 1;
  ASSERT_TRUE(ends(call));
  EXPECT_THAT(client.healths(),
              ElementsAre(PeerHealth::connecting, PeerHealth::healthy, PeerHealth::probing, PeerHealth::failed));
  EXPECT_EQ(client.failed.at(0).code, Code::peer_failed);
}

TEST_F(Events, APeerThatCameBackIsToldAsRestarted) {
  begin();
  TestCall call;
  hold(call);
  const std::uint32_t path = client.health.back().path;
  server = {};  // the process before told what it told
  pair->start(1);
  pair->serve_echo();
  ASSERT_TRUE(ends(call));
  ASSERT_EQ(client.restarted.size(), 1u);
  EXPECT_EQ(client.restarted[0].path, path);
  EXPECT_EQ(client.restarted[0].peer, pair->addresses[1].to_string());
  EXPECT_EQ(client.failed.at(0).code, Code::reset);
  echo();
  EXPECT_EQ(client.healths().back(), PeerHealth::healthy);
  EXPECT_NE(client.health.back().path, path);
}

TEST_F(Events, AHandshakeThatFailsSaysWhy) {
  begin(testing::test_config(false, 1, "another secret, not the same"));
  TestCall call;
  pair->call(call, "echo", "x");
  ASSERT_TRUE(ends(call));
  pair->run_for(100ms);
  ASSERT_FALSE(client.handshakes.empty());
  EXPECT_EQ(client.handshakes[0].code, Code::unauthenticated);
  EXPECT_EQ(client.handshakes[0].peer, pair->addresses[1].to_string());
  EXPECT_NE(client.handshakes[0].sentence.find("secret"), std::string_view::npos);
  EXPECT_EQ(client.healths().back(), PeerHealth::failed);
}

// ---- bad packets ----

TEST_F(Events, ARejectedPacketSaysWhy) {
  begin();
  std::vector<std::byte> packet;
  pair->on_wire = [&](int from, MutableByteSpan bytes) {
    if (from == 0 && (bytes[0] & std::byte{3}) == std::byte{0}) packet.assign(bytes.begin(), bytes.end());
  };
  for (int i = 0; i < 5; ++i) echo();
  pair->on_wire = nullptr;
  const auto offer = [&](std::vector<std::byte> bytes) {
    const std::size_t before = server.rejected.size();
    const std::size_t size = bytes.size();
    pair->server().on_datagram(bytes, pair->addresses[0], 0, nullptr, pair->now);
    ASSERT_EQ(server.rejected.size(), before + 1);
    EXPECT_EQ(server.rejected.back().bytes, size);
  };
  offer(packet);
  EXPECT_EQ(server.rejected.back().reason, event::Rejection::replayed);
  offer({packet.begin(), packet.begin() + 10});
  EXPECT_EQ(server.rejected.back().reason, event::Rejection::truncated);
  auto changed = packet;
  changed[5] ^= std::byte{1};
  offer(changed);
  EXPECT_EQ(server.rejected.back().reason, event::Rejection::unknown_path);
  changed = packet;
  changed[1] ^= std::byte{0x40};  // another packet number
  offer(changed);
  EXPECT_EQ(server.rejected.back().reason, event::Rejection::forged);
}

}  // namespace
}  // namespace weir::engine
