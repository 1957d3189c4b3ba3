// The search for the MTU (docs/protocol.md, rules M-1 to M-5).
#include "recovery/mtu_search.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace weir::recovery {
namespace {

using namespace std::chrono_literals;

struct Outcome {
  std::uint32_t mtu;
  int probes;
};

// Runs the search over a path that passes up to `limit` until it rests.
Outcome run(MtuSearch& search, std::uint32_t limit, Instant now, double loss = 0, std::uint64_t seed = 1) {
  Random random{seed};
  int probes = 0;
  while (const auto size = search.next_probe(now)) {
    search.on_probe_sent(*size, now);
    EXPECT_FALSE(search.next_probe(now).has_value()) << "one probe at a time";
    EXPECT_TRUE(search.deadline().is_never());
    if (*size <= limit && !random.chance(loss)) {
      search.on_probe_acked(*size, now);
    } else {
      search.on_probe_lost(*size, now);
    }
    if (++probes > 200) break;
  }
  return {search.current(), probes};
}

// Large packets are lost in rounds, and small ones arrive.
void suspect(MtuSearch& search, std::uint64_t& number) {
  search.on_packet_acked(number++, 8'972, Instant{});
  for (std::uint32_t i = 0; i < MtuSearch::kBlackHoleLosses; ++i) {
    EXPECT_FALSE(search.verifying());
    search.on_packet_lost(number++, 8'972, Instant{});
    search.on_packet_acked(number++, 100, Instant{});
  }
}

TEST(MtuSearch, StartsAtTheBase) { EXPECT_EQ(MtuSearch{}.current(), 1'200U); }

TEST(MtuSearch, FindsTheCommonSizesInFewProbes) {
  MtuSearch ethernet, jumbo, loopback;
  const Outcome small = run(ethernet, 1'472, Instant{});
  EXPECT_EQ(small.mtu, 1'472U);
  EXPECT_LE(small.probes, 7);
  EXPECT_EQ(run(jumbo, 8'972, Instant{}).mtu, 8'972U);
  const Outcome large = run(loopback, 65'507, Instant{});
  EXPECT_EQ(large.mtu, 65'507U);
  EXPECT_EQ(large.probes, 3);
  EXPECT_TRUE(loopback.deadline().is_never());
}

TEST(MtuSearch, AllowsForTheLongerHeaderOfVersionSix) {
  MtuSearch search{{.v6 = true}};
  EXPECT_EQ(search.next_probe(Instant{}), 1'452U);
}

TEST(MtuSearch, ComesWithinItsGranularityOfAnyLimit) {
  Random random{11};
  for (int i = 0; i < 300; ++i) {
    const auto limit = static_cast<std::uint32_t>(1'200 + random.below(64'307));
    MtuSearch search;
    const Outcome outcome = run(search, limit, Instant{});
    EXPECT_LE(outcome.mtu, limit);
    EXPECT_GT(outcome.mtu + MtuSearch::kGranularity, limit);
    EXPECT_LE(outcome.probes, 60);
  }
}

TEST(MtuSearch, NeverExceedsTheLimitOfALossyPath) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    MtuSearch search;
    EXPECT_LE(run(search, 5'000, Instant{}, 0.3, seed).mtu, 5'000U);
  }
}

TEST(MtuSearch, KeepsToTheMaximumGiven) {
  MtuSearch search{{.maximum = 4'000}};
  EXPECT_EQ(run(search, 65'507, Instant{}).mtu, 4'000U);
  MtuSearch fixed{{.maximum = 1'200}};
  EXPECT_FALSE(fixed.next_probe(Instant{} + 1h).has_value());
}

TEST(MtuSearch, DoesNotRepeatASizeThatTheSystemRefused) {
  MtuSearch search;
  const auto first = search.next_probe(Instant{});
  search.on_probe_refused(*first, Instant{});
  const auto second = search.next_probe(Instant{});
  ASSERT_TRUE(second.has_value());
  EXPECT_LT(*second, *first);
}

TEST(MtuSearch, TriesAgainUpwardsAfterAWhile) {
  MtuSearch search;
  run(search, 1'472, Instant{});
  EXPECT_FALSE(search.searching());
  EXPECT_EQ(search.deadline(), Instant{} + 10min);
  EXPECT_FALSE(search.next_probe(Instant{} + 9min).has_value());
  EXPECT_EQ(run(search, 8'972, Instant{} + 10min).mtu, 8'972U);
}

TEST(MtuSearch, FallsBackToTheBaseWhenOnlySmallPacketsPass) {
  MtuSearch search;
  run(search, 8'972, Instant{});
  std::uint64_t number = 100;
  Instant now{};
  suspect(search, number);
  ASSERT_TRUE(search.verifying());
  // The present size is probed before it falls, with longer and longer pauses.
  for (std::uint32_t i = 1; i <= MtuSearch::kVerifications; ++i) {
    EXPECT_EQ(search.current(), 8'972U);
    const auto size = search.next_probe(now);
    ASSERT_EQ(size, 8'972U);
    search.on_probe_sent(*size, now);
    EXPECT_FALSE(search.next_probe(now + 1h).has_value()) << "one probe at a time";
    search.on_packet_acked(number++, 100, now);
    EXPECT_EQ(search.on_probe_lost(*size, now), i == MtuSearch::kVerifications);
    if (i == MtuSearch::kVerifications) break;
    const Instant next = search.deadline();
    EXPECT_EQ(next - now, MtuSearch::kFirstVerification * (1 << (i - 1)));
    now = next;
  }
  EXPECT_EQ(search.current(), 1'200U);
  EXPECT_FALSE(search.next_probe(now + 999ms).has_value());
  EXPECT_EQ(run(search, 1'472, now + 1s).mtu, 1'472U);
}

// What congestion does to a path with a window of two packets: all large packets of some rounds are lost, and small
// ones arrive in between. Then one passes.
TEST(MtuSearch, KeepsTheSizeWhenAProbeOfItPasses) {
  MtuSearch search;
  run(search, 8'972, Instant{});
  std::uint64_t number = 100;
  suspect(search, number);
  for (std::uint32_t i = 1; i < MtuSearch::kVerifications; ++i) {
    const auto size = search.next_probe(Instant{} + 1s);
    ASSERT_EQ(size, 8'972U);
    search.on_probe_sent(*size, Instant{} + 1s);
    EXPECT_FALSE(search.on_probe_lost(*size, Instant{}));
  }
  const auto size = search.next_probe(Instant{} + 1s);
  ASSERT_EQ(size, 8'972U);
  search.on_probe_sent(*size, Instant{} + 1s);
  EXPECT_FALSE(search.on_probe_acked(*size, Instant{} + 1s)) << "it has not grown";
  EXPECT_FALSE(search.verifying());
  EXPECT_EQ(search.current(), 8'972U);
  EXPECT_GT(run(search, 20'000, Instant{} + 2s).mtu, 8'972U) << "the search upwards goes on";
}

TEST(MtuSearch, KeepsTheSizeWhenAnyLargePacketPasses) {
  MtuSearch search;
  run(search, 8'972, Instant{});
  std::uint64_t number = 100;
  suspect(search, number);
  const auto size = search.next_probe(Instant{});
  search.on_probe_sent(*size, Instant{});
  search.on_packet_acked(number++, 8'972, Instant{});
  EXPECT_FALSE(search.verifying());
  EXPECT_FALSE(search.on_probe_lost(*size, Instant{}));
  EXPECT_EQ(search.current(), 8'972U);
}

TEST(MtuSearch, DoesNotTakeCongestionForABlackHole) {
  MtuSearch search;
  run(search, 8'972, Instant{});
  search.on_packet_acked(1'000, 8'972, Instant{});
  for (std::uint64_t number = 0; number < 1'000; ++number) {
    search.on_packet_lost(number, 8'972, Instant{});
  }
  for (std::uint64_t number = 1'001; number < 2'000; number += 2) {
    search.on_packet_lost(number, 8'972, Instant{});
    search.on_packet_acked(number + 1, 8'972, Instant{});
  }
  EXPECT_FALSE(search.verifying());
  EXPECT_EQ(search.current(), 8'972U);
}

TEST(MtuSearch, DoesNotTakeAnOverflowingSocketForABlackHole) {
  MtuSearch search;
  run(search, 8'972, Instant{});
  std::uint64_t number = 0;
  for (int burst = 0; burst < 100; ++burst) {
    // The end of a burst is lost; a probe that follows it, and then the rest once more, are not.
    for (int i = 0; i < 20; ++i) {
      search.on_packet_lost(number++, 8'972, Instant{});
    }
    search.on_packet_acked(number++, 100, Instant{});
    search.on_packet_acked(number++, 8'972, Instant{});
  }
  for (int i = 0; i < 100; ++i) {  // small packets are lost among the large ones
    search.on_packet_lost(number++, 8'972, Instant{});
    search.on_packet_lost(number++, 8'972, Instant{});
    search.on_packet_lost(number++, 1'000, Instant{});
    search.on_packet_acked(number++, 100, Instant{});
  }
  EXPECT_EQ(search.current(), 8'972U);
  EXPECT_FALSE(search.verifying());
}

TEST(MtuSearch, BelievesAProbeThatWasAcknowledgedLate) {
  MtuSearch search;
  const auto size = search.next_probe(Instant{});
  for (std::uint32_t i = 0; i < MtuSearch::kProbesPerSize; ++i) {
    search.on_probe_sent(*size, Instant{});
    search.on_probe_lost(*size, Instant{});
  }
  EXPECT_TRUE(search.on_probe_acked(*size, Instant{}));
  EXPECT_EQ(search.current(), *size);
  EXPECT_EQ(run(search, 65'507, Instant{}).mtu, 65'507U);
}

}  // namespace
}  // namespace weir::recovery
