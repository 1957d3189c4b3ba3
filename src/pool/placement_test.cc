#include "pool/placement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "buffer/buffer_pool.h"
#include "pool/bulk_testing.h"

namespace weir::pool {
namespace {

using testing::bytes_of;
using testing::pattern;
using testing::TemporaryFile;

TEST(Placement, NamesAreThereOnceAndGoAway) {
  Placements placements;
  std::string memory(100, 'o');
  EXPECT_FALSE(placements.add("", Placement::memory(bytes_of(memory))));
  EXPECT_FALSE(placements.add(std::string(256, 'n'), Placement::memory(bytes_of(memory))));
  EXPECT_TRUE(placements.add("a", Placement::memory(bytes_of(memory))));
  EXPECT_FALSE(placements.add("a", Placement::memory(bytes_of(memory))));
  EXPECT_TRUE(placements.find("a"));
  EXPECT_FALSE(placements.find("b"));
  EXPECT_FALSE(placements.remove("b"));
  EXPECT_TRUE(placements.remove("a"));
  EXPECT_FALSE(placements.find("a"));
  EXPECT_TRUE(placements.add("a", Placement::memory(bytes_of(memory))));
}

TEST(Placement, FilesAreCreatedOnlyIfAskedFor) {
  std::string path;
  {
    const TemporaryFile file;
    path = file.path();
  }
  Placements placements;
  EXPECT_FALSE(placements.add("a", Placement::file(path)));
  EXPECT_TRUE(placements.add("a", Placement::file(path, {.create = true})));
  EXPECT_FALSE(placements.add("b", Placement::file("/")));
  unlink(path.c_str());
}

TEST(Placement, ATeeGetsWhatWasWrittenAndACacheAsMuchAsFits) {
  std::string memory(100, 'o'), cache(10, 'o'), heard;
  Placements placements;
  ASSERT_TRUE(placements.add(
      "a", Placement::memory(bytes_of(memory)).tee(bytes_of(cache)).tee([&](std::uint64_t at, Bytes text) {
        heard += std::to_string(at) + ":" + std::string(reinterpret_cast<const char*>(text.data()), text.size()) + " ";
        const Result<void> inside = placements.remove("a");
        EXPECT_FALSE(inside) << "that would wait for itself";
      })));
  const auto placed = placements.find("a").value();
  ASSERT_TRUE(placed->write(8, as_bytes("1234")));
  ASSERT_TRUE(placed->write(50, as_bytes("56")));
  EXPECT_EQ(memory.substr(8, 4), "1234");
  EXPECT_EQ(memory.substr(50, 2), "56");
  EXPECT_EQ(cache, "oooooooo12");
  EXPECT_EQ(heard, "8:1234 50:56 ");
}

TEST(Placement, NobodyIsInsideOnceItIsRetired) {
  for (const bool is_file : {false, true}) {
    const TemporaryFile file;
    auto memory = std::make_unique<std::string>(100'000, 'o');
    auto placed =
        Placed::open("a", is_file ? Placement::file(file.path()) : Placement::memory(bytes_of(*memory))).value();
    const std::string text = pattern(50'000);
    std::atomic<int> writes{0};
    std::thread writer([&] {
      while (placed->write(10, as_bytes(text))) ++writes;
    });
    testing::await([&] { return writes > 10; });
    EXPECT_TRUE(placed->retire());
    memory.reset();
    writer.join();
    EXPECT_FALSE(placed->bytes());
    EXPECT_FALSE(placed->sync() && is_file);
    EXPECT_FALSE(placed->admit({.name = "a", .is_put = true}));
  }
}

TEST(Placement, RangesThatOverflowAreOutside) {
  std::string memory(100, 'o');
  auto placed = Placed::open("a", Placement::memory(bytes_of(memory))).value();
  const std::uint64_t far = std::uint64_t{1} << 62;
  EXPECT_TRUE(placed->check({.offset = 90, .bytes = 10, .is_put = true}));
  EXPECT_FALSE(placed->check({.offset = 91, .bytes = 10, .is_put = true}));
  EXPECT_FALSE(placed->check({.offset = far, .bytes = far, .is_put = true}));
  EXPECT_FALSE(placed->check({.offset = far, .bytes = 1}));
  EXPECT_TRUE(placed->check({.offset = 99, .bytes = far}));
}

}  // namespace
}  // namespace weir::pool
