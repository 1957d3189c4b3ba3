#include "token/grant_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace weir::token {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kTrain = 64'000, kLeast = 57'344, kPacket = 1'472;

// A link, its queue, and senders that always have in flight what they may.
class Link {
 public:
  explicit Link(std::uint64_t bytes_per_s) : rate_(bytes_per_s) {}

  // One round trip.
  void round(std::uint64_t in_flight) {
    const std::uint64_t fits = bytes_in(kBase), queued = in_flight > fits ? in_flight - fits : 0;
    const std::uint64_t lost = queued > buffer ? queued - buffer : 0;
    const Duration took =
        std::max(kBase, Duration{static_cast<std::int64_t>((in_flight - lost) * 1'000'000'000 / rate_)});
    window.on_round_trip(took, kBase);
    if (queued > marks_from) window.on_marked(in_flight / 4);
    for (std::uint64_t i = 0; i < lost / kPacket; ++i) {
      window.on_missing(1, i % 2 == 0 || one_loses ? first_ : second_);
    }
    dropped += lost;
    for (int i = 0; i < 16; ++i) {
      now = now + took / 16 + Duration{1};
      window.on_bytes((in_flight - lost) / 16, now);
    }
    longest_queue = std::max(longest_queue, queued);
  }
  void rounds(int count) {
    for (int i = 0; i < count; ++i) round(window.bytes());
  }
  std::uint64_t bytes_in(Duration time) const {
    return rate_ * static_cast<std::uint64_t>(time.count()) / 1'000'000'000;
  }

  static constexpr Duration kBase = 40us;
  GrantWindow window{{.train_bytes = kTrain, .smallest_bytes = kLeast, .packet_bytes = kPacket}};
  Instant now{1'000'000'000};
  std::uint64_t marks_from = ~std::uint64_t{0};  // bytes in the queue
  std::uint64_t buffer = ~std::uint64_t{0};
  std::uint64_t dropped = 0, longest_queue = 0;
  bool one_loses = false;

 private:
  const std::uint64_t rate_;
  GrantWindow::Losses first_, second_;  // the rounds in which two senders lost something
};

constexpr std::uint64_t kFast = 3'125'000'000;  // 25 Gbit/s

TEST(GrantWindow, GrowsUntilTheLinkIsFullAndMarksKeepItThere) {
  Link link(kFast);
  link.marks_from = 32 * 1024;
  link.rounds(5);
  EXPECT_GT(link.window.bytes(), link.bytes_in(Link::kBase)) << "the link is full";
  link.rounds(1'000);
  EXPECT_FALSE(link.window.is_searching());
  EXPECT_NEAR(static_cast<double>(link.window.rate()), kFast, kFast / 20);
  EXPECT_GT(link.window.bytes(), link.bytes_in(Link::kBase));
  EXPECT_LT(link.window.bytes(), link.bytes_in(Link::kBase) + kTrain + kTrain / 4);
  EXPECT_LT(link.longest_queue, link.bytes_in(Link::kBase)) << "the search ends with the first marks";
}

TEST(GrantWindow, LossesEndTheSearchAndLaterOnesAreFew) {
  Link link(kFast);
  link.buffer = 128 * 1024;
  link.rounds(100);
  EXPECT_FALSE(link.window.is_searching());
  EXPECT_LT(link.dropped, 256u * 1024);
  link.dropped = 0;
  link.rounds(1'000);
  EXPECT_LT(link.dropped, 1'000 * link.bytes_in(Link::kBase) / 100) << "1 %";
  EXPECT_GE(link.window.bytes(), link.bytes_in(Link::kBase));
}

TEST(GrantWindow, OneSenderWhoSaysThatPacketsAreMissingShrinksNothing) {
  Link link(kFast);
  link.buffer = 0;
  link.one_loses = true;
  link.rounds(4);
  EXPECT_TRUE(link.window.is_searching());
  EXPECT_GT(link.window.bytes(), GrantWindow::kFirstBytes);
  link.one_loses = false;
  link.rounds(1);
  EXPECT_FALSE(link.window.is_searching());
}

TEST(GrantWindow, DoesNotGrowWhileItIsNotFilled) {
  Link link(kFast);
  for (int i = 0; i < 100; ++i) link.round(8'000);
  EXPECT_LE(link.window.bytes(), GrantWindow::kFirstBytes * 3 / 2) << "a train fits at any rate";
}

TEST(GrantWindow, GrowsNoMoreOnceTheQueueIsAMillisecondLong) {
  Link link(kFast);
  link.rounds(200);
  EXPECT_TRUE(link.window.is_searching());
  EXPECT_GT(link.longest_queue, link.bytes_in(200us));
  EXPECT_LT(link.longest_queue, link.bytes_in(4ms));
}

TEST(GrantWindow, BeginsAgainWithWhatFitsAfterItWasIdle) {
  Link link(kFast);
  link.rounds(12);
  ASSERT_TRUE(link.window.is_searching());
  ASSERT_GT(link.window.bytes(), 500'000u);
  link.now = link.now + 100ms;
  link.window.on_bytes(1, link.now);
  EXPECT_LE(link.window.bytes(), link.bytes_in(Link::kBase) + kTrain + kPacket);
}

TEST(GrantWindow, IsNeverBelowTheSmallest) {
  Link link(1'000'000);  // 8 Mbit/s
  link.buffer = 2 * kPacket;
  link.rounds(100);
  EXPECT_EQ(link.window.bytes(), kLeast);
}

// What one sender leaves out and sends later takes back nothing of what others have lost.
TEST(GrantWindow, LateNumbersOfOneSenderDoNotHideTheLossesOfOthers) {
  std::uint64_t windows[2] = {};
  for (const bool hides : {false, true}) {
    Link link(kFast);
    link.buffer = link.bytes_in(Link::kBase);
    GrantWindow::Losses hiding;
    for (int i = 0; i < 200; ++i) {
      if (hides) {
        link.window.on_missing(64, hiding);
        for (int k = 0; k < 2'000; ++k) link.window.on_missing(-1, hiding);
      }
      link.round(link.window.bytes());
    }
    windows[hides] = link.window.bytes();
  }
  EXPECT_LE(windows[1], windows[0] * 5 / 4);
}

TEST(GrantWindow, FitsWhatComesInALongRoundTrip) {
  GrantWindow window({.train_bytes = kTrain, .smallest_bytes = kLeast, .packet_bytes = kPacket});
  Instant now{1'000'000'000};
  constexpr Duration kFar = 100ms;
  for (int round = 0; round < 100; ++round) {
    window.on_round_trip(kFar, kFar);
    for (int i = 0; i < 10; ++i) {
      now = now + kFar / 10 + Duration{1};
      window.on_bytes(std::min<std::uint64_t>(window.bytes(), 12'500'000) / 10, now);
    }
  }
  EXPECT_GE(window.bytes(), 12'500'000u) << "125 MB/s";
}

}  // namespace
}  // namespace weir::token
