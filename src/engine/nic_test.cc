// Engines that share a NIC send no faster together than it drains, most urgent paths first, and nobody is left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/engine_access.h"
#include "engine/engines_testing.h"

namespace weir::engine {
namespace {

using testing::Departure;
using testing::EngineAccess;
using testing::Engines;
using testing::kStart;
using testing::TestCall;
using namespace std::chrono_literals;

constexpr std::uint64_t kRate = 125'000'000;  // 1 Gbit/s
std::shared_ptr<schedule::NicShaper> make_nic(std::uint64_t rate) {
  return std::make_shared<schedule::NicShaper>(rate, kStart);
}

bool are_done(const std::vector<TestCall>& calls) {
  return std::ranges::all_of(calls, [](const TestCall& call) { return call.completions == 1; });
}

TEST(Nic, EnginesThatShareOneSendNoFasterThanItDrains) {
  Engines engines;
  const auto nic = make_nic(kRate);
  Engine& one = engines.add(false, nic);
  Engine& other = engines.add(false, nic);
  for (int i = 0; i < 4; ++i) engines.add(true, nullptr);
  std::vector<TestCall> calls(4);
  for (std::size_t i = 0; i < 4; ++i) engines.call(i % 2, 2 + i, calls[i], 4u << 20);
  ASSERT_TRUE(engines.run_until(
      [&] { return std::ranges::any_of(calls, [](const TestCall& call) { return call.completions == 1; }); }));
  std::uint64_t sent[2] = {};
  std::size_t datagrams = 0;
  for (const Departure& each : engines.departures) {
    if (each.engine < 2) sent[each.engine] += each.bytes;
    if (each.engine < 2) datagrams = std::max(datagrams, each.datagrams);
  }
  EXPECT_NEAR(static_cast<double>(sent[0]) / static_cast<double>(sent[0] + sent[1]), 0.5, 0.05);
  const double seconds = std::chrono::duration<double>(engines.now - kStart).count();
  EXPECT_GE(static_cast<double>(sent[0] + sent[1]), 0.95 * kRate * seconds) << "the NIC is used";
  ASSERT_TRUE(engines.run_until([&] { return are_done(calls); }));
  for (const TestCall& call : calls) EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_LE(engines.largest_burst({0, 1}, kRate), static_cast<std::int64_t>(nic->depth()) + 2);
  EXPECT_GE(datagrams, 8u) << "in trains";
  for (Engine* engine : {&one, &other}) {
    EXPECT_GT(engine->events().counters.nic_waits, 0u);
    EXPECT_GT(engine->events().counters.nic_wait_ns, 0.8 * 1e9 * seconds);
    EXPECT_EQ(engine->events().counters.packets_lost, 0u);
  }
}

TEST(Nic, OneWithoutARateIsNotWaitedFor) {
  Engines engines;
  Engine& one = engines.add(false, nullptr);
  engines.add(true, nullptr);
  std::vector<TestCall> calls(1);
  engines.call(0, 1, calls[0], 4u << 20);
  ASSERT_TRUE(engines.run_until([&] { return are_done(calls); }));
  EXPECT_GT(engines.largest_burst({0}, kRate), 100'000);
  EXPECT_EQ(one.events().counters.nic_waits, 0u);
  EXPECT_EQ(one.events().counters.nic_wait_ns, 0u);
}

// One packet is more than the bucket holds.
TEST(Nic, ASlowOneSendsPacketByPacket) {
  constexpr std::uint64_t kSlow = 1'250'000;  // 10 Mbit/s
  Engines engines;
  engines.add(false, make_nic(kSlow));
  for (int i = 0; i < 3; ++i) engines.add(true, nullptr);
  std::vector<TestCall> calls(30);
  for (std::size_t i = 0; i < calls.size(); ++i) engines.call(0, 1 + i % 3, calls[i], 4'000);
  ASSERT_TRUE(engines.run_until([&] { return are_done(calls); }));
  for (const TestCall& call : calls) EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_LE(engines.largest_burst({0}, kSlow), 1'472 + 66 + 2);
  const double ideal = 30 * 4'200.0 / kSlow;
  EXPECT_LE(std::chrono::duration<double>(engines.now - kStart).count(), 1.3 * ideal);
}

TEST(Nic, TheMostUrgentPathGoesFirst) {
  constexpr std::uint64_t kSlow = 12'500'000;  // 100 Mbit/s
  Engines engines;
  const auto nic = make_nic(kSlow);
  engines.add(false, nic);
  for (int i = 0; i < 9; ++i) engines.add(true, nullptr);
  for (std::size_t i = 1; i <= 9; ++i) {  // the MTU is found, so that paths differ in nothing
    std::vector<TestCall> first(1);
    engines.call(0, i, first[0], 4'000);
    ASSERT_TRUE(engines.run_until([&] { return are_done(first); }));
  }
  engines.run_for(100ms);
  std::vector<TestCall> bulk(8);
  for (std::size_t i = 0; i < 8; ++i) engines.call(0, 1 + i, bulk[i], 1u << 20, 7);
  engines.run_for(50ms);
  std::vector<std::uint64_t> before;
  for (int i = 0; i < 20; ++i) {
    engines.run_for(3ms);
    engines.departures.clear();
    std::vector<TestCall> urgent(1);
    engines.call(0, 9, urgent[0], 100, 0);
    ASSERT_TRUE(engines.run_until([&] { return are_done(urgent); }));
    std::uint64_t bytes = 0;
    for (const Departure& each : engines.departures) {
      if (each.to == engines.addresses[9]) break;
      if (each.engine == 0) bytes += each.bytes;
    }
    before.push_back(bytes);
  }
  EXPECT_LE(std::ranges::max(before), 2 * (1'472 + 66)) << "what was sent before each urgent call, at most";
  ASSERT_TRUE(engines.run_until([&] { return are_done(bulk); }));
}

// Eight paths of one level: after any time they have sent alike.
class NicTurnsOfPaths : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Networks, NicTurnsOfPaths, ::testing::Values(false, true),
                         [](const auto& each) { return each.param ? "OneNetwork" : "ManyNetworks"; });

TEST_P(NicTurnsOfPaths, AreAlike) {
  Engines engines;
  engines.in_one_network = GetParam();
  engines.add(false, make_nic(kRate / 10));
  for (int i = 0; i < 8; ++i) engines.add(true, nullptr);
  std::vector<TestCall> calls(8);
  for (std::size_t i = 0; i < 8; ++i) engines.call(0, 1 + i, calls[i], 1u << 20);
  engines.run_for(300ms);
  std::vector<std::uint64_t> sent(9);
  for (const Departure& each : engines.departures) {
    const auto to = std::ranges::find(engines.addresses, each.to) - engines.addresses.begin();
    sent[static_cast<std::size_t>(to)] += each.engine == 0 ? each.bytes : 0;
  }
  const auto [least, most] = std::minmax_element(sent.begin() + 1, sent.end());
  EXPECT_GT(*least, 300'000u);
  EXPECT_LE(*most - *least, 40'000u);
  ASSERT_TRUE(engines.run_until([&] { return are_done(calls); }));
}

TEST(Nic, AcknowledgementsDoNotWait) {
  Engines engines;
  const auto nic = make_nic(kRate / 100);
  engines.add(false, nullptr);
  engines.add(true, nic);
  std::vector<TestCall> first(1);
  engines.call(0, 1, first[0], 100);
  ASSERT_TRUE(engines.run_until([&] { return are_done(first); }));
  engines.run_for(100ms);
  schedule::NicSender busy(nic);
  busy.charge(1u << 20, engines.now);  // somebody else keeps the NIC busy
  const std::uint64_t owed = nic->owed(engines.now);
  ASSERT_GT(owed, 10'000u);
  engines.departures.clear();
  TestCall call;
  engines.call(0, 1, call, 100);
  const Instant sent_at = engines.now;
  ASSERT_TRUE(engines.run_until(
      [&] { return std::ranges::any_of(engines.departures, [](const Departure& each) { return each.engine == 1; }); }));
  EXPECT_LE(engines.now - sent_at, 3ms) << "the acknowledgement";
  EXPECT_EQ(call.completions, 0) << "the reply waits";
  EXPECT_GT(nic->owed(sent_at), owed) << "it is counted all the same";
  ASSERT_TRUE(engines.run_until([&] { return call.completions == 1; }));
  EXPECT_GE(engines.now - sent_at, 9ms);
  EXPECT_FALSE(call.failed);
}

TEST(Nic, PathsMayEndWhileTheyWait) {
  Engines engines;
  const auto nic = make_nic(kRate / 100);
  Engine& client = engines.add(false, nic);
  for (int i = 0; i < 8; ++i) engines.add(true, nullptr);
  std::vector<TestCall> calls(8);
  for (std::size_t i = 0; i < 8; ++i) engines.call(0, 1 + i, calls[i], 1u << 20);
  engines.run_for(50ms);
  Core& core = EngineAccess::core(client);
  ASSERT_GT(core.nic->size(), 4u);
  client.close(engines.now);
  engines.run_for(10ms);
  EXPECT_TRUE(are_done(calls));
  EXPECT_EQ(core.nic->size(), 0u);
  EXPECT_EQ(client.census().timers, 0u);
  schedule::NicSender other(nic);
  EXPECT_TRUE(other.claim(1'000, engines.now + 100ms)) << "nothing is claimed any more, and nobody in line";
  other.settle(0, engines.now);
}

// A path asks for room for its next packet, finds none, and asks for a smaller one.
TEST(NicTurns, RememberARefusalAlthoughSomethingSmallerFits) {
  constexpr std::uint32_t kPath = 7;
  NicTurns turns(std::make_shared<schedule::NicShaper>(100'000, kStart), 4, 0);  // a bucket of less than a packet
  const Counters counters;
  turns.begin(kPath, counters, true);
  ASSERT_TRUE(turns.has_room(200, counters, kStart));
  EXPECT_FALSE(turns.has_room(1'400, counters, kStart));
  EXPECT_TRUE(turns.has_room(100, counters, kStart));
  EXPECT_TRUE(turns.is_held());
  turns.end(counters, kStart);
  turns.finish();
}

}  // namespace
}  // namespace weir::engine
