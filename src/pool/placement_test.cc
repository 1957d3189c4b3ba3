#include "pool/placement.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
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

TEST(Placement, NoGuardRunsOnceItIsRetired) {
  std::string memory(100, 'o');
  std::atomic<bool> is_asked{false}, is_retired{false};
  Placed* itself = nullptr;
  auto placed = Placed::open("a", Placement::memory(bytes_of(memory)).guard([&](const BulkRequest&) -> Result<void> {
                  EXPECT_FALSE(itself->retire()) << "that would wait for itself";
                  is_asked = true;
                  std::this_thread::sleep_for(std::chrono::milliseconds(50));
                  EXPECT_FALSE(is_retired) << "what it refers to may be gone";
                  return {};
                })).value();
  itself = placed.get();
  std::thread asker([&] { EXPECT_TRUE(placed->admit({.name = "a", .bytes = 1, .is_put = true})); });
  testing::await([&] { return is_asked.load(); });
  EXPECT_TRUE(placed->write(0, as_bytes("a guard that takes a while keeps nobody out")));
  EXPECT_TRUE(placed->retire());
  is_retired = true;
  asker.join();
  EXPECT_FALSE(placed->admit({.name = "a", .bytes = 1, .is_put = true}));
}

TEST(Placement, ARecordThatAFileTakesOnlyInPartIsTakenBack) {
  struct Case {
    std::size_t before, limit, offset;
  };
  for (const Case& each : {Case{0, 30'000, 0}, Case{100'000, 120'000, 90'000}, Case{100'000, 120'000, 110'000},
                           Case{100'000, 50'000, 20'000}, Case{100'000, 50'000, 60'000}}) {
    const std::string old = pattern(each.before, 7);
    const TemporaryFile file(old);
    std::string cache(200'000, 'c');
    int heard = 0;
    auto placed = Placed::open("a", Placement::file(file.path(), {.access = Access::put_only})
                                        .tee(bytes_of(cache))
                                        .tee([&](std::uint64_t, Bytes) { ++heard; }))
                      .value();
    {
      const testing::FullDisk full(each.limit);
      const Result<void> written = placed->write(each.offset, as_bytes(pattern(60'000)));
      ASSERT_FALSE(written);
      EXPECT_EQ(written.error().code(), Code::system);
    }
    EXPECT_TRUE(testing::is_same(file.read(), old)) << each.limit << " " << each.offset;
    EXPECT_EQ(cache, std::string(200'000, 'c'));
    EXPECT_EQ(heard, 0);
    EXPECT_TRUE(placed->write(each.offset, as_bytes(pattern(60'000))));
    EXPECT_TRUE(testing::is_same(file.read().substr(each.offset, 60'000), pattern(60'000)));
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
