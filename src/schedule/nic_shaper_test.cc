#include "schedule/nic_shaper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"

namespace weir::schedule {
namespace {

using namespace std::chrono_literals;

constexpr Instant kStart{1'000'000'000};
constexpr std::uint64_t kRate = 125'000'000;  // 1 Gbit/s
constexpr std::uint64_t kDepth = kRate / NicShaper::kTrainsPerSecond;

struct Sending {
  Instant at;
  std::uint64_t bytes;
};

// The largest excess over the rate of any interval that begins and ends with one of these.
std::int64_t largest_burst(const std::vector<Sending>& sent, std::uint64_t rate) {
  // The excess at each sending over the least one before any earlier sending.
  std::int64_t total = 0, least = 0, largest = 0;
  for (const Sending& each : sent) {
    const auto drained =
        static_cast<std::int64_t>(static_cast<unsigned __int128>((each.at - kStart).count()) * rate / 1'000'000'000u);
    least = std::min(least, total - drained);
    total += static_cast<std::int64_t>(each.bytes);
    largest = std::max(largest, total - drained - least);
  }
  return largest;
}

std::shared_ptr<NicShaper> make_nic(std::uint64_t rate = kRate) { return std::make_shared<NicShaper>(rate, kStart); }

TEST(NicShaper, GrantsWhatFitsIntoTheBucketAndThenTheRate) {
  NicSender sender(make_nic());
  ASSERT_TRUE(sender.claim(kDepth, kStart));
  sender.settle(kDepth, kStart);
  EXPECT_EQ(sender.nic().owed(kStart), kDepth);
  EXPECT_FALSE(sender.claim(kDepth, kStart));
  EXPECT_EQ(sender.retry_at(), kStart + Duration{(kDepth * 1'000'000'000 + kRate - 1) / kRate});
  EXPECT_FALSE(sender.claim(kDepth, sender.retry_at() - 1ns));
  EXPECT_TRUE(sender.claim(kDepth, sender.retry_at()));
  sender.settle(0, sender.retry_at());
}

TEST(NicShaper, CountsWhatWasClaimedUntilItIsSettledAndThenWhatWasSent) {
  const auto nic = make_nic();
  NicSender one(nic), other(nic);
  ASSERT_TRUE(one.claim(kDepth, kStart));
  EXPECT_FALSE(other.claim(kDepth, kStart));
  one.settle(100, kStart);
  EXPECT_EQ(nic->owed(kStart), 100u);
  EXPECT_TRUE(other.claim(kDepth - 100, kStart)) << "it is the first in line";
  other.settle(kDepth - 100, kStart);
  EXPECT_EQ(nic->owed(kStart), kDepth);
}

TEST(NicShaper, GrantsAPacketThatIsLargerThanTheBucketWhenItIsEmpty) {
  NicSender sender(make_nic(125'000));  // 1 Mbit/s: the bucket holds 30 bytes
  EXPECT_EQ(sender.nic().train(1'500, 64'000), 1'500u);
  ASSERT_TRUE(sender.claim(1'500, kStart));
  sender.settle(1'500, kStart);
  EXPECT_FALSE(sender.claim(1'500, kStart + 11'999us));
  EXPECT_TRUE(sender.claim(1'500, kStart + 12ms));
}

TEST(NicShaper, SavesNothingUpWhileIdle) {
  NicSender sender(make_nic());
  const Instant later = kStart + 1h;
  std::uint64_t sent = 0;
  while (sender.claim(1'000, later)) {
    sender.settle(1'000, later);
    sent += 1'000;
  }
  EXPECT_EQ(sent, kDepth / 1'000 * 1'000);
}

TEST(NicShaper, WhatIsSentWithoutAClaimCountsButDelaysClaimsBySoLongAtMost) {
  NicSender sender(make_nic());
  sender.charge(5'000, kStart);
  EXPECT_EQ(sender.nic().owed(kStart), 5'000u);
  for (int i = 0; i < 1'000; ++i) sender.charge(60'000, kStart);
  EXPECT_EQ(sender.nic().owed(kStart), kRate / 100);
  EXPECT_FALSE(sender.claim(1'000, kStart));
  EXPECT_LE(sender.retry_at(), kStart + NicShaper::kMostOwed);
}

TEST(NicShaper, WhoWaitsLongestGoesFirstAndALateOneLosesOnlyItsTurn) {
  const auto nic = make_nic();
  NicSender quick(nic), slow(nic);
  const std::uint64_t train = nic->train(1'500, 64'000);
  ASSERT_TRUE(quick.claim(kDepth, kStart));
  quick.settle(kDepth, kStart);
  ASSERT_FALSE(slow.claim(train, kStart));
  ASSERT_FALSE(quick.claim(train, kStart));
  const Instant room = slow.retry_at();
  EXPECT_EQ(quick.retry_at(), room + NicShaper::kGrace);
  EXPECT_FALSE(quick.claim(train, room + NicShaper::kGrace - 1us)) << "the room is the other one's";
  ASSERT_TRUE(slow.claim(train, room + NicShaper::kGrace - 1us));
  slow.settle(train, room + NicShaper::kGrace - 1us);
  // Now the quick one is alone in line.
  EXPECT_TRUE(quick.claim(train, kStart + 1ms));
  quick.settle(train, kStart + 1ms);
  // One that stands in line and never comes: others send after the grace, at the full rate.
  ASSERT_TRUE(quick.claim(kDepth, kStart + 2ms));
  quick.settle(kDepth, kStart + 2ms);
  ASSERT_FALSE(slow.claim(train, kStart + 2ms));
  std::uint64_t sent = 0;
  Instant now = kStart + 2ms;
  while (now < kStart + 102ms) {
    if (quick.claim(train, now)) {
      quick.settle(train, now);
      sent += train;
    } else {
      now = quick.retry_at();
    }
  }
  EXPECT_GE(sent, kRate / 10 - 2 * kDepth);
}

// Two that want to send all the time and one of which is always a little late: both have half.
TEST(NicShaper, SendersShareEvenlyAlsoIfOneWakesLate) {
  const auto nic = make_nic();
  NicSender senders[2] = {NicSender(nic), NicSender(nic)};
  const Duration lateness[2] = {1us, 80us};
  Instant next[2] = {kStart, kStart};
  std::uint64_t sent[2] = {};
  std::vector<Sending> log;
  const std::uint64_t train = nic->train(1'500, 64'000);
  while (next[0] < kStart + 1s) {
    const int who = next[0] <= next[1] ? 0 : 1;
    const Instant now = next[who];
    if (senders[who].claim(train, now)) {
      senders[who].settle(train, now);
      sent[who] += train;
      log.push_back({now, train});
      next[who] = now + 1us;
    } else {
      next[who] = senders[who].retry_at() + lateness[who];
    }
  }
  const double share = static_cast<double>(sent[0]) / static_cast<double>(sent[0] + sent[1]);
  EXPECT_NEAR(share, 0.5, 0.05);
  EXPECT_GE(sent[0] + sent[1], kRate / 100 * 95);
  EXPECT_LE(largest_burst(log, kRate), static_cast<std::int64_t>(kDepth));
}

TEST(NicShaper, NoIntervalHasMoreThanTheRateAndOneBucketful) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random{seed};
    const std::uint64_t rate = 1'000'000 + random.below(10'000'000'000ULL);
    const auto nic = make_nic(rate);
    NicSender senders[3] = {NicSender(nic), NicSender(nic), NicSender(nic)};
    std::uint64_t largest_claim = 0;
    std::vector<Sending> log;
    Instant now = kStart;
    for (int i = 0; i < 20'000; ++i) {
      NicSender& sender = senders[random.below(3)];
      const std::uint64_t claim = nic->train(64 + random.below(9'000), 64'000);
      if (!sender.claim(claim, now)) {
        now = random.chance(0.5) ? now + Duration{static_cast<std::int64_t>(random.below(10'000))} : sender.retry_at();
        continue;
      }
      largest_claim = std::max(largest_claim, claim);
      const std::uint64_t bytes = random.chance(0.3) ? random.below(claim) : claim;
      log.push_back({now, bytes});
      sender.settle(bytes, now);
    }
    const auto bound = static_cast<std::int64_t>(std::max(nic->depth(), largest_claim));
    // Bytes of the clock are rounded down.
    EXPECT_LE(largest_burst(log, rate), bound + 2) << "seed " << seed;
    EXPECT_GT(largest_burst(log, rate), bound / 4) << "seed " << seed;
  }
}

TEST(NicShaper, SixtyFourSendersHavePlacesInLineAndFurtherOnesSendAllTheSame) {
  const auto nic = make_nic();
  std::vector<std::unique_ptr<NicSender>> senders;
  for (int i = 0; i < 70; ++i) senders.push_back(std::make_unique<NicSender>(nic));
  ASSERT_TRUE(senders[0]->claim(kDepth, kStart));
  senders[0]->settle(kDepth, kStart);
  EXPECT_FALSE(senders[69]->claim(1'000, kStart));
  EXPECT_FALSE(senders[63]->claim(1'000, kStart));
  EXPECT_FALSE(senders[69]->claim(1'000, kStart + 50us)) << "one with a place waits";
  EXPECT_TRUE(senders[63]->claim(1'000, kStart + 50us));
  senders[63]->settle(1'000, kStart + 50us);
  senders.erase(senders.begin());  // its place is free again
  const auto late = std::make_unique<NicSender>(nic);
  EXPECT_TRUE(late->claim(1'000, kStart + 200us));
  late->settle(1'000, kStart + 200us);
}

// Many threads at one instant: what they are granted together is one bucketful, and every byte is counted.
TEST(NicShaper, ThreadsTogetherAreGrantedOneBucketful) {
  constexpr int kThreads = 4;
  constexpr std::uint64_t kClaim = 300;
  const auto nic = make_nic();
  std::uint64_t sent[kThreads] = {};
  std::uint64_t charged[kThreads] = {};
  for (int turn = 1; turn <= 200; ++turn) {
    const Instant now = kStart + turn * 1s;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      sent[i] = charged[i] = 0;
      threads.emplace_back([&, i] {
        NicSender sender(nic);
        for (int attempt = 0; attempt < 60; ++attempt) {
          if (!sender.claim(kClaim, now)) continue;
          sender.settle(kClaim - 1, now);
          sent[i] += kClaim - 1;
        }
        sender.charge(7, now);
        charged[i] += 7;
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::uint64_t all = 0, without = 0;
    for (int i = 0; i < kThreads; ++i) {
      all += sent[i];
      without += charged[i];
    }
    ASSERT_LE(all, kDepth);
    ASSERT_EQ(nic->owed(now), all + without);
  }
}

}  // namespace
}  // namespace weir::schedule
