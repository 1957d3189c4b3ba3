#include "pool/bulk_frame.h"

#include <gtest/gtest.h>

#include "weir/body.h"

namespace weir::pool {
namespace {

TEST(BulkFrame, ComesBackAsItWas) {
  const std::string bytes = encode(BulkFrame{
      .is_put = true, .sync = true, .offset = 7, .bytes = 1ull << 40, .name = "shard-7", .header = as_bytes("header")});
  const auto frame = decode_bulk(as_bytes(bytes));
  ASSERT_TRUE(frame);
  EXPECT_TRUE(frame->is_put && frame->sync);
  EXPECT_EQ(frame->offset, 7u);
  EXPECT_EQ(frame->bytes, 1ull << 40);
  EXPECT_EQ(frame->name, "shard-7");
  EXPECT_EQ(frame->header.size(), 6u);
}

TEST(BulkFrame, NonsenseIsRefused) {
  const std::string good = encode(BulkFrame{.name = "shard-7"});
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(decode_bulk(as_bytes(good.substr(0, size))));
  EXPECT_TRUE(decode_bulk(as_bytes(good)));
  EXPECT_FALSE(decode_bulk(as_bytes(encode(BulkFrame{.name = ""}))));
  EXPECT_FALSE(decode_bulk(as_bytes(encode(BulkFrame{.name = std::string(256, 'n')}))));
  const std::string header(513, 'h');
  EXPECT_FALSE(decode_bulk(as_bytes(encode(BulkFrame{.name = "n", .header = as_bytes(header)}))));
  EXPECT_FALSE(decode_bulk(as_bytes(encode(BulkFrame{.offset = ~0ull, .name = "n"}))));
  EXPECT_FALSE(decode_bulk(as_bytes(encode(BulkFrame{.bytes = ~0ull, .name = "n"}))));
  for (const std::size_t place : {0, 1, 4, 5, 6, 7}) {
    std::string bad = good;
    bad[place] = '\x80';
    EXPECT_FALSE(decode_bulk(as_bytes(bad))) << place;
  }
}

TEST(BulkFrame, AnswersComeBackAsTheyWere) {
  const auto ask = decode_ask_answer(as_bytes(encode(AskAnswer{.placement_bytes = 5, .largest_part_bytes = 6})));
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->placement_bytes, 5u);
  EXPECT_EQ(ask->largest_part_bytes, 6u);
  EXPECT_FALSE(decode_ask_answer(as_bytes("short")));
  const std::string bytes = encode(PutAnswer{.code = Code::refused, .written_bytes = 9, .sentence = "no"});
  const auto put = decode_put_answer(as_bytes(bytes));
  ASSERT_TRUE(put);
  EXPECT_EQ(put->code, Code::refused);
  EXPECT_EQ(put->written_bytes, 9u);
  EXPECT_EQ(put->sentence, "no");
  EXPECT_FALSE(decode_put_answer(as_bytes("short")));
  EXPECT_FALSE(decode_put_answer(as_bytes("\xff" + bytes.substr(1))));
}

}  // namespace
}  // namespace weir::pool
