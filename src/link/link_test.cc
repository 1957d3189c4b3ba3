// What links carry when all is well.
#include "link/link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "link/link_testing.h"
#include "link/open.h"

namespace weir::link::testing {
namespace {

TEST_P(LinkPair, KnowsThePortThatTheKernelChose) {
  EXPECT_NE(sender_->local().port, 0);
  Address without_port = sender_->local();
  without_port.port = 0;
  EXPECT_EQ(without_port, any_port(GetParam().is_v6));
  EXPECT_NE(sender_->local(), receiver_->local());
  EXPECT_GE(sender_->descriptor(), 0);
}

TEST_P(LinkPair, CarriesASingleDatagram) {
  std::vector<std::byte> bytes = pattern(100, 1);
  EXPECT_EQ(send_one(*sender_, {.to = receiver_->local(), .bytes = bytes}), SendStatus::sent);
  const std::vector<Copy> copies = receive_copies(*receiver_, 1);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].bytes, bytes);
  EXPECT_EQ(copies[0].from, sender_->local());
  EXPECT_EQ(copies[0].ecn, Ecn::not_ect);
}

TEST_P(LinkPair, ReturnsNothingWhenNothingCame) {
  std::vector<Datagram> burst;
  burst.reserve(kReceiveBurst);
  EXPECT_EQ(receiver_->receive(burst), 0u);
  EXPECT_TRUE(burst.empty());
}

TEST_P(LinkPair, CutsATrainIntoItsSegments) {
  struct Shape {
    std::size_t size;
    std::uint32_t segment;
  };
  // Whole and odd ends, more than 64 segments, more than 64 KiB, segments of which only one fits into 64 KiB.
  for (const Shape shape : {Shape{1, 1}, Shape{7, 3}, Shape{1200, 1200}, Shape{1201, 1200}, Shape{12'345, 1200},
                            Shape{300, 2}, Shape{8192, 64}, Shape{200'000, 1472}, Shape{200'001, 40'000},
                            Shape{130'000, 65'000}, Shape{131'010, 21'835}, Shape{500, 65'507}, Shape{900, 0}}) {
    std::vector<std::byte> bytes = pattern(shape.size, shape.segment);
    const Train train{.to = receiver_->local(), .bytes = bytes, .segment_size = shape.segment};
    EXPECT_EQ(send_one(*sender_, train), SendStatus::sent);
    const std::size_t segment = shape.segment == 0 ? shape.size : shape.segment;
    const std::size_t count = (shape.size + segment - 1) / segment;
    const std::vector<Copy> copies = receive_copies(*receiver_, count);
    ASSERT_EQ(copies.size(), count) << shape.size << " bytes in segments of " << shape.segment;
    std::vector<std::byte> joined;
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(copies[i].bytes.size(), std::min(segment, shape.size - i * segment));
      joined.insert(joined.end(), copies[i].bytes.begin(), copies[i].bytes.end());
    }
    EXPECT_EQ(joined, bytes);
  }
}

TEST_P(LinkPair, CarriesTheLargestDatagram) {
  const std::size_t size = sender_->report().max_datagram_bytes;
  EXPECT_EQ(size, GetParam().is_v6 ? 65'487u : 65'507u);
  std::vector<std::byte> bytes = pattern(size, 3);
  EXPECT_EQ(send_one(*sender_, {.to = receiver_->local(), .bytes = bytes}), SendStatus::sent);
  const std::vector<Copy> copies = receive_copies(*receiver_, 1);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].bytes, bytes);
}

TEST_P(LinkPair, SendsManyTrainsInOrder) {
  constexpr std::size_t kTrains = 100;  // more than one system call takes
  std::vector<std::vector<std::byte>> payloads;
  std::vector<Train> trains;
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < kTrains; ++i) payloads.push_back(pattern(1 + i * 37 % 1900, i));
  for (auto& payload : payloads) {
    trains.push_back({.to = receiver_->local(), .bytes = payload, .segment_size = 300});
    count += (payload.size() + 299) / 300;
  }
  trains.insert(trains.begin() + 50, Train{.to = receiver_->local(), .segment_size = 300});  // nothing to send
  std::vector<SendStatus> statuses(trains.size(), SendStatus::failed);
  EXPECT_EQ(sender_->send(trains, statuses), trains.size());
  EXPECT_EQ(std::count(statuses.begin(), statuses.end(), SendStatus::sent), static_cast<long>(trains.size()));

  const std::vector<Copy> copies = receive_copies(*receiver_, count);
  ASSERT_EQ(copies.size(), count);
  std::vector<std::byte> wanted;
  for (const auto& payload : payloads) wanted.insert(wanted.end(), payload.begin(), payload.end());
  std::vector<std::byte> joined;
  for (const Copy& copy : copies) joined.insert(joined.end(), copy.bytes.begin(), copy.bytes.end());
  EXPECT_EQ(joined, wanted);
}

TEST_P(LinkPair, CarriesEcnMarks) {
  EXPECT_TRUE(sender_->report().ecn_send);
  EXPECT_TRUE(receiver_->report().ecn_receive);
  for (const Ecn ecn : {Ecn::ect0, Ecn::ce, Ecn::not_ect, Ecn::ect1}) {
    std::vector<std::byte> bytes = pattern(3000, 5);
    EXPECT_EQ(send_one(*sender_, {.to = receiver_->local(), .ecn = ecn, .bytes = bytes, .segment_size = 1000}),
              SendStatus::sent);
    const std::vector<Copy> copies = receive_copies(*receiver_, 3);
    ASSERT_EQ(copies.size(), 3u);
    for (const Copy& copy : copies) EXPECT_EQ(copy.ecn, ecn);
  }
}

