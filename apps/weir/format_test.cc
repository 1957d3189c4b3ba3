#include "apps/weir/format.h"

#include <gtest/gtest.h>

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

TEST(Format, HasNoShareOfNothing) {
  EXPECT_EQ(share(1, 0), 0);
  EXPECT_EQ(share(1, 4), 0.25);
}

TEST(Json, EscapesWhatMustNotStandInAString) { EXPECT_EQ(json_string("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\""); }

TEST(Json, WritesKeysInTheirOrder) {
  EXPECT_EQ(JsonObject().add("n", 3).add("x", 0.5, 2).add("t", true).add("s", "y").text(),
            R"({"n": 3, "x": 0.50, "t": true, "s": "y"})");
}

}  // namespace
}  // namespace weir::command
