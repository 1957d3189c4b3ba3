#include "handshake/source_shares.h"

#include <gtest/gtest.h>

namespace weir::handshake {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMax = 1024;
constexpr Instant kStart{1'000'000'000'000};

Address host(std::uint32_t number, std::uint16_t port = 1) { return Address::v4(0x0a000000 + number, port); }

Address v6(std::uint8_t network, std::uint8_t interface) {
  Address address{.port = 1};
  address.ip[0] = 0x20;
  address.ip[7] = network;
  address.ip[15] = interface;
  return address;
}

// How many of `tries` at this instant are let in.
std::size_t admitted(SourceShares& shares, const Address& source, std::size_t tries, Instant now) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < tries; ++i) count += shares.admit(source, now) ? 1 : 0;
  return count;
}

TEST(SourceShares, ASourceHoldsAQuarterWhateverItsPorts) {
  SourceShares shares(kMax, 0);
  std::size_t held = 0;
  for (std::uint16_t port = 1; port <= kMax; ++port) {
    if (!shares.admit(host(1, port), kStart)) continue;
    shares.hold(host(1, port), ++held, kStart);
  }
  EXPECT_EQ(held, kMax / 4);
  EXPECT_FALSE(shares.admit_unproven(host(1, 7), kStart)) << "it has to prove that it is somebody else";
  EXPECT_TRUE(shares.admit(host(2), kStart));
  EXPECT_EQ(shares.oldest_if_full(host(1)), 1u);
  shares.establish(host(1), 1);
  EXPECT_EQ(shares.oldest_if_full(host(1)), 2u);
  shares.release(host(1), 7);
  EXPECT_EQ(shares.oldest_if_full(host(1)), 0u) << "there is room";
  EXPECT_TRUE(shares.admit(host(1, 7), kStart + 1s));
}

TEST(SourceShares, AnIPv6SourceIsAWholeNetworkOf64Bits) {
  SourceShares shares(kMax, 2);
  shares.hold(v6(1, 1), 1, kStart);
  shares.hold(v6(1, 2), 2, kStart);
  EXPECT_FALSE(shares.admit(v6(1, 3), kStart));
  EXPECT_TRUE(shares.admit(v6(2, 1), kStart));
  EXPECT_EQ(shares.known(), 2u);
}

TEST(SourceShares, ABusyPortLetsNobodyHaveMoreThanItsRateWhileOthersCome) {
  SourceShares shares(kMax, 0);
  EXPECT_TRUE(shares.admit(host(2), kStart));
  // What a port can spare, it gives; then each source has its own.
  EXPECT_EQ(admitted(shares, host(1), 2000, kStart), SourceShares::kBusyPerSecond - 1);
  EXPECT_FALSE(shares.admit_unproven(host(3), kStart)) << "busy: a proof is asked for";
  EXPECT_EQ(admitted(shares, host(2), 2000, kStart), SourceShares::kPerSecond - 1);
  EXPECT_EQ(admitted(shares, host(3), 10, kStart), 10u);
  // The rate comes back with time.
  shares.admit(host(2), kStart + 500ms);
  const std::size_t later = admitted(shares, host(1), 2000, kStart + 500ms);
  EXPECT_GE(later, SourceShares::kPerSecond / 2);
  EXPECT_LE(later, SourceShares::kPerSecond / 2 + SourceShares::kBusyPerSecond / 2);
}

TEST(SourceShares, AVisitorAloneHasNoRate) {
  SourceShares shares(1'000'000, 0);
  EXPECT_EQ(admitted(shares, host(1), 5000, kStart), 5000u);
  EXPECT_TRUE(shares.admit(host(2), kStart));
  EXPECT_FALSE(shares.admit(host(1), kStart));
  EXPECT_TRUE(shares.admit(host(1), kStart + SourceShares::kCompany));
  EXPECT_EQ(admitted(shares, host(1), 5000, kStart + SourceShares::kCompany), 5000u) << "the other is long gone";
}

TEST(SourceShares, RemembersABoundedNumberOfSources) {
  SourceShares shares(kMax, 0);
  for (std::uint32_t i = 0; i < 10; ++i) shares.hold(host(i), i + 1, kStart);
  for (std::uint32_t i = 100; i < 20'000; ++i) shares.admit(host(i), kStart);
  EXPECT_EQ(shares.known(), SourceShares::kMaxIdle + 10);
  for (std::uint32_t i = 0; i < 10; ++i) shares.release(host(i), i + 1);
  EXPECT_EQ(shares.known(), SourceShares::kMaxIdle);
}

}  // namespace
}  // namespace weir::handshake