TEST_P(LinkPair, TellsManySendersApart) {
  constexpr std::size_t kSenders = 20;
  std::vector<std::unique_ptr<Link>> senders;
  for (std::size_t i = 0; i < kSenders; ++i) senders.push_back(open(GetParam().sender, sender_pool_));
  for (std::uint32_t round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < kSenders; ++i) {
      std::vector<std::byte> bytes = pattern(400 + i, round);
      EXPECT_EQ(send_one(*senders[i], {.to = receiver_->local(), .bytes = bytes, .segment_size = 100}),
                SendStatus::sent);
    }
    std::size_t count = 0;
    for (std::size_t i = 0; i < kSenders; ++i) count += (400 + i + 99) / 100;
    const std::vector<Copy> copies = receive_copies(*receiver_, count);
    ASSERT_EQ(copies.size(), count);
    for (std::size_t i = 0; i < kSenders; ++i) {
      std::vector<std::byte> joined;
      for (const Copy& copy : copies) {
        if (copy.from == senders[i]->local()) joined.insert(joined.end(), copy.bytes.begin(), copy.bytes.end());
      }
      EXPECT_EQ(joined, pattern(400 + i, round));
    }
  }
}

TEST_P(LinkPair, AnswersTheAddressThatADatagramCameFrom) {
  std::vector<std::byte> question = pattern(50, 1);
  std::vector<std::byte> answer = pattern(60, 2);
  EXPECT_EQ(send_one(*sender_, {.to = receiver_->local(), .bytes = question}), SendStatus::sent);
  const std::vector<Copy> asked = receive_copies(*receiver_, 1);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(send_one(*receiver_, {.to = asked[0].from, .bytes = answer}), SendStatus::sent);
  const std::vector<Copy> answered = receive_copies(*sender_, 1);
  ASSERT_EQ(answered.size(), 1u);
  EXPECT_EQ(answered[0].bytes, answer);
  EXPECT_EQ(answered[0].from, receiver_->local());
}

TEST_P(LinkPair, KeepsAPinnedBufferWhileMoreArrives) {
  std::vector<Datagram> burst;
  burst.reserve(kReceiveBurst);
  std::vector<Datagram> pinned;
  std::vector<std::vector<std::byte>> wanted;
  for (std::uint32_t round = 0; round < 200; ++round) {
    std::vector<std::byte> bytes = pattern(5000, round);
    ASSERT_EQ(send_one(*sender_, {.to = receiver_->local(), .bytes = bytes}), SendStatus::sent);
    ASSERT_TRUE(wait_readable(*receiver_));
    burst.clear();
    ASSERT_EQ(receiver_->receive(burst), 1u);
    if (round % 10 == 0) {
      burst[0].buffer->add_ref();
      pinned.push_back(burst[0]);
      wanted.push_back(bytes);
    }
    receiver_->recycle();
  }
  for (std::size_t i = 0; i < pinned.size(); ++i) EXPECT_EQ(bytes_of(pinned[i].bytes), wanted[i]);
  receiver_.reset();  // pins outlive their link
  for (std::size_t i = 0; i < pinned.size(); ++i) {
    EXPECT_EQ(bytes_of(pinned[i].bytes), wanted[i]);
    pinned[i].buffer->release_ref();
  }
  EXPECT_EQ(receiver_pool_.in_use(), 0u);
}

TEST_P(LinkPair, KeepsDatagramsOfEarlierReceivesUntilRecycled) {
  std::vector<Datagram> all;
  all.reserve(2 * kReceiveBurst);
  for (std::uint32_t i = 0; i < 6; ++i) {
    std::vector<std::byte> bytes = pattern(30'000, i);
    ASSERT_EQ(send_one(*sender_, {.to = receiver_->local(), .bytes = bytes}), SendStatus::sent);
    ASSERT_TRUE(wait_readable(*receiver_));
    ASSERT_EQ(receiver_->receive(all), 1u);
  }
  for (std::uint32_t i = 0; i < 6; ++i) EXPECT_EQ(bytes_of(all[i].bytes), pattern(30'000, i));
  receiver_->recycle();
}

TEST_P(LinkPair, NeverGrowsTheVectorItReceivesInto) {
  std::vector<std::byte> bytes = pattern(200, 9);
  for (int i = 0; i < 8; ++i) {
    ASSERT_EQ(send_one(*sender_, {.to = receiver_->local(), .bytes = bytes, .segment_size = 2}), SendStatus::sent);
  }
  std::vector<Datagram> burst;
  burst.reserve(kDatagramsPerBuffer);
  const Datagram* const place = burst.data();
  std::size_t total = 0;
  while (total < 800 && wait_readable(*receiver_)) {
    burst.clear();
    total += receiver_->receive(burst);
    ASSERT_LE(burst.size(), burst.capacity());
    ASSERT_EQ(burst.data(), place);
    receiver_->recycle();
  }
  EXPECT_EQ(total, 800u);
}

TEST_P(LinkPair, HoldsFewBuffersWhenItsTrafficIsOver) {
  std::vector<std::byte> bytes = pattern(60'000, 9);
  for (int i = 0; i < 30; ++i) send_one(*sender_, {.to = receiver_->local(), .bytes = bytes});
  EXPECT_EQ(receive_copies(*receiver_, 30).size(), 30u);
  std::vector<Datagram> burst;
  burst.reserve(kReceiveBurst);
  for (int i = 0; i < 2000; ++i) {
    receiver_->receive(burst);
    receiver_->recycle();
  }
  EXPECT_LE(receiver_pool_.in_use(), 1u);
}

INSTANTIATE_TEST_SUITE_P(All, LinkPair, ::testing::ValuesIn(settings()),
                         [](const auto& parameter) { return name_of(parameter.param); });

}  // namespace
}  // namespace weir::link::testing
