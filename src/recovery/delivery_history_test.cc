// Delivery rates (docs/protocol.md, rule N-18).
#include "recovery/delivery_history.h"

#include <gtest/gtest.h>

namespace weir::recovery {
namespace {

using namespace std::chrono_literals;

constexpr Instant kBegin{1'000'000'000};
constexpr std::uint64_t kPacket = 1'000;

TEST(DeliveryHistory, TheFirstAcknowledgementHasARate) {
  DeliveryHistory history(kBegin, 0);
  history.on_sent(kPacket, kPacket, kBegin);
  const DeliverySample sample = history.on_acked(kPacket, kBegin, kBegin + 10ms);
  EXPECT_TRUE(sample.is_known);
  EXPECT_EQ(sample.rate, 100'000U);
  EXPECT_EQ(sample.delivered, kPacket);
  EXPECT_EQ(sample.in_flight, kPacket);
}

TEST(DeliveryHistory, ARateIsThatOfTheSlowerOfSendingAndAcknowledging) {
  DeliveryHistory history(kBegin, 0);
  history.on_sent(kPacket, kPacket, kBegin);
  history.on_acked(kPacket, kBegin, kBegin + 10ms);
  history.mark(10ms, true, kBegin + 10ms);
  for (int i = 1; i <= 10; ++i) history.on_sent(kPacket, i * kPacket, kBegin + 10ms + 10ms * i);
  // They were sent in 100 ms, and all acknowledged at once.
  EXPECT_EQ(history.on_acked(10 * kPacket, kBegin + 110ms, kBegin + 111ms).rate, 10 * kPacket * 1'000 / 110);
}

TEST(DeliveryHistory, RateCoversTwoMillisecondsAtLeast) {
  DeliveryHistory history(kBegin, 0);
  Instant now = kBegin;
  std::uint64_t highest = 0;
  // 16 packets at once in each millisecond, over a round trip of 0.1 ms.
  for (int i = 0; i < 20; ++i) {
    history.on_sent(16 * kPacket, 16 * kPacket, now);
    const DeliverySample sample = history.on_acked(16 * kPacket, now, now + 100us);
    if (i > 4) highest = std::max(highest, sample.rate);
    history.mark(100us, true, now + 100us);
    now = now + 1ms;
  }
  EXPECT_LE(highest, 16 * kPacket * 1'000 * 3 / 2);
}

TEST(DeliveryHistory, WaitingForTheApplicationIsNoPartOfATime) {
  DeliveryHistory history(kBegin, 0);
  history.on_sent(kPacket, kPacket, kBegin);
  history.on_acked(kPacket, kBegin, kBegin + 10ms);
  history.mark(10ms, true, kBegin + 10ms);
  history.on_app_limited(0);
  history.on_sent(kPacket, kPacket, kBegin + 5s);
  const DeliverySample sample = history.on_acked(kPacket, kBegin + 5s, kBegin + 5s + 10ms);
  EXPECT_EQ(sample.rate, 100'000U);
  EXPECT_TRUE(sample.is_app_limited) << "the application has let the rate fall";
}

TEST(DeliveryHistory, WaitingForThePacerIs) {
  DeliveryHistory history(kBegin, 0);
  Instant now = kBegin;
  DeliverySample sample;
  for (int i = 0; i < 20; ++i) {  // one packet in ten round trips
    history.on_sent(kPacket, kPacket, now);
    sample = history.on_acked(kPacket, now, now + 1ms);
    history.mark(1ms, true, now + 1ms);
    now = now + 10ms;
  }
  EXPECT_EQ(sample.rate, 100'000U) << "and not a packet per round trip";
  EXPECT_FALSE(sample.is_app_limited);
}

TEST(DeliveryHistory, IsApplicationLimitedUntilWhatWasInFlightThenIsDelivered) {
  DeliveryHistory history(kBegin, 0);
  history.on_sent(kPacket, kPacket, kBegin);
  history.on_app_limited(kPacket);
  EXPECT_TRUE(history.on_acked(kPacket, kBegin, kBegin + 10ms).is_app_limited);
  history.mark(10ms, true, kBegin + 10ms);
  history.on_sent(kPacket, kPacket, kBegin + 10ms);
  EXPECT_TRUE(history.on_acked(kPacket, kBegin + 10ms, kBegin + 20ms).is_app_limited);
  history.mark(10ms, true, kBegin + 20ms);
  history.on_sent(kPacket, kPacket, kBegin + 20ms);
  EXPECT_FALSE(history.on_acked(kPacket, kBegin + 20ms, kBegin + 30ms).is_app_limited);
}

TEST(DeliveryHistory, SaysWhatWasLostSinceAPacketWasSent) {
  DeliveryHistory history(kBegin, 0);
  for (int i = 1; i <= 10; ++i) history.on_sent(kPacket, i * kPacket, kBegin);
  EXPECT_EQ(history.on_lost(kPacket, kBegin).lost, kPacket);
  const DeliverySample sample = history.on_lost(2 * kPacket, kBegin);
  EXPECT_EQ(sample.lost, 3 * kPacket);
  EXPECT_EQ(sample.in_flight, 10 * kPacket);
  history.mark(10ms, true, kBegin + 10ms);
  history.on_sent(kPacket, kPacket, kBegin + 10ms);
  EXPECT_EQ(history.on_lost(kPacket, kBegin + 10ms).lost, kPacket);
}

TEST(DeliveryHistory, KnowsNothingOfPacketsOlderThanItsMarks) {
  DeliveryHistory history(kBegin, 0);
  for (std::size_t i = 0; i < DeliveryHistory::kMarks; ++i) history.mark(10ms, true, kBegin + 10ms * (i + 1));
  const DeliverySample sample = history.on_acked(kPacket, kBegin, kBegin + 1s);
  EXPECT_FALSE(sample.is_known);
  EXPECT_EQ(sample.rate, 0U);
  EXPECT_EQ(history.delivered(), kPacket);
}

}  // namespace
}  // namespace weir::recovery
