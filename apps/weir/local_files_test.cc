#include "apps/weir/local_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/weir/path.h"

namespace weir::command {
namespace {

namespace fs = std::filesystem;

class LocalFilesTest : public testing::Test {
 protected:
  LocalFilesTest() {
    std::string name = (fs::temp_directory_path() / "weir-files-XXXXXX").string();
    top_ = mkdtemp(name.data());
    fs::create_directory(top_ / "root");
    fs::create_directory(top_ / "outside");
    write(top_ / "outside" / "secret", "secret");
    files_ = std::move(*LocalFiles::open((top_ / "root").string(), {}));
  }
  ~LocalFilesTest() override { fs::remove_all(top_); }

  static void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  static std::string read(const fs::path& path) {
    std::stringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  static FileVersion version(const std::string& path, std::uint64_t bytes) {
    return {path, {.kind = FileKind::file, .mode = 0644, .bytes = bytes, .modified_ns = 1'000'000'007}};
  }

  fs::path top_;
  std::unique_ptr<LocalFiles> files_;
};

TEST_F(LocalFilesTest, AFileIsSeenOnlyWhenItIsComplete) {
  const std::string text(kBlockBytes + 10, 'x');
  const FileVersion file = version("file", text.size());
  ASSERT_EQ(*files_->begin(file), 0u);
  ASSERT_TRUE(files_->write(file, 1, as_bytes(std::string_view(text).substr(0, 10))));
  EXPECT_FALSE(fs::exists(top_ / "root" / "file"));
  EXPECT_TRUE(files_->list("", "")->entries.empty());  // a part is nobody's file
  ASSERT_TRUE(files_->write(file, 0, as_bytes(std::string_view(text).substr(0, kBlockBytes))));
  EXPECT_EQ(*files_->begin(file), text.size());  // the same copy finds it again
  EXPECT_EQ(*files_->begin(version("file", text.size() + 1)), 0u);
  ASSERT_TRUE(files_->finish(file));
  EXPECT_EQ(read(top_ / "root" / "file"), text);
  EXPECT_EQ(files_->look("file")->modified_ns, file.info.modified_ns);
}

TEST_F(LocalFilesTest, AnIncompleteFileIsNotFinished) {
  const FileVersion file = version("file", kBlockBytes + 10);
  ASSERT_TRUE(files_->begin(file));
  ASSERT_TRUE(files_->write(file, 0, Bytes{std::vector<std::byte>(kBlockBytes)}));
  EXPECT_FALSE(files_->finish(file));
  EXPECT_FALSE(fs::exists(top_ / "root" / "file"));
}

TEST_F(LocalFilesTest, BlocksThatAreNotOfTheFileAreRefused) {
  const FileVersion file = version("file", 10);
  ASSERT_TRUE(files_->begin(file));
  const std::vector<std::byte> bytes(20);
  EXPECT_FALSE(files_->write(file, 1, Bytes{bytes}.first(10)));
  EXPECT_FALSE(files_->write(file, 0, Bytes{bytes}));
  EXPECT_FALSE(files_->write(file, ~std::uint64_t{0}, Bytes{bytes}.first(10)));
  EXPECT_FALSE(files_->write(version("other", 10), 0, Bytes{bytes}.first(10)));  // not begun
  EXPECT_TRUE(files_->sums(file, Stage::part, {~std::uint64_t{0}, 64})->empty());
}

TEST_F(LocalFilesTest, NoLinkLeadsOutside) {
  fs::create_directory_symlink(top_ / "outside", top_ / "root" / "links");
  fs::create_symlink(top_ / "outside" / "secret", top_ / "root" / "link");
  for (const char* path : {"links/secret", "../outside/secret", "links/new"}) {
    EXPECT_FALSE(files_->look(path)) << path;
    const FileVersion file = version(path, 1);
    EXPECT_FALSE(files_->begin(file)) << path;
    EXPECT_FALSE(files_->finish(file)) << path;
    EXPECT_FALSE(files_->make_directory(path, 0755)) << path;
  }
  EXPECT_FALSE(files_->list("links", ""));
  EXPECT_EQ(files_->look("link")->kind, FileKind::other);
  std::byte byte[6];
  EXPECT_FALSE(files_->read(version("link", 6), 0, byte));
  EXPECT_FALSE(files_->sums(version("link", 6), Stage::whole, {0, 1}));
  EXPECT_EQ(read(top_ / "outside" / "secret"), "secret");
}

TEST_F(LocalFilesTest, APipeIsNotWaitedFor) {
  ASSERT_EQ(mkfifo((top_ / "root" / "pipe").c_str(), 0600), 0);
  std::byte byte[1];
  const auto got = files_->read(version("pipe", 1), 0, byte);
  ASSERT_FALSE(got);
  EXPECT_NE(got.error().message().find("not a plain file"), std::string_view::npos);
}

TEST_F(LocalFilesTest, AFileThatChangedIsAnotherOne) {
  write(top_ / "root" / "file", "0123456789");
  FileVersion file{"file", *files_->look("file")};
  std::byte bytes[10];
  EXPECT_TRUE(files_->read(file, 0, bytes));
  EXPECT_EQ(files_->sums(file, Stage::whole, {0, 5})->front(), digest_of(as_bytes("0123456789")));
  write(top_ / "root" / "file", "0123456789more");
  EXPECT_FALSE(files_->read(file, 0, bytes));
  EXPECT_FALSE(files_->sums(file, Stage::whole, {0, 1}));
}

TEST_F(LocalFilesTest, ListsInPagesByName) {
  for (std::size_t i = 0; i < kEntriesPerCall + 3; ++i) write(top_ / "root" / std::to_string(10'000 + i), "");
  const Listing first = *files_->list("", "");
  EXPECT_EQ(first.entries.size(), kEntriesPerCall);
  EXPECT_TRUE(first.has_more);
  const Listing second = *files_->list("", first.entries.back().name);
  EXPECT_EQ(second.entries.size(), 3u);
  EXPECT_FALSE(second.has_more);
  EXPECT_GT(second.entries.front().name, first.entries.back().name);
}

TEST_F(LocalFilesTest, APageHasTheSmallestNamesInWhateverOrderTheyWereMade) {
  for (std::size_t i = 2 * kEntriesPerCall; i-- > 0;)
    write(top_ / "root" / std::to_string(10'000 + i * 7919 % 9000), "");
  std::vector<std::string> names;
  for (bool has_more = true; has_more;) {
    const Listing page = *files_->list("", names.empty() ? "" : names.back());
    for (const FileEntry& entry : page.entries) names.push_back(entry.name);
    has_more = page.has_more;
  }
  EXPECT_EQ(names.size(), 2 * kEntriesPerCall);
  EXPECT_TRUE(std::ranges::is_sorted(names));
}

TEST_F(LocalFilesTest, APartThatIsLinkedElsewhereIsNotWrittenTo) {
  const FileVersion file = version("file", 1);
  ASSERT_TRUE(files_->begin(file));
  const fs::path part = fs::directory_iterator(top_ / "root")->path();
  fs::create_hard_link(part, top_ / "outside" / "mine too");
  EXPECT_FALSE(files_->begin(file));
  EXPECT_FALSE(files_->write(file, 0, as_bytes("x")));
  EXPECT_FALSE(files_->finish(file));
  EXPECT_EQ(read(top_ / "outside" / "mine too"), "");
}

TEST_F(LocalFilesTest, APartOfSomebodyElseIsNotWrittenTo) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const FileVersion file = version("file", 1);
  ASSERT_TRUE(files_->begin(file));
  ASSERT_EQ(chown(fs::directory_iterator(top_ / "root")->path().c_str(), 65534, 65534), 0);
  EXPECT_FALSE(files_->begin(file));
  EXPECT_FALSE(files_->write(file, 0, as_bytes("x")));
}

TEST_F(LocalFilesTest, APartThatCannotGetItsNameCanBeGoneOnWith) {
  FileVersion file = version("file", 1);
  file.info.mode = 0444;
  ASSERT_TRUE(files_->begin(file));
  ASSERT_TRUE(files_->write(file, 0, as_bytes("x")));
  const fs::path part = fs::directory_iterator(top_ / "root")->path();
  fs::create_directory(top_ / "root" / "file");  // in the way
  EXPECT_FALSE(files_->finish(file));
  EXPECT_EQ(fs::status(part).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  fs::remove(top_ / "root" / "file");
  EXPECT_EQ(*files_->begin(file), 1u);
  // A process that ended before it could: begun anew.
  fs::permissions(part, fs::perms::owner_read);
  EXPECT_EQ(*files_->begin(file), 0u);
  ASSERT_TRUE(files_->write(file, 0, as_bytes("y")));
  ASSERT_TRUE(files_->finish(file));
  EXPECT_EQ(read(top_ / "root" / "file"), "y");
}

TEST_F(LocalFilesTest, ReadOnlyAndLimitsAreKept) {
  auto strict = std::move(*LocalFiles::open((top_ / "root").string(), {.read_only = true}));
  EXPECT_FALSE(strict->begin(version("file", 1)));
  EXPECT_FALSE(strict->write(version("file", 1), 0, as_bytes("x")));
  EXPECT_FALSE(strict->finish(version("file", 1)));
  EXPECT_FALSE(strict->make_directory("new", 0755));
  auto small = std::move(*LocalFiles::open((top_ / "root").string(), {.largest_bytes = 10}));
  EXPECT_TRUE(small->begin(version("file", 10)));
  EXPECT_FALSE(small->begin(version("file", 11)));
  EXPECT_FALSE(small->write(version("file", 11), 0, as_bytes("0123456789x")));
}

TEST_F(LocalFilesTest, NoBitBesidesThePermissionsIsTakenOver) {
  FileVersion file = version("file", 1);
  file.info.mode = 07777;
  ASSERT_TRUE(files_->begin(file));
  ASSERT_TRUE(files_->write(file, 0, as_bytes("x")));
  ASSERT_TRUE(files_->finish(file));
  struct stat status {};
  ASSERT_EQ(stat((top_ / "root" / "file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07000, 0u);
}

}  // namespace
}  // namespace weir::command
