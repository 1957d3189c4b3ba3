#include "base/check.h"

#include <gtest/gtest.h>

#include <string_view>

namespace weir {
namespace {

TEST(CheckDeathTest, SaysTheFolderAndTheFileAndNotWhereTheTreeWasCompiled) {
  EXPECT_DEATH(WEIR_CHECK(1 + 1 == 3, "arithmetic broke"),
               "weir: base/check_test.cc:[0-9]+: CHECK\\(1 \\+ 1 == 3\\) failed: arithmetic broke");
}

TEST(CheckTest, ShortensAnyPath) {
  EXPECT_EQ(std::string_view("pool/lane.cc"), source_name("/a/b/src/pool/lane.cc"));
  EXPECT_EQ(std::string_view("pool/lane.cc"), source_name("pool/lane.cc"));
  EXPECT_EQ(std::string_view("/lane.cc"), source_name("/lane.cc"));
  EXPECT_EQ(std::string_view("lane.cc"), source_name("lane.cc"));
}

}  // namespace
}  // namespace weir
