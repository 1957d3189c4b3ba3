// Many who send large messages to one receiver: what they have in flight together is what its NIC carries in a round
// trip, and a train, so that no queue on the way is longer.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "engine/core.h"
#include "engine/engine_access.h"
#include "engine/engines_testing.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::Engines;
using testing::kStart;
using testing::TestCall;
using namespace std::chrono_literals;

constexpr std::uint64_t kRate = 3'125'000'000;  // 25 Gbit/s
constexpr Duration kLatency = 10us;             // one way
constexpr std::size_t kSenders = 100;

// A receiver, which is engine 0, and those who send to it; all have called once.
class Incast {
 public:
  explicit Incast(std::uint64_t nic_rate) : nic_rate_(nic_rate) {
    engines.latency = kLatency;
    engines.keeps_departures = false;
    engines.add(true, nic_rate == 0 ? nullptr : std::make_shared<schedule::NicShaper>(nic_rate, kStart));
    engines.set_rate_to(0, kRate);
    std::vector<TestCall> first(kSenders);
    for (std::size_t i = 0; i < kSenders; ++i) engines.add(false, nullptr);
    for (std::size_t i = 0; i < kSenders; ++i) engines.call(1 + i, 0, first[i], 4'000);
    EXPECT_TRUE(engines.run_until([&] { return are_done(first); }));
    engines.run_for(200ms);
    engines.longest_queue = 0;
  }

  static bool are_done(const std::vector<TestCall>& calls) {
    return std::ranges::all_of(calls, [](const TestCall& call) { return call.completions == 1; });
  }

  // Everybody sends one message of so many bytes. How long that took, by what the link takes at least.
  double send(std::size_t bytes) {
    std::vector<TestCall> calls(kSenders);
    const Instant start = engines.now;
    for (std::size_t i = 0; i < kSenders; ++i) engines.call(1 + i, 0, calls[i], bytes);
    EXPECT_TRUE(engines.run_until([&] { return are_done(calls); }, 10'000'000));
    for (const TestCall& call : calls) EXPECT_FALSE(call.failed) << call.reply;
    const double ideal = static_cast<double>(kSenders * bytes) / kRate;
    const double slowness = std::chrono::duration<double>(engines.now - start).count() / ideal;
    std::printf("%zu bytes each: longest queue so far %llu bytes, %.2f times the least time\n", bytes,
                static_cast<unsigned long long>(engines.longest_queue), slowness);
    return slowness;
  }

  std::uint64_t lost() {
    std::uint64_t lost = 0;
    for (std::size_t i = 0; i <= kSenders; ++i) lost += engines.engine(i).events().counters.packets_lost;
    return lost;
  }

  Engines engines;

 private:
  const std::uint64_t nic_rate_;
};

TEST(GrantPace, AHundredSendersFillNoQueue) {
  Incast incast(kRate);
  const double slowness = incast.send(512 * 1024);
  const std::uint64_t bound = token::GrantPace(kRate).room(2 * kLatency);
  // Openings come on top: one packet of each sender.
  EXPECT_LE(incast.engines.longest_queue, bound + kSenders * 250);
  EXPECT_LE(slowness, 1.25);
  EXPECT_EQ(incast.lost(), 0u);
  Core& core = EngineAccess::core(incast.engines.engine(0));
  EXPECT_EQ(core.grant_pace.writes(), 0u);
  // Once more, now that all of them are known to send large messages.
  incast.engines.longest_queue = 0;
  EXPECT_LE(incast.send(512 * 1024), 1.25);
  EXPECT_LE(incast.engines.longest_queue, bound + kSenders * 250);
}

// So short that what counts is how soon one follows another.
TEST(GrantPace, ShortMessagesFollowEachOtherWithoutAGap) {
  Incast incast(kRate);
  EXPECT_LE(incast.send(64 * 1024), 1.25);
  EXPECT_LE(incast.send(64 * 1024), 1.25);
  EXPECT_LE(incast.engines.longest_queue, token::GrantPace(kRate).room(2 * kLatency) + kSenders * 270);
}

TEST(GrantPace, WithoutARateTheyFillIt) {
  Incast incast(0);
  static_cast<void>(incast.send(512 * 1024));
  EXPECT_GT(incast.engines.longest_queue, 1u << 20);
}

// Those that were told to write and do not are not waited for, and a lone sender has the whole link.
TEST(GrantPace, AStalledSenderHoldsNobodyUp) {
  Incast incast(kRate);
  Engines& engines = incast.engines;
  std::vector<TestCall> dead(8), live(8);
  for (std::size_t i = 0; i < 8; ++i) engines.call(1 + i, 0, dead[i], 8u << 20);
  Core& core = EngineAccess::core(engines.engine(0));
  ASSERT_TRUE(engines.run_until([&] { return core.grant_pace.writes() == core.grant_pace.most_writes(); }));
  for (std::size_t i = 0; i < 8; ++i) engines.cut_off(1 + i);
  const Instant start = engines.now;
  for (std::size_t i = 0; i < 8; ++i) engines.call(20 + i, 0, live[i], 512 * 1024);
  ASSERT_TRUE(engines.run_until([&] { return Incast::are_done(live); }));
  EXPECT_LE(engines.now - start, 40ms);
  for (const TestCall& call : live) EXPECT_FALSE(call.failed) << call.reply;
  ASSERT_TRUE(engines.run_until([&] { return Incast::are_done(dead); }));
}

TEST(GrantPace, ASenderThatTakesNothingHasOneGrantWaiting) {
  Incast incast(kRate);
  Engines& engines = incast.engines;
  std::vector<TestCall> dead(1);
  engines.call(1, 0, dead[0], 8u << 20);
  Core& core = EngineAccess::core(engines.engine(0));
  ASSERT_TRUE(engines.run_until([&] { return core.grant_pace.writes() == 1; }));
  engines.cut_off(1);
  std::uint64_t waiting = 0;
  const auto count = [&] {
    std::uint64_t all = 0;
    core.paths.for_each([&](const Path& path) { all += path.again.end(); });
    return all;
  };
  waiting = count();
  for (int i = 0; i < 100; ++i) core.tell_shares();
  EXPECT_LE(count(), waiting + 1);
  ASSERT_TRUE(engines.run_until([&] { return Incast::are_done(dead); }));
}

TEST(GrantPace, TheMostUrgentIsWrittenFirst) {
  Incast incast(kRate);
  Engines& engines = incast.engines;
  std::vector<TestCall> bulk(50), urgent(1);
  for (std::size_t i = 0; i < 50; ++i) engines.call(1 + i, 0, bulk[i], 512 * 1024, 7);
  engines.run_for(1ms);
  engines.call(90, 0, urgent[0], 512 * 1024, 0);
  ASSERT_TRUE(engines.run_until([&] { return Incast::are_done(urgent); }));
  const auto done = std::ranges::count_if(bulk, [](const TestCall& call) { return call.completions == 1; });
  EXPECT_LE(done, 20) << "of 50 that were there before";
  ASSERT_TRUE(engines.run_until([&] { return Incast::are_done(bulk); }));
}

}  // namespace
}  // namespace weir::engine
