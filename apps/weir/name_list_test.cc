// Listings of large directories: the pages of one listing do not read the directory again and again.
#include "apps/weir/name_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "apps/weir/local_files.h"

namespace weir::command {
namespace {

namespace fs = std::filesystem;

std::string name_of(int i) { return fmt::format("name-{:05}", i); }

// In an order that is neither theirs nor its reverse.
std::shared_ptr<NameList> make_list(int names, std::size_t max_bytes, const std::string& after = "") {
  auto list = std::make_shared<NameList>(after, max_bytes);
  for (int i = 0; i < names; ++i) list->add(name_of(i * 7919 % names));
  list->finish();
  return list;
}

TEST(NameList, GivesNamesInTheirOrder) {
  const auto list = make_list(1000, 1 << 20);
  EXPECT_EQ(list->size(), 1000u);
  EXPECT_EQ(list->page("", 2), (std::vector{name_of(0), name_of(1)}));
  EXPECT_EQ(list->page(name_of(997), 5), (std::vector{name_of(998), name_of(999)}));
  EXPECT_EQ(list->page("name-00003x", 1), std::vector{name_of(4)}) << "what was removed meanwhile is a place, too";
  EXPECT_TRUE(list->has_more(name_of(998)));
  EXPECT_FALSE(list->has_more(name_of(999)));
  EXPECT_TRUE(list->covers("zzz"));
}

TEST(NameList, KeepsTheFirstNamesIfThereAreTooMany) {
  const auto list = make_list(10'000, 20'000);
  ASSERT_GT(list->size(), 100u);
  ASSERT_LT(list->size(), 2'000u);
  const int last = static_cast<int>(list->size()) - 1;
  for (int i = 0; i <= last; ++i) ASSERT_EQ(list->page(i == 0 ? "" : name_of(i - 1), 1), std::vector{name_of(i)});
  EXPECT_TRUE(list->has_more(name_of(last)));
  EXPECT_TRUE(list->covers(name_of(last - 1)));
  EXPECT_FALSE(list->covers(name_of(last))) << "it does not know what comes next";
}

TEST(NameList, LeavesOutWhatIsNotAskedForAndWhatIsToldTwice) {
  NameList list("b", 1000);
  for (const char* name : {"c", "a", "b", "d", "c"}) list.add(name);
  list.finish();
  EXPECT_EQ(list.page("b", 9), (std::vector<std::string>{"c", "d"}));
  EXPECT_FALSE(list.covers("a"));
}

TEST(NameLists, AreFewAndTheOneUsedLongestAgoGoes) {
  NameLists lists;
  const auto directory = [](std::uint64_t inode) { return NameLists::Directory{.device = 1, .inode = inode}; };
  for (std::uint64_t i = 0; i < NameLists::kLists; ++i) lists.put(directory(i), make_list(10, 1000));
  EXPECT_NE(lists.find(directory(0), "x"), nullptr);
  lists.put(directory(100), make_list(10, 1000));
  EXPECT_EQ(lists.size(), NameLists::kLists);
  EXPECT_NE(lists.find(directory(0), "x"), nullptr);
  EXPECT_EQ(lists.find(directory(1), "x"), nullptr);
  EXPECT_EQ(lists.find({.device = 2, .inode = 0}, "x"), nullptr);
}

class LargeDirectory : public testing::Test {
 protected:
  static constexpr int kNames = 3'000;

  LargeDirectory() {
    std::string name = (fs::temp_directory_path() / "weir-names-XXXXXX").string();
    top_ = mkdtemp(name.data());
    for (int i = 0; i < kNames; ++i) std::ofstream(top_ / name_of(i));
  }
  ~LargeDirectory() override { fs::remove_all(top_); }

  // How often the directory was read for all of its pages.
  std::uint64_t list_all(const LocalFiles::Options& options) {
    const auto files = std::move(*LocalFiles::open(top_.string(), options));
    std::vector<std::string> all;
    for (bool has_more = true; has_more;) {
      auto listing = files->list("", all.empty() ? "" : all.back());
      EXPECT_TRUE(listing);
      if (!listing) break;
      EXPECT_LE(listing->entries.size(), kEntriesPerCall);
      for (FileEntry& entry : listing->entries) {
        EXPECT_EQ(entry.info.kind, FileKind::file);
        all.push_back(std::move(entry.name));
      }
      has_more = listing->has_more;
    }
    EXPECT_EQ(all.size(), std::size_t{kNames});
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], name_of(static_cast<int>(i)));
    return files->directories_read();
  }

  fs::path top_;
};

TEST_F(LargeDirectory, IsReadOnceForAllPages) { EXPECT_EQ(list_all({}), 1u); }

TEST_F(LargeDirectory, IsReadSomeTimesIfItsNamesTakeTooMuchMemory) {
  const std::uint64_t reads = list_all({.name_list_bytes = 30'000});
  EXPECT_GT(reads, 1u);
  EXPECT_LE(reads, 6u);
}

TEST_F(LargeDirectory, IsReadAgainByWhoeverBeginsAListing) {
  const auto files = std::move(*LocalFiles::open(top_.string(), {}));
  ASSERT_EQ(files->list("", "")->entries.front().name, name_of(0));
  std::ofstream(top_ / "a");
  EXPECT_EQ(files->list("", "")->entries.front().name, "a");
  EXPECT_EQ(files->directories_read(), 2u);
}

}  // namespace
}  // namespace weir::command
