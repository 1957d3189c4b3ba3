#include "schedule/pacer.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace weir::schedule {
namespace {

using namespace std::chrono_literals;

constexpr Instant kStart{1'000'000'000};

TEST(Pacer, DoesNotWaitWhenUnlimited) {
  Pacer pacer;
  for (int i = 0; i < 1'000; ++i) pacer.on_sent(60'000, kStart);
  EXPECT_EQ(pacer.next_send(kStart), kStart);
}

TEST(Pacer, AllowsABurstAndThenTheRate) {
  Pacer pacer{1'000'000, 10'000};
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(pacer.next_send(kStart), kStart);
    pacer.on_sent(1'000, kStart);
  }
  pacer.on_sent(1'000, kStart);
  EXPECT_EQ(pacer.next_send(kStart), kStart + 1ms);
  EXPECT_EQ(pacer.next_send(kStart + 5ms), kStart + 5ms);
}

TEST(Pacer, SendsNoMoreThanRateAndBurstInAnyRun) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random{seed};
    const std::uint64_t rate = 1'000'000 + random.below(10'000'000'000ULL);
    Pacer pacer{rate, 64'000};
    Instant now = kStart;
    std::uint64_t sent = 0;
    for (int i = 0; i < 20'000; ++i) {
      now = pacer.next_send(now);
      const std::uint64_t bytes = 64 + random.below(1'400);
      pacer.on_sent(bytes, now);
      sent += bytes;
    }
    const double allowed = static_cast<double>(rate) * static_cast<double>((now - kStart).count()) / 1e9;
    EXPECT_LE(static_cast<double>(sent), (allowed + 64'000 + 1'500) * 1.01);
    EXPECT_GE(static_cast<double>(sent), allowed * 0.99);
  }
}

TEST(Pacer, BurstsGrowWithTheRateWithinBounds) {
  EXPECT_EQ(Pacer::burst_at(100'000'000), Pacer::kDefaultBurstBytes);
  EXPECT_EQ(Pacer::burst_at(2'000'000'000), 100'000u);
  EXPECT_EQ(Pacer::burst_at(100'000'000'000), 256u * 1024);
}

TEST(Pacer, PaysOffWhatIsOwedAtTheNewRate) {
  Pacer pacer{1'000, 0};
  pacer.on_sent(10'000, kStart);
  EXPECT_EQ(pacer.next_send(kStart), kStart + 10s);
  pacer.set_rate(1'000'000);
  EXPECT_EQ(pacer.next_send(kStart), kStart + 10ms);
  pacer.set_rate(Pacer::kUnlimited);
  EXPECT_EQ(pacer.next_send(kStart), kStart);
}

TEST(Pacer, DoesNotSaveUpWhileIdle) {
  Pacer pacer{1'000'000, 1'000};
  pacer.on_sent(1'000, kStart);
  const Instant later = kStart + 1h;
  pacer.on_sent(1'000, later);
  EXPECT_EQ(pacer.next_send(later), later);
  pacer.on_sent(1'000, later);
  EXPECT_EQ(pacer.next_send(later), later + 1ms);
}

}  // namespace
}  // namespace weir::schedule
