#include "worker/seat.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <vector>

#include "base/address.h"
#include "base/segment.h"
#include "engine/engine.h"
#include "link/link.h"

namespace weir::worker {
namespace {

TEST(Seat, HandsATrainOnWithItsBytes) {
  std::vector<std::byte> bytes(3'000);
  const link::Train train =
      train_for_link({.to = Address::v4(0x7f000001, 7), .ecn = 2, .bytes = bytes, .segment_size = 1'200, .path = 5});
  EXPECT_EQ(train.to, Address::v4(0x7f000001, 7));
  EXPECT_EQ(train.ecn, link::Ecn::ect0);
  EXPECT_EQ(train.bytes.data(), bytes.data());
  EXPECT_EQ(train.bytes.size(), bytes.size());
  EXPECT_EQ(train.segment_size, 1'200u);
  EXPECT_TRUE(train.segments.empty());
}

TEST(Seat, HandsATrainOnWithItsSegmentsWhereTheyAre) {
  const std::vector<std::byte> head(48);
  const std::vector<std::byte> body(1'424);
  const std::array<Segment, 2> segments{Segment{.head = head, .body = body}, Segment{.head = head, .body = {}}};
  const link::Train train =
      train_for_link({.to = Address::v4(0x7f000001, 7), .ecn = 1, .segment_size = 1'472, .segments = segments});
  EXPECT_EQ(train.ecn, link::Ecn::ect1);
  EXPECT_TRUE(train.bytes.empty());
  EXPECT_EQ(train.segment_size, 1'472u);
  EXPECT_EQ(train.segments.data(), segments.data());
  EXPECT_EQ(train.segments.size(), 2u);
}

}  // namespace
}  // namespace weir::worker
