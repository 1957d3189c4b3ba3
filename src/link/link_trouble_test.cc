// What links do when something is wrong: bad addresses, closed ports, oversized datagrams, no buffers, no offload.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "link/link.h"
#include "link/link_testing.h"
#include "link/open.h"
#include "link/udp_socket.h"

#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)
#include "link/udp_linux.h"
#endif

namespace weir::link::testing {
namespace {

class LinkTrouble : public LinkPair {
 protected:
  // An address of this machine that nobody listens on.
  Address closed_port() {
    std::unique_ptr<Link> link = open(GetParam().sender, sender_pool_);
    return link->local();
  }

  // Waits for the error condition, as a poller would.
  static bool wait_error(Link& link) {
    pollfd poller{link.descriptor(), 0, 0};
    return ::poll(&poller, 1, kPatienceMs) > 0 && (poller.revents & POLLERR) != 0;
  }
};

TEST_P(LinkTrouble, SaysInASentenceThatAnAddressIsTaken) {
  const Result<std::unique_ptr<Link>> second =
      open_udp({.bind = receiver_->local(), .kind = GetParam().receiver}, receiver_pool_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::system);
  EXPECT_EQ(second.error().message(), "cannot bind " + receiver_->local().to_string() + ": Address already in use");
}

TEST_P(LinkTrouble, SharesAPortWhenAsked) {
  const auto first =
      open_udp({.bind = any_port(GetParam().is_v6), .kind = GetParam().sender, .reuse_port = true}, sender_pool_);
  ASSERT_TRUE(first) << first.error().to_string();
  const auto second =
      open_udp({.bind = (*first)->local(), .kind = GetParam().receiver, .reuse_port = true}, sender_pool_);
  ASSERT_TRUE(second) << second.error().to_string();
  EXPECT_EQ((*first)->local(), (*second)->local());
}

TEST_P(LinkTrouble, ReportsBuffersAsTheKernelGaveThem) {
  const auto modest = open_udp({.bind = any_port(GetParam().is_v6),
                                .kind = GetParam().sender,
                                .receive_buffer_bytes = 65'536,
                                .send_buffer_bytes = 65'536},
                               sender_pool_);
  ASSERT_TRUE(modest);
  EXPECT_GE((*modest)->report().receive_buffer_bytes, 65'536u);
  EXPECT_FALSE((*modest)->report().receive_buffer_clamped);
  EXPECT_FALSE((*modest)->report().send_buffer_clamped);
  const auto greedy = open_udp({.bind = any_port(GetParam().is_v6),
                                .kind = GetParam().sender,
                                .receive_buffer_bytes = 1'000'000'000,
                                .send_buffer_bytes = 1'000'000'000},
                               sender_pool_);
  ASSERT_TRUE(greedy);
  const LinkReport report = (*greedy)->report();
  EXPECT_EQ(report.receive_buffer_asked_bytes, 1'000'000'000u);
  // No system lets a socket have as much unless it is forced to.
  EXPECT_LT(report.receive_buffer_bytes, 1'000'000'000u);
  EXPECT_LT(report.send_buffer_bytes, 1'000'000'000u);
  EXPECT_TRUE(report.receive_buffer_clamped);
  EXPECT_TRUE(report.send_buffer_clamped);
  EXPECT_GT(report.receive_buffer_bytes, 0u);
  EXPECT_GT(report.send_buffer_bytes, 0u);
}

TEST_P(LinkTrouble, CallsAnOversizedDatagramTooBigAndGoesOn) {
  std::vector<std::byte> huge(sender_->report().max_datagram_bytes + 64);
  std::vector<std::byte> before = pattern(10, 1);
  std::vector<std::byte> after = pattern(10, 2);
  std::vector<Train> trains{{.to = receiver_->local(), .bytes = before},
                            {.to = receiver_->local(), .bytes = huge},
                            {.to = receiver_->local(), .bytes = after}};
  std::vector<SendStatus> statuses(3, SendStatus::failed);
  EXPECT_EQ(sender_->send(trains, statuses), 3u);
  EXPECT_EQ(statuses, (std::vector{SendStatus::sent, SendStatus::too_big, SendStatus::sent}));
  const std::vector<Copy> copies = receive_copies(*receiver_, 2);
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].bytes, before);
  EXPECT_EQ(copies[1].bytes, after);
  EXPECT_EQ(sender_->report().stray_errors, 0u);
  // A local refusal is no report about the network, and must not leave the descriptor in an error condition.
  Unreachable report;
  EXPECT_FALSE(sender_->take_unreachable(report));
  pollfd poller{sender_->descriptor(), 0, 0};
  EXPECT_EQ(::poll(&poller, 1, 0), 0);
}

TEST_P(LinkTrouble, FailsATrainToTheOtherFamilyAndGoesOn) {
  std::vector<std::byte> bytes = pattern(10, 1);
  std::vector<Train> trains{{.to = any_port(!GetParam().is_v6), .bytes = bytes},
                            {.to = receiver_->local(), .bytes = bytes}};
  std::vector<SendStatus> statuses(2, SendStatus::would_block);
  EXPECT_EQ(sender_->send(trains, statuses), 2u);
  EXPECT_EQ(statuses, (std::vector{SendStatus::failed, SendStatus::sent}));
  EXPECT_EQ(receive_copies(*receiver_, 1).size(), 1u);
}

TEST_P(LinkTrouble, ReportsAClosedPortWithTheBytesSentThere) {
  ASSERT_TRUE(sender_->report().unreachable_reports);
  const Address nobody = closed_port();
  std::vector<std::byte> bytes = pattern(500, 77);
  EXPECT_EQ(send_one(*sender_, {.to = nobody, .bytes = bytes, .segment_size = 100}), SendStatus::sent);
  ASSERT_TRUE(wait_error(*sender_));
  sender_->note_error();
  Unreachable report;
  ASSERT_TRUE(sender_->take_unreachable(report));
  EXPECT_EQ(report.who, nobody);
  EXPECT_TRUE(report.port_closed);
  EXPECT_EQ(report.quoted_bytes().size(), 32u);
  EXPECT_TRUE(std::equal(report.quoted_bytes().begin(), report.quoted_bytes().end(), bytes.begin()));
  while (sender_->take_unreachable(report)) {
  }
  std::vector<std::byte> brief = pattern(5, 78);
  EXPECT_EQ(send_one(*sender_, {.to = nobody, .bytes = brief}), SendStatus::sent);
  ASSERT_TRUE(wait_error(*sender_));
  sender_->note_error();
  ASSERT_TRUE(sender_->take_unreachable(report));
  EXPECT_TRUE(std::equal(report.quoted_bytes().begin(), report.quoted_bytes().end(), brief.begin(), brief.end()));
}

TEST_P(LinkTrouble, LosesNothingToErrorsAboutOtherDestinations) {
  const Address nobody = closed_port();
  std::size_t reports = 0;
  for (std::uint32_t round = 0; round < 50; ++round) {
    std::vector<std::byte> lost = pattern(20, round);
    std::vector<std::byte> outward = pattern(300, round);
    std::vector<std::byte> inward = pattern(200, round);
    std::vector<Train> trains{{.to = nobody, .bytes = lost},
                              {.to = receiver_->local(), .bytes = outward, .segment_size = 100},
                              {.to = nobody, .bytes = lost},
                              {.to = receiver_->local(), .bytes = outward, .segment_size = 100}};
    std::vector<SendStatus> statuses(4, SendStatus::failed);
    ASSERT_EQ(sender_->send(trains, statuses), 4u);
    ASSERT_EQ(statuses, std::vector(4, SendStatus::sent));
    ASSERT_EQ(receive_copies(*receiver_, 6).size(), 6u);
    // Now with an error pending that the receiving call gets to see.
    ASSERT_EQ(send_one(*sender_, {.to = nobody, .bytes = lost}), SendStatus::sent);
    ASSERT_TRUE(wait_error(*sender_));
    ASSERT_EQ(send_one(*receiver_, {.to = sender_->local(), .bytes = inward}), SendStatus::sent);
    const std::vector<Copy> copies = receive_copies(*sender_, 1);
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].bytes, inward);
    // The failed calls were noticed, so no hint is needed.
    Unreachable report;
    while (sender_->take_unreachable(report)) {
      EXPECT_EQ(report.who, nobody);
      ++reports;
    }
  }
  EXPECT_GE(reports, 50u);
  EXPECT_GT(sender_->report().stray_errors, 0u);
}

// We never send one, but anybody else can.
TEST_P(LinkTrouble, ReceivesAnEmptyDatagram) {
  const SocketAddress to{receiver_->local()};
  ASSERT_EQ(::sendto(sender_->descriptor(), "", 0, 0, &to.any, to.size), 0);
  std::vector<std::byte> bytes = pattern(10, 1);
  ASSERT_EQ(send_one(*sender_, {.to = receiver_->local(), .bytes = bytes}), SendStatus::sent);
  const std::vector<Copy> copies = receive_copies(*receiver_, 2);
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_TRUE(copies[0].bytes.empty());
  EXPECT_EQ(copies[0].from, sender_->local());
  EXPECT_EQ(copies[1].bytes, bytes);
}

TEST_P(LinkTrouble, LeavesDatagramsInTheSocketWhenThePoolIsEmpty) {
  constexpr std::uint32_t kCount = 12;
  ReceiveBufferPool small{{.max_buffers = 3}};
  std::unique_ptr<Link> starved = open(GetParam().receiver, small);
  for (std::uint32_t i = 0; i < kCount; ++i) {
    std::vector<std::byte> bytes = pattern(60'000, i);
    ASSERT_EQ(send_one(*sender_, {.to = starved->local(), .bytes = bytes}), SendStatus::sent);
  }
  std::vector<Datagram> held;
  std::vector<Datagram> burst;
  burst.reserve(kReceiveBurst);
  std::uint32_t seen = 0;
  while (seen < kCount && wait_readable(*starved)) {
    while (burst.clear(), starved->receive(burst) > 0) {
      for (const Datagram& datagram : burst) {
        ASSERT_EQ(bytes_of(datagram.bytes), pattern(60'000, seen));
        ++seen;
        datagram.buffer->add_ref();
        held.push_back(datagram);
      }
      starved->recycle();
      ASSERT_LE(small.in_use(), 3u);
    }
    // Everything held is intact though the link went on as far as it could.
    for (std::size_t i = 0; i < held.size(); ++i) {
      ASSERT_EQ(bytes_of(held[i].bytes), pattern(60'000, seen - static_cast<std::uint32_t>(held.size() - i)));
      held[i].buffer->release_ref();
    }
    held.clear();
    starved->recycle();
  }
  EXPECT_EQ(seen, kCount);
  EXPECT_GT(starved->report().starved_receives, 0u);
  EXPECT_EQ(starved->report().truncated_datagrams, 0u);
}

INSTANTIATE_TEST_SUITE_P(All, LinkTrouble, ::testing::ValuesIn(settings()),
                         [](const auto& parameter) { return name_of(parameter.param); });

TEST(UdpSocket, TellsFullBuffersFromOtherErrors) {
  EXPECT_EQ(UdpSocket::status_of(EAGAIN), SendStatus::would_block);
  EXPECT_EQ(UdpSocket::status_of(ENOBUFS), SendStatus::failed);  // the socket stays writable: waiting would spin
  EXPECT_EQ(UdpSocket::status_of(EMSGSIZE), SendStatus::too_big);
  EXPECT_EQ(UdpSocket::status_of(ENETUNREACH), SendStatus::unreachable);
  EXPECT_EQ(UdpSocket::status_of(EPERM), SendStatus::failed);
}

#if defined(__linux__) && !defined(WEIR_PORTABLE_UDP)

TEST(UdpLinux, SendsSegmentBySegmentWithoutOffload) {
  ReceiveBufferPool pool{{}};
  Result<UdpSocket> socket = UdpSocket::open({.bind = any_port(false)});
  ASSERT_TRUE(socket);
  UdpLinux link{std::move(*socket), pool};
  EXPECT_TRUE(link.report().segmentation_offload);
  EXPECT_TRUE(link.report().receive_offload);
  link.refuse_segmentation_offload();
  EXPECT_FALSE(link.report().segmentation_offload);
  std::vector<std::byte> bytes = pattern(100'000, 4);
  ASSERT_EQ(send_one(link, {.to = link.local(), .bytes = bytes, .segment_size = 1'000}), SendStatus::sent);
  const std::vector<Copy> copies = receive_copies(link, 100);
  ASSERT_EQ(copies.size(), 100u);
  for (std::size_t i = 0; i < copies.size(); ++i) {
    EXPECT_TRUE(std::equal(copies[i].bytes.begin(), copies[i].bytes.end(),
                           bytes.begin() + static_cast<std::ptrdiff_t>(i * 1'000)));
  }
}

// A socket without checksums cannot be offloaded: the kernel refuses UDP_SEGMENT as it does for some devices.
TEST(UdpLinux, FallsBackWhenTheKernelRefusesOffload) {
  ReceiveBufferPool pool{{}};
  Result<UdpSocket> socket = UdpSocket::open({.bind = any_port(false)});
  ASSERT_TRUE(socket);
  UdpLinux link{std::move(*socket), pool};
  const int on = 1;
  ASSERT_EQ(setsockopt(link.descriptor(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof on), 0);
  std::vector<std::byte> bytes = pattern(3'500, 4);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(send_one(link, {.to = link.local(), .bytes = bytes, .segment_size = 1'000}), SendStatus::sent);
    const std::vector<Copy> copies = receive_copies(link, 4);
    ASSERT_EQ(copies.size(), 4u);
    EXPECT_EQ(copies[3].bytes.size(), 500u);
  }
  EXPECT_FALSE(link.report().segmentation_offload);
  EXPECT_EQ(link.report().offload_refusals, 1u);
}

#else

TEST(OpenUdp, SaysThatThisBuildHasNoOffloads) {
  ReceiveBufferPool pool{{}};
  const auto link = open_udp({.bind = any_port(false), .kind = Kind::linux_offload}, pool);
  ASSERT_FALSE(link);
  EXPECT_EQ(link.error().code(), Code::invalid_argument);
}

#endif

}  // namespace
}  // namespace weir::link::testing
