#include "apps/weir/path.h"

#include <gtest/gtest.h>

#include "apps/weir/copy_place.h"

namespace weir::command {
namespace {

using namespace std::string_view_literals;

TEST(Path, SplitsWhatStaysWithinTheRoot) {
  EXPECT_TRUE(split_path("")->empty());
  EXPECT_TRUE(split_path(".")->empty());
  EXPECT_EQ(*split_path("a"), std::vector<std::string_view>{"a"});
  EXPECT_EQ(*split_path("a/..b/.c"), (std::vector<std::string_view>{"a", "..b", ".c"}));
}

TEST(Path, RefusesWhatCouldLeaveTheRootOrMeetAPart) {
  const std::string long_name(256, 'x'), long_path(5000, 'a');
  std::string deep = "a";
  for (int i = 0; i < 128; ++i) deep += "/a";
  for (std::string_view path :
       {".."sv, "a/.."sv, "a/../b"sv, "/a"sv, "/"sv, "a//b"sv, "a/"sv, "./a"sv, "a\0b"sv, std::string_view(long_name),
        std::string_view(long_path), std::string_view(deep), ".weir-part-0"sv, "a/.weir-part-0/b"sv}) {
    const auto names = split_path(path);
    ASSERT_FALSE(names) << path;
    EXPECT_EQ(names.error().code(), Code::refused);
  }
}

TEST(Path, IsShownWithoutWhatATerminalObeys) { EXPECT_EQ(shown("a\x1b[2J\n'\\\x7f"), "'a\\x1b[2J\\x0a\\'\\\\\\x7f'"); }

TEST(Path, ControlCharactersOfEightBitsAreNotShownEither) {
  EXPECT_EQ(shown("\xc3\x80 \xe2\x82\xac \xf0\x9f\x98\x80"), "'\xc3\x80 \xe2\x82\xac \xf0\x9f\x98\x80'");  // as it is
  EXPECT_EQ(shown("\x9b"), "'\\x9b'");
  EXPECT_EQ(shown("\xc2\x9b"), "'\\xc2\\x9b'");
  EXPECT_EQ(shown("\xe0\x82\x9b"), "'\\xe0\\x82\\x9b'");  // the same, the long way
  EXPECT_EQ(shown("\xe2\x82"), "'\\xe2\\x82'");
  EXPECT_EQ(printable("it's \x1b[2J\n"), "it's \\x1b[2J\\x0a");
}

TEST(CopyPlace, TellsPeersFromFiles) {
  for (const char* local : {"file", "./1.2.3.4:5:x", "dir/1.2.3.4:5:x", "a:b", "a:b:c", ":1:x", "", "1.2.3.4:5"}) {
    EXPECT_FALSE(parse_place(local).is_remote()) << local;
    EXPECT_EQ(parse_place(local).path, local);
  }
  const CopyPlace place = parse_place("1.2.3.4:55:a/b:c//");
  EXPECT_EQ(place.address, "1.2.3.4:55");
  EXPECT_EQ(place.path, "a/b:c");
  EXPECT_EQ(name_of(place), "b:c");
  EXPECT_EQ(parse_place("[::1]:55:").address, "[::1]:55");
  EXPECT_EQ(name_of(parse_place("[::1]:55:")), "");
  EXPECT_EQ(name_of(parse_place("dir/file")), "file");
  EXPECT_EQ(name_of(parse_place("/usr/")), "usr");
}

}  // namespace
}  // namespace weir::command
