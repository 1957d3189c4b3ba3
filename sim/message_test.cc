#include "sim/message.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir::sim {
namespace {

Instruction sample() {
  return {.id = 77,
          .answer = Answer::later,
          .keeps_request = true,
          .depth = 2,
          .priority = 5,
          .nested_host = 3,
          .delay_us = 900,
          .bytes = 1'001,
          .header_bytes = 40,
          .reply_bytes = 333};
}

TEST(Message, ARequestComesBackAsItWasWritten) {
  std::vector<std::byte> bytes(1'001);
  write_request(bytes, sample());
  const auto read = read_request(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->id, 77u);
  EXPECT_EQ(read->answer, Answer::later);
  EXPECT_EQ(read->delay_us, 900u);
  EXPECT_EQ(read->reply_bytes, 333u);
}

TEST(Message, NoBitOfARequestCanChangeUnnoticed) {
  std::vector<std::byte> bytes(1'001);
  write_request(bytes, sample());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{4};
    EXPECT_FALSE(read_request(bytes).has_value()) << "byte " << i;
    bytes[i] ^= std::byte{4};
  }
  EXPECT_FALSE(read_request(std::span(bytes).first(1'000)).has_value());
}

TEST(Message, AReplyBelongsToOneRequestOnly) {
  std::vector<std::byte> reply(333);
  write_reply(reply, sample());
  const std::size_t header = reply_header_bytes(sample());
  EXPECT_TRUE(is_reply_to(reply, header, sample()));
  Instruction other = sample();
  other.id = 78;
  EXPECT_FALSE(is_reply_to(reply, reply_header_bytes(other), other));
  EXPECT_FALSE(is_reply_to(reply, header + 1, sample()));
  for (std::size_t i = 0; i < reply.size(); ++i) {
    reply[i] ^= std::byte{128};
    EXPECT_FALSE(is_reply_to(reply, header, sample())) << "byte " << i;
    reply[i] ^= std::byte{128};
  }
}

}  // namespace
}  // namespace weir::sim
