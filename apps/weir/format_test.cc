#include "apps/weir/format.h"

#include <gtest/gtest.h>

#include <limits>

#include "apps/weir/json.h"

namespace weir::command {
namespace {

TEST(Format, GroupsDigitsByThousands) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(1234567), "1,234,567");
}

TEST(Format, ChoosesAUnitThatReadsWell) {
  EXPECT_EQ(in_time(850), "0.8 us");
  EXPECT_EQ(in_time(12'345), "12.3 us");
  EXPECT_EQ(in_time(2'500'000), "2.50 ms");
  EXPECT_EQ(in_time(3e9), "3.00 s");
  EXPECT_EQ(in_rate(4'210'000), "4.21 M");
  EXPECT_EQ(in_rate(12), "12");
  EXPECT_EQ(in_bytes(8 << 20), "8.0 MiB");
  EXPECT_EQ(in_bytes(12), "12 B");
}

TEST(Format, SaysOneOfOneThing) {
  EXPECT_EQ(counted(0, "call"), "0 calls");
  EXPECT_EQ(counted(1, "call"), "1 call");
  EXPECT_EQ(counted(1000, "call"), "1,000 calls");
}

TEST(Format, TellsOfOneFrameAndOfManyWhatWasSentAgain) {
  EXPECT_EQ(sent_again(0, 0), "Nothing had to be sent again");
  EXPECT_EQ(sent_again(1, 0.0001), "1 frame (0.01 % of the bytes) was sent again, because of loss or delay");
  EXPECT_EQ(sent_again(1234, 0.5), "1,234 frames (50.00 % of the bytes) were sent again, because of loss or delay");
}

TEST(Format, HasNoShareOfNothing) {
  EXPECT_EQ(share(1, 0), 0);
  EXPECT_EQ(share(1, 4), 0.25);
}

TEST(Json, EscapesWhatMustNotStandInAString) {
  EXPECT_EQ(json_string("a\"b\\c\n"), R"("a\"b\\c\n")");
  EXPECT_EQ(json_string("\b\f\r\t"), R"("\b\f\r\t")");
  EXPECT_EQ(json_string({"\0\x01\x1b\x1f\x7f", 5}), R"("\u0000\u0001\u001b\u001f\u007f")");
  EXPECT_EQ(json_string("\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0"), "\"\\u0080\\u009b\\u009f\xc2\xa0\"")
      << "a terminal obeys CSI";
}

TEST(Json, KeepsCharactersAndReplacesWhatIsNotUtf8) {
  EXPECT_EQ(json_string("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
  EXPECT_EQ(json_string("a\xff"), R"("a\ufffd")");
  EXPECT_EQ(json_string("\xc3"), R"("\ufffd")") << "cut off";
  EXPECT_EQ(json_string("\xc0\xaf"), R"("\ufffd\ufffd")") << "overlong";
  EXPECT_EQ(json_string("\xed\xa0\x80"), R"("\ufffd\ufffd\ufffd")") << "a surrogate";
  EXPECT_EQ(json_string("\xf4\x90\x80\x80"), R"("\ufffd\ufffd\ufffd\ufffd")") << "beyond U+10FFFF";
  EXPECT_EQ(json_string("\xe2\x82\"\x80"), R"("\ufffd\ufffd\"\ufffd")") << "a quote is never part of a wrong character";
}

TEST(Json, HasNoWordForWhatIsNoNumber) {
  EXPECT_EQ(JsonObject().add("x", std::numeric_limits<double>::infinity()).text(), R"({"x": null})");
}

TEST(Json, WritesKeysInTheirOrder) {
  EXPECT_EQ(JsonObject().add("n", 3).add("x", 0.5, 2).add("t", true).add("s", "y").text(),
            R"({"n": 3, "x": 0.50, "t": true, "s": "y"})");
}

}  // namespace
}  // namespace weir::command
