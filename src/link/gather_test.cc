// Trains whose datagrams are gathered from two pieces of memory each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "link/gather_testing.h"
#include "link/link.h"
#include "link/link_testing.h"
#include "link/open.h"
#include "link/udp_socket.h"

#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)
#include "link/udp_linux.h"
#endif

namespace weir::link::testing {
namespace {

using Bytes = std::vector<std::vector<std::byte>>;

class GatherPair : public LinkPair {};

TEST_P(GatherPair, ArrivesByteForByte) {
  for (const Gathered::Shape shape : {
           Gathered::Shape{.size = 61'500, .segment_size = 61'500, .head_size = 48},  // one, at loopback's MTU
           Gathered::Shape{.size = 44 * 1'472, .segment_size = 1'472, .head_size = 48},
           Gathered::Shape{.size = 43 * 1'472 + 49, .segment_size = 1'472, .head_size = 48},  // a shorter last
           Gathered::Shape{.size = 10 * 1'472 + 48, .segment_size = 1'472, .head_size = 48},  // a last without body
           Gathered::Shape{.size = 64 * 100, .segment_size = 100, .head_size = 1},
           Gathered::Shape{.size = 7 * 8'972, .segment_size = 8'972, .head_size = 60},
           Gathered::Shape{.size = 5'000, .segment_size = 1'200, .head_size = 1'200},  // no bodies
           Gathered::Shape{.size = 5'000, .segment_size = 1'200, .head_size = 0},      // no heads
       }) {
    const Gathered gathered(shape, 7);
    EXPECT_EQ(send_one(*sender_, gathered.train(receiver_->local())), SendStatus::sent);
    const std::vector<Copy> copies = receive_copies(*receiver_, gathered.datagrams.size());
    EXPECT_TRUE(bytes_of(copies) == gathered.datagrams) << shape.size << " bytes by " << shape.segment_size;
  }
  EXPECT_EQ(sender_->report().offload_refusals, 0u);
}

// More segments than a message takes, more bytes than a message takes, more pieces than a system call takes.
TEST_P(GatherPair, IsSplitWhereTheKernelTakesLess) {
  for (const Gathered::Shape shape : {Gathered::Shape{.size = 150 * 100 + 3, .segment_size = 100, .head_size = 48},
                                      Gathered::Shape{.size = 200'001, .segment_size = 40'000, .head_size = 48},
                                      Gathered::Shape{.size = 700 * 200 + 9, .segment_size = 200, .head_size = 48}}) {
    const Gathered gathered(shape, 9);
    EXPECT_EQ(send_one(*sender_, gathered.train(receiver_->local())), SendStatus::sent);
    const std::vector<Copy> copies = receive_copies(*receiver_, gathered.datagrams.size());
    EXPECT_TRUE(bytes_of(copies) == gathered.datagrams) << shape.size << " bytes by " << shape.segment_size;
  }
}

TEST_P(GatherPair, GoesInOrderWithOrdinaryTrainsOfTheSameSend) {
  constexpr std::uint32_t kRounds = 12;  // of four trains: more than one system call takes
  std::vector<std::unique_ptr<Gathered>> gathered;
  std::vector<std::vector<std::byte>> ordinary;
  for (std::uint32_t i = 0; i < kRounds; ++i) {
    gathered.push_back(
        std::make_unique<Gathered>(Gathered::Shape{.size = 20 * 700 + i, .segment_size = 700, .head_size = 48}, i));
    gathered.push_back(
        std::make_unique<Gathered>(Gathered::Shape{.size = 9'000, .segment_size = 9'000, .head_size = 48}, 100 + i));
    ordinary.push_back(pattern(650, 200 + i));
    ordinary.push_back(pattern(90, 300 + i));
  }
  std::vector<Train> trains;
  Bytes wanted;
  for (std::size_t i = 0; i < ordinary.size(); ++i) {
    trains.push_back({.to = receiver_->local(), .bytes = ordinary[i], .segment_size = 300});
    for (std::size_t from = 0; from < ordinary[i].size(); from += 300) {
      const auto begin = ordinary[i].begin() + static_cast<std::ptrdiff_t>(from);
      wanted.emplace_back(begin,
                          begin + static_cast<std::ptrdiff_t>(std::min<std::size_t>(300, ordinary[i].size() - from)));
    }
    trains.push_back(gathered[i]->train(receiver_->local()));
    wanted.insert(wanted.end(), gathered[i]->datagrams.begin(), gathered[i]->datagrams.end());
    if (i == 3) trains.push_back({.to = receiver_->local(), .segment_size = 300});  // nothing to send
  }
  std::vector<SendStatus> statuses(trains.size(), SendStatus::failed);
  EXPECT_EQ(sender_->send(trains, statuses), trains.size());
  EXPECT_EQ(statuses, std::vector(trains.size(), SendStatus::sent));
  EXPECT_TRUE(bytes_of(receive_copies(*receiver_, wanted.size())) == wanted);
}

TEST_P(GatherPair, CarriesEcnMarks) {
  const Gathered gathered({.size = 3'100, .segment_size = 1'000, .head_size = 48}, 1);
  for (const Ecn ecn : {Ecn::ect0, Ecn::ce, Ecn::not_ect, Ecn::ect1}) {
    EXPECT_EQ(send_one(*sender_, gathered.train(receiver_->local(), ecn)), SendStatus::sent);
    const std::vector<Copy> copies = receive_copies(*receiver_, 4);
    ASSERT_EQ(copies.size(), 4u);
    for (const Copy& copy : copies) EXPECT_EQ(copy.ecn, ecn);
  }
}

TEST_P(GatherPair, IsTooBigOrOfTheOtherFamilyByItself) {
  const Gathered huge({.size = 65'600, .segment_size = 65'600, .head_size = 48}, 1);
  const Gathered fine({.size = 2'500, .segment_size = 1'000, .head_size = 48}, 2);
  std::vector<Train> trains{huge.train(receiver_->local()), fine.train(receiver_->local()),
                            fine.train(any_port(!GetParam().is_v6)), fine.train(receiver_->local())};
  std::vector<SendStatus> statuses(4, SendStatus::would_block);
  EXPECT_EQ(sender_->send(trains, statuses), 4u);
  EXPECT_EQ(statuses, (std::vector{SendStatus::too_big, SendStatus::sent, SendStatus::failed, SendStatus::sent}));
  Bytes wanted = fine.datagrams;
  wanted.insert(wanted.end(), fine.datagrams.begin(), fine.datagrams.end());
  EXPECT_TRUE(bytes_of(receive_copies(*receiver_, wanted.size())) == wanted);
  EXPECT_EQ(sender_->report().stray_errors, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, GatherPair, ::testing::ValuesIn(settings()),
                         [](const auto& parameter) { return name_of(parameter.param); });

#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)

// A socket without checksums cannot be offloaded: the kernel refuses UDP_SEGMENT as it does for some devices.
TEST(Gather, FallsBackWhenTheKernelRefusesOffload) {
  ReceiveBufferPool pool{{}};
  Result<UdpSocket> socket = UdpSocket::open({.bind = any_port(false)});
  ASSERT_TRUE(socket);
  UdpLinux link{std::move(*socket), pool};
  const int on = 1;
  ASSERT_EQ(setsockopt(link.descriptor(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof on), 0);
  const Gathered gathered({.size = 43 * 1'472 + 100, .segment_size = 1'472, .head_size = 48}, 4);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(send_one(link, gathered.train(link.local())), SendStatus::sent);
    EXPECT_TRUE(bytes_of(receive_copies(link, 44)) == gathered.datagrams);
  }
  EXPECT_FALSE(link.report().segmentation_offload);
  EXPECT_EQ(link.report().offload_refusals, 1u);
}

TEST(GatherDeathTest, ChecksThatSegmentsAreOfOneSize) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a forked child sends nothing through the link of its parent
  ReceiveBufferPool pool{{}};
  Result<std::unique_ptr<Link>> link = open_udp({.bind = any_port(false), .kind = Kind::linux_offload}, pool);
  ASSERT_TRUE(link);
  const std::vector<std::byte> bytes = pattern(300, 1);
  const std::vector<Segment> segments{
      {.head = ByteSpan{bytes}.first(100)}, {.head = ByteSpan{bytes}.first(99)}, {.head = ByteSpan{bytes}.first(100)}};
  EXPECT_DEATH(send_one(**link, {.to = (*link)->local(), .segment_size = 100, .segments = segments}),
               "but the last must be of one size");
}

#endif

}  // namespace
}  // namespace weir::link::testing
