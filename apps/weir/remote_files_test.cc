#include "apps/weir/remote_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "apps/weir/copier.h"

namespace weir::command {
namespace {

constexpr std::string_view kEscapes =
    "\x1b]0;owned\x07\x1b[2J\xc2\x9b"
    "2J\x9b";

using Answer = std::function<Result<Reply>(FieldReader&)>;

Config with_secret(std::string listen) {
  Config config;
  config.secret = "a secret of these tests alone";
  config.listen = std::move(listen);
  return config;
}

// A server that answers as each test wishes, and not as `weir serve-files` would.
class HostileServerTest : public testing::Test {
 protected:
  void serve(Method method, Answer answer) {
    ASSERT_TRUE(server_.serve(method, [answer = std::move(answer)](Request request) {
      FieldReader reader(request.body());
      return answer(reader);
    }));
  }
  void serve(Method method, const FieldWriter& fields) {
    serve(method, [bytes = std::vector(fields.bytes().begin(), fields.bytes().end())](FieldReader&) {
      return Reply{Bytes{bytes}};
    });
  }
  static FieldWriter listing(const std::vector<std::string>& names, std::uint64_t count) {
    FieldWriter fields;
    fields.add(std::uint64_t{0}).add(count);
    for (const std::string& name : names) fields.add(name).add(FileInfo{.kind = FileKind::file, .mode = 0644});
    return fields;
  }

