#include "pool/refusals.h"

#include <gtest/gtest.h>

namespace weir::pool {
namespace {

using namespace std::chrono_literals;

Address peer(std::uint32_t number) { return Address::v4(0x0a000000 + number, 1'000); }

TEST(Refusals, EachPeerIsToldOfOncePerInterval) {
  Refusals refusals;
  Instant now{1'000'000'000};
  EXPECT_EQ(refusals.note(peer(1), now), 0u);
  EXPECT_EQ(refusals.note(peer(1), now + 10ms), std::nullopt);
  EXPECT_EQ(refusals.note(peer(1), now + 20ms), std::nullopt);
  EXPECT_EQ(refusals.note(peer(1), now + 1s), 2u);
  EXPECT_EQ(refusals.note(peer(1), now + 2s), 0u);
}

TEST(Refusals, NoPeerHidesAnother) {
  Refusals refusals;
  Instant now{1'000'000'000};
  for (int second = 0; second < 3; ++second, now = now + 1s) {
    for (std::uint32_t i = 0; i < Refusals::kPeers; ++i) {
      ASSERT_EQ(refusals.note(peer(i), now), second == 0 ? 0u : 1u) << i;
    }
    for (std::uint32_t i = 0; i < Refusals::kPeers; ++i) ASSERT_EQ(refusals.note(peer(i), now + 1ms), std::nullopt);
  }
}

TEST(Refusals, RememberOnlySoMany) {
  Refusals refusals;
  Instant now{1'000'000'000};
  std::uint32_t told = 0;
  for (std::uint32_t i = 0; i < 100'000; ++i, now = now + 100us) told += refusals.note(peer(i), now) ? 1 : 0;
  EXPECT_LE(refusals.size(), Refusals::kPeers);
  EXPECT_GE(told, 10 * Refusals::kPeers) << "ten seconds";
  EXPECT_LE(told, 11 * Refusals::kPeers);
}

}  // namespace
}  // namespace weir::pool
