#include "apps/weir/file_message.h"

#include <gtest/gtest.h>

namespace weir::command {
namespace {

FileVersion version() { return {"a/b", {.kind = FileKind::file, .mode = 0640, .bytes = 12345, .modified_ns = -5}}; }

TEST(FileMessage, ReadsWhatWasWritten) {
  FieldWriter writer;
  writer.add(version()).add(std::uint64_t{7}).add(digest_of({}));
  FieldReader reader(writer.bytes());
  const FileVersion file = reader.file();
  EXPECT_EQ(file.path, "a/b");
  EXPECT_EQ(file.info, version().info);
  EXPECT_EQ(reader.number(), 7u);
  EXPECT_FALSE(reader.is_done());
  EXPECT_EQ(reader.digest(), digest_of({}));
  EXPECT_TRUE(reader.is_done());
}

TEST(FileMessage, CutAnywhereItIsNotDone) {
  FieldWriter writer;
  writer.add(version()).add(std::uint64_t{7});
  for (std::size_t bytes = 0; bytes < writer.bytes().size(); ++bytes) {
    FieldReader reader(writer.bytes().first(bytes));
    reader.file();
    reader.number();
    EXPECT_FALSE(reader.is_done()) << bytes;
  }
}

TEST(FileMessage, RefusesKindsModesAndSizesThatThereAreNot) {
  for (const auto& [kind, mode, bytes] :
       {std::array<std::uint64_t, 3>{4, 0, 0}, {1, 01000, 0}, {1, 0, (std::uint64_t{1} << 62) + 1}}) {
    FieldWriter writer;
    writer.add(kind).add(mode).add(bytes).add(std::uint64_t{0});
    FieldReader reader(writer.bytes());
    EXPECT_EQ(reader.info(), FileInfo{});
    EXPECT_FALSE(reader.ok());
  }
}

TEST(FileMessage, ABlockMustBeThereAndNoLongerThanOne) {
  const std::vector<std::byte> body(kBlockBytes + 100);
  const auto apart = [&](std::uint64_t bytes, std::size_t room) {
    FieldWriter header;
    header.add(bytes);
    return take_apart(header.bytes(), Bytes{body}.first(room));
  };
  ASSERT_TRUE(apart(60, 100));
  EXPECT_EQ(apart(60, 100)->fields.size(), 40u);
  EXPECT_FALSE(apart(101, 100));
  EXPECT_FALSE(apart(kBlockBytes + 1, kBlockBytes + 100));
  EXPECT_FALSE(apart(~std::uint64_t{0}, 100));
  EXPECT_FALSE(take_apart({}, body));
}

}  // namespace
}  // namespace weir::command
