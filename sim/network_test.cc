#include "sim/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sim/link.h"

namespace weir::sim {
namespace {

const Address kLeft = Address::v4(0x0a000001, 1);
const Address kRight = Address::v4(0x0a000002, 1);

class Catcher : public Port {
 public:
  explicit Catcher(EventQueue& queue) : queue_(queue) {}
  void arrive(const Packet& packet) override {
    packets.push_back(packet);
    times.push_back(queue_.now());
  }
  void arrive_unreachable(const Address&, ByteSpan quoted) override { quoted_bytes.push_back(quoted.size()); }

  std::vector<Packet> packets;
  std::vector<Instant> times;
  std::vector<std::size_t> quoted_bytes;

 private:
  EventQueue& queue_;
};

class NetworkTest : public testing::Test {
 protected:
  explicit NetworkTest(LinkShape shape = {.latency = Duration{1'000}, .bytes_per_second = 1'000'000'000}) {
    left_ = network_.add_host(kLeft, shape);
    right_ = network_.add_host(kRight, shape);
    network_.plug(kRight, &catcher_);
  }

  void send(std::size_t bytes, std::uint8_t ecn = 2, std::byte value = std::byte{7}) {
    network_.transmit(left_, {kLeft, kRight, ecn, std::vector<std::byte>(bytes, value)});
  }
  void finish() {
    while (queue_.run_next(queue_.now() + std::chrono::hours{1})) {
    }
  }

  EventQueue queue_;
  Journal journal_{false};
  Network network_{queue_, journal_, 1};
  Catcher catcher_{queue_};
  HostId left_ = 0;
  HostId right_ = 0;
};

TEST_F(NetworkTest, AHostBehindANatIsSeenAndReachedAtItsPresentOutsideAddressOnly) {
  const Address first = Address::v4(0xcb007101, 10), second = Address::v4(0xcb007102, 20);
  Catcher left(queue_);
  network_.plug(kLeft, &left);
  const auto reaches = [&](const Address& to) {
    const std::size_t before = left.packets.size();
    network_.transmit(right_, {kRight, to, 0, std::vector<std::byte>(10)});
    finish();
    return left.packets.size() != before;
  };
  EXPECT_EQ(network_.outside_of(kLeft), kLeft);
  for (const Address& outside : {first, second, first, kLeft}) {
    network_.rebind(kLeft, outside);
    send(10);
    finish();
    EXPECT_EQ(catcher_.packets.back().source, outside);
    EXPECT_EQ(network_.find(outside), left_);
    for (const Address& each : {first, second, kLeft}) EXPECT_EQ(reaches(each), each == outside);
  }
}

TEST_F(NetworkTest, ADatagramTakesLatencyAndTransmissionTimeOnBothLinks) {
  const Instant start = queue_.now();
  send(954);  // 1,000 bytes on the wire: one microsecond per link
  finish();
  ASSERT_EQ(catcher_.times.size(), 1u);
  EXPECT_EQ((catcher_.times[0] - start).count(), 4'000);
}

TEST_F(NetworkTest, DatagramsWaitForEachOther) {
  send(954);
  send(954);
  finish();
  ASSERT_EQ(catcher_.times.size(), 2u);
  EXPECT_EQ((catcher_.times[1] - catcher_.times[0]).count(), 1'000);
}

TEST_F(NetworkTest, APartitionLastsFromItsStartToItsEndInOneDirection) {
  network_.cut(left_, right_, queue_.now(), queue_.now() + Duration{10'000});
  send(10);
  finish();
  EXPECT_TRUE(catcher_.packets.empty());
  queue_.at(Instant{1'000'020'000}, [this] { send(10); });
  finish();
  EXPECT_EQ(catcher_.packets.size(), 1u);
}

TEST_F(NetworkTest, ARouterDropsWhatIsTooBigForIt) {
  network_.set_path_datagram_bytes(left_, right_, 1'200);
  send(1'201);
  send(1'200);
  finish();
  ASSERT_EQ(catcher_.packets.size(), 1u);
  EXPECT_EQ(catcher_.packets[0].bytes.size(), 1'200u);
}

TEST_F(NetworkTest, LosesAndDoublesAsOftenAsItWasTold) {
  network_.set_faults({.loss = 0.25, .duplicate = 0.5});
  for (int i = 0; i < 1'000; ++i) {
    send(10);
    finish();
  }
  EXPECT_NEAR(static_cast<double>(network_.counts().lost), 250, 60);
  EXPECT_NEAR(static_cast<double>(catcher_.packets.size()), 750 * 1.5, 100);
}

TEST_F(NetworkTest, CorruptionChangesADatagram) {
  network_.set_faults({.corrupt = 1});
  send(100);
  finish();
  ASSERT_EQ(catcher_.packets.size(), 1u);
  EXPECT_NE(catcher_.packets[0].bytes, std::vector<std::byte>(100, std::byte{7}));
}

TEST_F(NetworkTest, AClosedPortIsReportedToTheSender) {
  network_.report_closed_ports(true);
  Catcher sender(queue_);
  network_.plug(kLeft, &sender);
  network_.plug(kRight, nullptr);
  send(100);
  finish();
  ASSERT_EQ(sender.quoted_bytes.size(), 1u);
  EXPECT_EQ(sender.quoted_bytes[0], 32u);
}

class ShortQueueTest : public NetworkTest {
 protected:
  ShortQueueTest()
      : NetworkTest({.latency = Duration{1'000},
                     .bytes_per_second = 1'000'000,
                     .queue_bytes = 5'000,
                     .ecn_threshold_bytes = 1'500}) {}
};

TEST_F(ShortQueueTest, MarksAboveTheThresholdAndDropsWhatDoesNotFit) {
  for (int i = 0; i < 10; ++i) network_.inject({kLeft, kRight, 2, std::vector<std::byte>(954)});
  finish();
  EXPECT_EQ(catcher_.packets.size(), 5u);
  EXPECT_EQ(network_.counts().marked, 3u);
  EXPECT_EQ(network_.counts().queue_drops, 5u);
  EXPECT_EQ(catcher_.packets.back().ecn, 3);
}

TEST_F(ShortQueueTest, ALinkWouldBlockUntilItsQueueHasRoom) {
  SimLink link(network_, queue_, left_, kLeft, {.blocks = true}, [] {});
  std::vector<std::byte> bytes(9'540);
  link::Train train{.to = kRight, .bytes = bytes, .segment_size = 954};
  link::SendStatus status{};
  EXPECT_EQ(link.send({&train, 1}, {&status, 1}), 0u);
  EXPECT_EQ(status, link::SendStatus::would_block);
  EXPECT_EQ(train.bytes.size(), 5u * 954);
  for (int round = 0; round < 10 && link.send({&train, 1}, {&status, 1}) == 0; ++round) {
    while (queue_.run_next(link.writable_at())) {
    }
  }
  finish();
  EXPECT_EQ(status, link::SendStatus::sent);
  EXPECT_EQ(catcher_.packets.size(), 10u);
}

TEST_F(ShortQueueTest, ALinkJoinsGatheredSegmentsAndKeepsThoseWithoutRoom) {
  SimLink link(network_, queue_, left_, kLeft, {.blocks = true}, [] {});
  const std::vector<std::byte> head(54, std::byte{1});
  const std::vector<std::byte> body(900, std::byte{2});
  std::vector<Segment> segments(9, Segment{.head = head, .body = body});
  segments.push_back({.head = head, .body = ByteSpan{body}.first(5)});
  link::Train train{.to = kRight, .ecn = link::Ecn::ect0, .segment_size = 954, .segments = segments};
  link::SendStatus status{};
  EXPECT_EQ(link.send({&train, 1}, {&status, 1}), 0u);
  EXPECT_EQ(status, link::SendStatus::would_block);
  EXPECT_EQ(train.segments.size(), 5u);
  for (int round = 0; round < 10 && link.send({&train, 1}, {&status, 1}) == 0; ++round) {
    while (queue_.run_next(link.writable_at())) {
    }
  }
  finish();
  EXPECT_EQ(status, link::SendStatus::sent);
  ASSERT_EQ(catcher_.packets.size(), 10u);
  std::vector<std::byte> whole(954, std::byte{2});
  std::ranges::copy(head, whole.begin());
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(catcher_.packets[i].bytes, whole);
  whole.resize(59);
  EXPECT_EQ(catcher_.packets[9].bytes, whole);

  const std::vector<std::byte> too_much(1'419);
  const Segment oversized{.head = head, .body = too_much};
  train.segments = {&oversized, 1};
  EXPECT_EQ(link.send({&train, 1}, {&status, 1}), 1u);
  EXPECT_EQ(status, link::SendStatus::too_big);
}

TEST_F(NetworkTest, ALinkReceivesInPackedBuffersAndRefusesWhatTheInterfaceCannotCarry) {
  bool woken = false;
  SimLink link(network_, queue_, right_, kRight, {}, [&] { woken = true; });
  for (std::size_t i = 0; i < 3; ++i) send(100 + i, 2, static_cast<std::byte>(i));
  finish();
  EXPECT_TRUE(woken);
  std::vector<link::Datagram> out;
  out.reserve(link::kReceiveBurst);
  ASSERT_EQ(link.receive(out), 3u);
  EXPECT_EQ(out[2].bytes.size(), 102u);
  EXPECT_EQ(out[2].bytes[101], std::byte{2});
  EXPECT_EQ(out[2].from, kLeft);
  EXPECT_EQ(link.buffers_in_use(), 1u);
  link.recycle();
  EXPECT_EQ(link.buffers_in_use(), 0u);

  std::vector<std::byte> large(1'473);
  link::Train train{.to = kLeft, .bytes = large};
  link::SendStatus status{};
  EXPECT_EQ(link.send({&train, 1}, {&status, 1}), 1u);
  EXPECT_EQ(status, link::SendStatus::too_big);
}

TEST(EventQueue, RunsEventsOfOneInstantInTheOrderOfTheirCreation) {
  EventQueue queue;
  std::vector<int> order;
  for (int i = 0; i < 50; ++i) queue.after(Duration{100 - i % 5}, [&order, i] { order.push_back(i % 5 * 100 + i); });
  while (queue.run_next(Instant{2'000'000'000})) {
  }
  ASSERT_EQ(order.size(), 50u);
  EXPECT_EQ(order.front(), 404);
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i] / 100 == order[i - 1] / 100) {
      EXPECT_GT(order[i], order[i - 1]);
    } else {
      EXPECT_LT(order[i] / 100, order[i - 1] / 100);
    }
  }
  EXPECT_EQ(queue.now(), Instant{2'000'000'000});
}

}  // namespace
}  // namespace weir::sim
