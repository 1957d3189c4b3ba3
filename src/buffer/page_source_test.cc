#include "buffer/page_source.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>

namespace weir::buffer {
namespace {

TEST(PageSource, MapsAlignedMemoryThatCanBeWrittenWhetherOrNotThereAreHugePages) {
  for (const bool huge : {false, true}) {
    int told = 0;
    PageSource source{{.huge = huge, .touch = true, .on_degraded = [&](std::string_view sentence) {
                         ++told;
                         EXPECT_NE(sentence.find("huge pages"), std::string_view::npos);
                       }}};
    for (int round = 0; round < 3; ++round) {
      const auto extent = source.map(2 * PageSource::kHugePageBytes, -1);
      ASSERT_TRUE(extent) << extent.error().to_string();
      source.tell();
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(extent->data) % PageSource::kHugePageBytes, 0u);
      std::memset(extent->data, 0x5a, extent->bytes);
      EXPECT_EQ(extent->data[extent->bytes - 1], std::byte{0x5a});
      source.unmap(*extent);
    }
    EXPECT_EQ(told, source.degraded() ? 1 : 0);  // told once, not for each extent
    if (!huge) {
      EXPECT_FALSE(source.degraded());
    }
  }
}

TEST(PageSource, MoreThanThereIsIsAnError) {
  PageSource source{{.huge = true}};
  const auto extent = source.map(std::size_t{1} << 50, -1);
  ASSERT_FALSE(extent);
  EXPECT_EQ(extent.error().code(), Code::system);
}

TEST(PageSource, AWishForANodeThatIsNotThereComesToNothing) {
  const PageSource source{{}};
  EXPECT_EQ(source.node_for(4'711), -1);
  EXPECT_EQ(source.node_for(-1), -1);
}

}  // namespace
}  // namespace weir::buffer
