#include "buffer/file_source.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>

namespace weir::buffer {
namespace {

struct Directory {
  Directory() {
    std::string name = testing::TempDir() + "weir-file-source-XXXXXX";
    path = ::mkdtemp(name.data()) != nullptr ? name : "";
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path;
};

constexpr std::size_t kBytes = std::size_t{1} << 20;

TEST(FileSource, MapsMemoryThatCanBeWrittenAndLeavesNoFileBehind) {
  const Directory directory;
  FileSource source{directory.path};
  const auto extent = source.map(kBytes, -1);
  ASSERT_TRUE(extent) << extent.error().to_string();
  EXPECT_TRUE(std::filesystem::is_empty(directory.path));
  std::memset(extent->data, 0x5a, extent->bytes);
  EXPECT_EQ(extent->data[kBytes - 1], std::byte{0x5a});
  source.unmap(*extent);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path));
}

TEST(FileSource, EachExtentIsMemoryOfItsOwn) {
  const Directory directory;
  FileSource source{directory.path};
  const auto first = source.map(kBytes, -1);
  const auto second = source.map(2 * kBytes, -1);
  ASSERT_TRUE(first && second);
  std::memset(first->data, 1, first->bytes);
  std::memset(second->data, 2, second->bytes);
  EXPECT_EQ(first->data[0], std::byte{1});
  source.unmap(*first);
  source.unmap(*second);
}

TEST(FileSource, ADirectoryThatIsNotThereIsAnErrorWithItsName) {
  FileSource source{"/nowhere/at/all"};
  const auto extent = source.map(kBytes, -1);
  ASSERT_FALSE(extent);
  EXPECT_EQ(extent.error().code(), Code::system);
  EXPECT_NE(extent.error().message().find("/nowhere/at/all"), std::string_view::npos);
}

TEST(FileSource, AFileThatTheSystemHasNoRoomForIsAnErrorBeforeItIsMapped) {
  const Directory directory;
  FileSource source{directory.path};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = kBytes;
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto extent = source.map(4 * kBytes, -1);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old);
  ASSERT_FALSE(extent);
  EXPECT_EQ(extent.error().code(), Code::system);
}

TEST(FileSource, AMemoryOfFilesGrowsByFilesThatDouble) {
  const Directory directory;
  ExtentMemory memory{std::make_unique<FileSource>(directory.path),
                      {.bytes = 64 * kBytes, .first_extent_bytes = kBytes, .largest_extent_bytes = 4 * kBytes}};
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < 11; ++i) {
    pieces.push_back(memory.take(kBytes));
    ASSERT_TRUE(pieces.back());
    std::memset(pieces.back().data, static_cast<int>(i), kBytes);
  }
  std::vector<std::size_t> sizes;
  for (const Extent& extent : memory.extents()) sizes.push_back(extent.bytes / kBytes);
  EXPECT_EQ(sizes, (std::vector<std::size_t>{1, 2, 4, 4}));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(pieces[i].data[kBytes - 1], static_cast<std::byte>(i));
    memory.give_back(pieces[i]);
  }
}

}  // namespace
}  // namespace weir::buffer
