#include "buffer/size_class.h"

#include <gtest/gtest.h>

namespace weir::buffer {
namespace {

TEST(SizeClass, FourToADoublingFrom32KibTo64Mib) {
  EXPECT_EQ(class_bytes(0), std::size_t{32} << 10);
  EXPECT_EQ(class_bytes(1), std::size_t{40} << 10);
  EXPECT_EQ(class_bytes(4), std::size_t{64} << 10);
  EXPECT_EQ(class_bytes(kSizeClasses - 1), std::size_t{64} << 20);
}

TEST(SizeClass, EachSizeGetsTheSmallestClassThatHoldsItAndServesTheLargestWithinIt) {
  for (std::size_t index = 0; index < kSizeClasses; ++index) {
    const std::size_t bytes = class_bytes(index);
    EXPECT_EQ(class_for(bytes), index);
    EXPECT_EQ(class_within(bytes), index);
    if (index > 0) {
      EXPECT_EQ(class_for(bytes - 1), index);
      EXPECT_EQ(class_within(bytes - 1), index - 1);
      EXPECT_EQ(class_for(class_bytes(index - 1) + 1), index);
    }
  }
  EXPECT_EQ(class_for(0), 0u);
  EXPECT_EQ(class_for(1), 0u);
}

}  // namespace
}  // namespace weir::buffer
