// A burst of calls to many peers behind one slow link, which all paths share.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "engine/engines_testing.h"

namespace weir::engine {
namespace {

using namespace std::chrono_literals;
using testing::Engines;
using testing::TestCall;

constexpr std::size_t kPeers = 40;
constexpr std::size_t kMessage = 4'096;
constexpr std::size_t kGone = 5;

// The engine 0 calls the others, which are in one network behind its link.
class Burst : public ::testing::Test {
 protected:
  void connect(std::uint64_t bytes_per_s, std::uint64_t queue_bytes) {
    engines.in_one_network = true;
    engines.keeps_departures = false;
    engines.latency = 100us;
    engines.add(false, nullptr);
    for (std::size_t i = 0; i < kPeers; ++i) engines.add(true, nullptr);
    engines.set_rate_from(0, bytes_per_s, queue_bytes);
    rate = bytes_per_s;
    ASSERT_EQ(answered_within(1, 60s), kPeers);  // the connections, and the search for the link
    ASSERT_EQ(answered_within(20, 60s), 20 * kPeers);
  }

  // So many calls to each of the peers, at once. How many were answered by then.
  std::size_t answered_within(std::size_t each, Duration most) {
    const std::size_t first = calls.size();
    for (std::size_t i = 0; i < each * kPeers; ++i) {
      calls.push_back(std::make_unique<TestCall>());
      engines.call(0, 1 + i % kPeers, *calls.back(), kMessage);
    }
    const Instant end = engines.now + most;
    std::size_t next = first;  // everything before has been answered
    (void)engines.run_until(
        [&] {
          while (next < calls.size() && calls[next]->completions != 0) ++next;
          return next == calls.size() || engines.now >= end;
        },
        100'000'000);
    return static_cast<std::size_t>(
        std::ranges::count_if(calls.begin() + static_cast<std::ptrdiff_t>(first), calls.end(),
                              [](const auto& call) { return call->completions != 0 && !call->failed; }));
  }

  // So many calls to each of the peers, and what they cost.
  void measure(std::size_t each) {
    const Counters before = sum();
    const std::uint64_t drops_before = engines.drops;
    const Instant begin = engines.now;
    ASSERT_EQ(answered_within(each, 60s), each * kPeers);
    const Counters after = sum();
    const auto count = static_cast<double>(each * kPeers);
    dropped = static_cast<double>(engines.drops - drops_before) /
              static_cast<double>(after.packets_sent - before.packets_sent);
    control_only = static_cast<double>(after.packets_control_only - before.packets_control_only) / count;
    over_bound =
        static_cast<double>((engines.now - begin).count()) * static_cast<double>(rate) / 1e9 / (count * kMessage);
  }

  Counters sum() {
    Counters sum;
    for (std::size_t i = 0; i <= kPeers; ++i) {
      const Counters& each = engines.engine(i).events().counters;
      sum.packets_sent += each.packets_sent;
      sum.packets_control_only += each.packets_control_only;
    }
    return sum;
  }

  std::vector<std::unique_ptr<TestCall>> calls;  // the engines go first
  Engines engines;
  std::uint64_t rate = 0;
  double dropped = 0;       // of all packets
  double control_only = 0;  // packets for each call, of both sides
  double over_bound = 0;    // of the time that the messages take on the link
};

TEST_F(Burst, DropsNextToNothingAndAcknowledgesWholeMessages) {
  connect(250'000'000 / 8, 64 * 1024);
  measure(50);
  EXPECT_LT(dropped, 0.005);
  EXPECT_LT(control_only, 0.7) << "a message that is sent in two turns costs its receiver another acknowledgement";
  EXPECT_LT(over_bound, 1.15);
}

TEST_F(Burst, DropsNextToNothingInAQueueOfFourPackets) {
  connect(25'000'000 / 8, 6'400);
  measure(50);
  EXPECT_LT(dropped, 0.005);
  EXPECT_LT(control_only, 1.5);
  EXPECT_LT(over_bound, 1.15);
}

// Their packets fill the small window of the link, and only their own probe timeouts, which grow, would take them out.
TEST_F(Burst, AFewPeersThatAreGoneHoldUpNobody) {
  connect(25'000'000 / 8, 6'400);
  for (std::size_t i = 1; i <= kGone; ++i) engines.cut_off(i);
  EXPECT_EQ(answered_within(1, 2s), kPeers - kGone);
  EXPECT_EQ(answered_within(1, 500ms), kPeers - kGone) << "the least is 65 ms";
  const auto has_ended = [](const auto& call) { return call->completions != 0; };
  EXPECT_TRUE(engines.run_until([&] { return std::ranges::all_of(calls, has_ended); })) << "by their deadlines";
}

}  // namespace
}  // namespace weir::engine
