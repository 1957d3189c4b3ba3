#include "worker/forward_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace weir::worker {
namespace {

TEST(ForwardRing, HandsOverWhatWasPushedInOrder) {
  ForwardRing ring;
  std::vector<std::byte> bytes(100);
  for (std::uint32_t round = 0; round < 5 * ForwardRing::kSlots; ++round) {
    store<std::uint32_t>(bytes.data(), round);
    ASSERT_TRUE(ring.push(bytes, Address::v4(1, static_cast<std::uint16_t>(round)), round % 4));
    ForwardRing::Datagram taken;
    ASSERT_TRUE(ring.take(taken));
    EXPECT_EQ(load<std::uint32_t>(taken.bytes.data()), round);
    EXPECT_EQ(taken.bytes.size(), bytes.size());
    EXPECT_EQ(taken.from, Address::v4(1, static_cast<std::uint16_t>(round)));
    EXPECT_EQ(taken.ecn, round % 4);
    EXPECT_FALSE(ring.take(taken));
    ring.give_back();
  }
}

TEST(ForwardRing, IsFullUntilWhatWasTakenIsGivenBack) {
  ForwardRing ring;
  const std::vector<std::byte> bytes(10);
  for (std::uint32_t i = 0; i < ForwardRing::kSlots; ++i) ASSERT_TRUE(ring.push(bytes, {}, 0));
  EXPECT_FALSE(ring.push(bytes, {}, 0));
  ForwardRing::Datagram taken;
  for (std::uint32_t i = 0; i < ForwardRing::kSlots; ++i) ASSERT_TRUE(ring.take(taken));
  EXPECT_FALSE(ring.take(taken));
  EXPECT_FALSE(ring.push(bytes, {}, 0));
  ring.give_back();
  EXPECT_TRUE(ring.push(bytes, {}, 0));
}

TEST(ForwardRing, StrangersFillAQuarterOfItAtMost) {
  ForwardRing ring;
  const std::vector<std::byte> bytes(10);
  for (int round = 0; round < 3; ++round) {
    std::uint32_t strangers = 0;
    while (ring.push(bytes, {}, 0, true)) ASSERT_LE(++strangers, ForwardRing::kStrangerSlots);
    EXPECT_EQ(strangers, ForwardRing::kStrangerSlots);
    std::uint32_t members = 0;
    while (ring.push(bytes, {}, 0)) ++members;
    EXPECT_EQ(members, ForwardRing::kSlots - ForwardRing::kStrangerSlots);
    EXPECT_FALSE(ring.push(bytes, {}, 0, true));
    ForwardRing::Datagram taken;
    while (ring.take(taken)) {
    }
    ring.give_back();
  }
}

TEST(ForwardRing, RefusesWhatNoDatagramCanBe) {
  ForwardRing ring;
  EXPECT_FALSE(ring.push(std::vector<std::byte>(ForwardRing::kLargestDatagram + 1), {}, 0));
  EXPECT_TRUE(ring.push(std::vector<std::byte>(ForwardRing::kLargestDatagram), {}, 0));
}

TEST(ForwardRing, SeveralThreadsPushWholeDatagrams) {
  constexpr std::uint32_t kThreads = 3, kEach = 5'000;
  ForwardRing ring;
  std::atomic<std::uint32_t> pushing{kThreads};
  std::vector<std::thread> threads;
  std::array<std::uint32_t, kThreads> pushed{};
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t i = 0; i < kEach; ++i) {
        std::vector<std::byte> bytes(16 + (i * 37 + thread) % 3'000, static_cast<std::byte>(i));
        store<std::uint32_t>(bytes.data(), thread);
        store<std::uint32_t>(bytes.data() + 4, i);
        if (ring.push(bytes, {}, 0)) ++pushed[thread];
      }
      pushing.fetch_sub(1);
    });
  }
  std::array<std::uint32_t, kThreads> taken{};
  std::array<std::uint32_t, kThreads> next{};
  for (bool is_last = false; !is_last;) {
    is_last = pushing.load() == 0;
    ForwardRing::Datagram datagram;
    while (ring.take(datagram)) {
      const auto thread = load<std::uint32_t>(datagram.bytes.data());
      const auto number = load<std::uint32_t>(datagram.bytes.data() + 4);
      ASSERT_LT(thread, kThreads);
      ASSERT_GE(number, next[thread]) << "out of order";
      next[thread] = number + 1;
      ASSERT_EQ(datagram.bytes.size(), 16 + (number * 37 + thread) % 3'000);
      for (const std::byte byte : datagram.bytes.subspan(8)) ASSERT_EQ(byte, static_cast<std::byte>(number));
      ++taken[thread];
      is_last = false;
    }
    ring.give_back();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, pushed);
}

}  // namespace
}  // namespace weir::worker