  Pool server_ = std::move(*Pool::open(with_secret("127.0.0.1:0")));
  Pool client_ = std::move(*Pool::open(with_secret("")));
  RemoteFiles files_{client_.peer(server_.listen_address())};
  const FileVersion file_{"file", {.kind = FileKind::file, .mode = 0644, .bytes = 3 * kBlockBytes, .modified_ns = 1}};
};

TEST_F(HostileServerTest, ItsErrorsSayWhetherItMayHaveDoneSomething) {
  const Result<FileInfo> unserved = files_.look("file");
  ASSERT_FALSE(unserved);
  EXPECT_FALSE(unserved.error().may_have_run());
  serve(kLookMethod, [](FieldReader&) { return std::unexpected(Error(Code::application, "no luck")); });
  const Result<FileInfo> failed = files_.look("file");
  ASSERT_FALSE(failed);
  EXPECT_TRUE(failed.error().may_have_run());
}

TEST_F(HostileServerTest, NamesThatLeadElsewhereAreRefused) {
  std::vector<std::string> names;
  serve(kListMethod, [&names](FieldReader&) { return Reply{listing(names, names.size()).bytes()}; });
  names = {"a", "b"};
  ASSERT_EQ(files_.list("", "")->entries.size(), 2u);  // so that what follows fails for its own reason
  for (const std::string& name : {std::string(".."), std::string("."), std::string(), std::string("x/../../y"),
                                  std::string("/etc"), std::string("a\0b", 3), std::string(".weir-part-0")}) {
    names = {name};
    EXPECT_FALSE(files_.list("", "")) << name;
  }
  names = {"b", "a"};
  EXPECT_FALSE(files_.list("", "")) << "not ascending";
  names = {"a", "a"};
  EXPECT_FALSE(files_.list("", "")) << "twice";
  names = {"a"};
  EXPECT_FALSE(files_.list("", "a")) << "not after what was asked for";
}

TEST_F(HostileServerTest, ListsThatAreTooLongOrTornAreRefused) {
  FieldWriter fields;
  serve(kListMethod, [&fields](FieldReader&) { return Reply{fields.bytes()}; });
  std::vector<std::string> names;
  for (std::size_t i = 0; i <= kEntriesPerCall; ++i) names.push_back(std::to_string(10'000 + i));
  for (FieldWriter wrong : {listing(names, names.size()), listing({"a"}, 2), listing({"a", "b"}, 1), listing({}, ~0ull),
                            FieldWriter().add(std::uint64_t{1}).add(std::uint64_t{0}), FieldWriter()}) {
    fields = std::move(wrong);
    EXPECT_FALSE(files_.list("", ""));
  }
}

TEST_F(HostileServerTest, BlocksAndDigestsOfAnotherNumberAreRefused) {
  serve(kReadMethod, FieldWriter(std::vector<std::byte>(11)));
  std::array<std::byte, 10> room;
  EXPECT_FALSE(files_.read(file_, 0, room));
  serve(kSumsMethod, FieldWriter().add(Digest{}).add(Digest{}).add(Digest{}));
  EXPECT_EQ(files_.sums(file_, Stage::whole, {0, 3})->size(), 3u);
  EXPECT_FALSE(files_.sums(file_, Stage::whole, {0, 2}));
  serve(kLookMethod,
        FieldWriter().add(std::uint64_t{9}).add(std::uint64_t{0}).add(std::uint64_t{0}).add(std::uint64_t{0}));
  EXPECT_FALSE(files_.look("file"));
  serve(kBeginMethod, FieldWriter());
  EXPECT_FALSE(files_.begin(file_));
}

TEST_F(HostileServerTest, APathThatNoMessageCanHoldIsASentence) {
  const std::string path(70'000, 'x');
  for (const Error& error : {files_.look(path).error(), files_.list(path, "").error(),
                             files_.make_directory(path, 0755).error(), files_.begin({path, {}}).error()}) {
    EXPECT_EQ(error.code(), Code::refused);
    EXPECT_NE(error.message().find("4,096"), std::string_view::npos);
  }
}

// Takes everything and keeps nothing.
class NoFiles : public Files {
 public:
  Result<FileInfo> look(const std::string&) override { return FileInfo{}; }
  Result<Listing> list(const std::string&, const std::string&) override { return Listing{}; }
  Result<void> read(const FileVersion&, std::uint64_t, std::span<std::byte>) override { return {}; }
  Result<std::vector<Digest>> sums(const FileVersion&, Stage, BlockRange) override { return std::vector<Digest>{}; }
  Result<void> make_directory(const std::string&, std::uint32_t) override {
    ++directories;
    return {};
  }
  Result<std::uint64_t> begin(const FileVersion&) override { return std::uint64_t{0}; }
  Result<void> write(const FileVersion&, std::uint64_t, Bytes) override { return {}; }
  Result<void> finish(const FileVersion&) override { return {}; }

  std::size_t directories = 0;
};

// A directory that has no end.
class EndlessFiles : public NoFiles {
 public:
  explicit EndlessFiles(FileKind kind) : kind_(kind) {}
  Result<FileInfo> look(const std::string&) override { return FileInfo{.kind = FileKind::directory}; }
  Result<Listing> list(const std::string& path, const std::string&) override {
    Listing listing;
    if (path != "top") return listing;
    for (std::size_t i = 0; i < kEntriesPerCall; ++i) {
      listing.entries.push_back({fmt::format("{:012}", ++count_), {.kind = kind_}});
    }
    listing.has_more = true;
    return listing;
  }

 private:
  FileKind kind_;
  std::uint64_t count_ = 0;
};

TEST(Copier, ATreeWithoutEndEndsTheCopyWhateverItIsMadeOf) {
  for (FileKind kind : {FileKind::absent, FileKind::file, FileKind::directory, FileKind::other}) {
    EndlessFiles from(kind);
    NoFiles to;
    testing::internal::CaptureStderr();
    CopyProgress progress(ShowProgress::never);
    Copier copier(to, {.recursive = true}, progress);
    copier.plan(from, "top", "");
    const CopyReport report = copier.run();
    testing::internal::GetCapturedStderr();
    ASSERT_TRUE(report.fatal);
    EXPECT_NE(report.fatal->message().find("too much"), std::string_view::npos);
    EXPECT_LE(to.directories, Copier::kMaxEntries);
  }
}

TEST(Copier, TwoSourcesForOnePlaceAreToldAndOneIsCopied) {
  class OneFile : public NoFiles {
   public:
    Result<FileInfo> look(const std::string&) override { return FileInfo{.kind = FileKind::file, .modified_ns = 1}; }
  } from;
  NoFiles to;
  testing::internal::CaptureStderr();
  CopyProgress progress(ShowProgress::never);
  Copier copier(to, {}, progress);
  copier.plan(from, "a/x", "dir/x");
  copier.plan(from, "b/x", "dir/x");
  copier.plan(from, "b/y", "dir/y");
  const CopyReport report = copier.run();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("'b/x' is not copied"), std::string::npos);
  EXPECT_EQ(report.files, 2u);
  EXPECT_EQ(report.failed, 1u);
}

TEST_F(HostileServerTest, ItsWordsDoNotReachTheTerminalAsTheyAre) {
  serve(kLookMethod,
        [](FieldReader&) -> Result<Reply> { return std::unexpected(Error(Code::application, std::string(kEscapes))); });
  NoFiles to;
  testing::internal::CaptureStderr();
  {
    CopyProgress progress(ShowProgress::never);
    Copier copier(to, {}, progress);
    copier.plan(files_, "file", "file");
    EXPECT_EQ(copier.run().failed, 1u);
  }
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("owned"), std::string::npos);
  for (const char* harm : {"\x1b", "\x07", "\x9b"}) EXPECT_EQ(told.find(harm), std::string::npos);
}

}  // namespace
}  // namespace weir::command
