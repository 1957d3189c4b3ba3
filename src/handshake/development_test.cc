#include "handshake/development.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "handshake/directory_testing.h"
#include "handshake/identity_testing.h"

namespace weir::handshake {
namespace {

using namespace weir::handshake::testing;
using ::testing::HasSubstr;

constexpr std::int64_t kNow = kTestWallSeconds;

Result<Names> judge(const Credentials& judge, const Credentials& peer, std::int64_t wall_seconds = kNow) {
  std::vector<unsigned char> der = peer.certificate().to_der();
  const gnutls_datum_t datum{der.data(), static_cast<unsigned>(der.size())};
  return judge.verify({&datum, 1}, wall_seconds, true);
}

Development open(const std::string& directory, std::int64_t wall_seconds = kNow) {
  return value_of(open_development(directory, wall_seconds));
}

TEST(DevelopmentIdentity, PeersOfOneDirectoryAcceptEachOtherUnderAnyName) {
  const TestDirectory root;
  const Development one = open(root.path("shared"));
  const Development two = open(root.path("shared"));
  const Result<Names> names = judge(*one.credentials, *two.credentials);
  ASSERT_TRUE(names) << names.error().to_string();
  EXPECT_TRUE(names->development);
  EXPECT_TRUE(names->proves("db7.example"));
  EXPECT_EQ(names->first(), "weir-development");
  EXPECT_EQ(names->all(), (std::vector<std::string>{"weir-development", "localhost", "127.0.0.1", "::1"}));
  EXPECT_TRUE(judge(*two.credentials, *one.credentials));
  EXPECT_NE(one.credentials->certificate().fingerprint(), two.credentials->certificate().fingerprint());
  EXPECT_NE(one.credentials->certificate().number(), two.credentials->certificate().number());
  EXPECT_EQ(names->certificate, two.credentials->certificate().number());
  EXPECT_EQ(one.credentials->certificate().key_type(), "Ed25519");
}

TEST(DevelopmentIdentity, RefusesPeersOfAnotherDirectory) {
  const TestDirectory root;
  const Development one = open(root.path("one"));
  const Development two = open(root.path("two"));
  EXPECT_FALSE(judge(*one.credentials, *two.credentials));
  const auto real = make_credentials(make_authority("Weir development authority 1"), {"db7.example"});
  EXPECT_FALSE(judge(*one.credentials, *real));
  EXPECT_FALSE(judge(*real, *one.credentials));
}

TEST(DevelopmentIdentity, KeepsItsAuthorityToTheOwner) {
  const TestDirectory root;
  open(root.path("shared"));
  EXPECT_EQ(mode_of(root.path("shared")), 0700u);
  EXPECT_EQ(mode_of(development_file(root.path("shared"), 1)), 0600u);
  std::size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(root.path("shared"))) ++files;
  EXPECT_EQ(files, 1u);  // no keys of nodes, nothing temporary
}

TEST(DevelopmentIdentity, ThoseWhoStartTogetherAgree) {
  for (int round = 0; round < 5; ++round) {
    const TestDirectory root;
    std::vector<Development> all(8);
    std::vector<std::thread> threads;
    for (Development& one : all) threads.emplace_back([&] { one = open(root.path("shared")); });
    for (std::thread& thread : threads) thread.join();
    for (const Development& one : all) EXPECT_TRUE(judge(*all.front().credentials, *one.credentials));
  }
}

TEST(DevelopmentIdentity, MakesAnotherAuthorityBeforeTheOldOneExpires) {
  const TestDirectory root;
  const std::string directory = root.path("shared");
  const Development early = open(directory);
  EXPECT_EQ(early.generation, 1u);
  EXPECT_EQ(early.renew_at_seconds, kNow + 29 * kDaySeconds);
  EXPECT_EQ(open(directory, early.renew_at_seconds).generation, 1u);
  const std::int64_t later = early.renew_at_seconds + 1;
  const Development late = open(directory, later);
  EXPECT_EQ(late.generation, 2u);
  EXPECT_EQ(open(directory, later).generation, 2u);
  // Those who came before are accepted until their own end.
  EXPECT_TRUE(judge(*late.credentials, *early.credentials, later));
  EXPECT_FALSE(judge(*late.credentials, *early.credentials, kNow + 31 * kDaySeconds));
  // Long after, with nobody there in between.
  const Development much_later = open(directory, kNow + 1000 * kDaySeconds);
  EXPECT_EQ(much_later.generation, 3u);
  EXPECT_FALSE(judge(*much_later.credentials, *late.credentials, kNow + 1000 * kDaySeconds));
}

TEST(DevelopmentIdentity, RefusesADirectoryThatOthersCanEnter) {
  const TestDirectory root;
  const std::string directory = root.path("open");
  std::filesystem::create_directory(directory);
  for (const mode_t mode : {0755, 0770, 0701, 0710}) {
    ::chmod(directory.c_str(), mode);
    const auto opened = open_development(directory, kNow);
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().code(), Code::invalid_argument);
    EXPECT_THAT(std::string(opened.error().message()), ::testing::AllOf(HasSubstr(directory), HasSubstr("chmod 700")));
  }
  ::chmod(directory.c_str(), 0700);
  EXPECT_TRUE(open_development(directory, kNow));
}

TEST(DevelopmentIdentity, RefusesADirectoryOfAnotherUser) {
  const TestDirectory root;
  // Only the superuser can give a directory away; everybody else has one that is not theirs.
  const std::string directory = geteuid() == 0 ? root.path("given") : "/";
  if (geteuid() == 0) {
    ASSERT_EQ(::mkdir(directory.c_str(), 0700), 0);
    ASSERT_EQ(::chown(directory.c_str(), 12345, 12345), 0);
  }
  const auto opened = open_development(directory, kNow);
  ASSERT_FALSE(opened);
  EXPECT_THAT(std::string(opened.error().message()), HasSubstr("belongs to another user"));
}

TEST(DevelopmentIdentity, RefusesASymbolicLinkAndAFile) {
  const TestDirectory root;
  std::filesystem::create_directory(root.path("real"));
  ::chmod(root.path("real").c_str(), 0700);
  std::filesystem::create_directory_symlink(root.path("real"), root.path("link"));
  root.write("file", "x");
  for (const char* name : {"link", "link/", "link//", "file"}) {
    const auto opened = open_development(root.path(name), kNow);
    ASSERT_FALSE(opened) << name;
    EXPECT_THAT(std::string(opened.error().message()), HasSubstr("symbolic link or not a directory"));
  }
  EXPECT_FALSE(open_development(root.path("missing/below"), kNow));
}

TEST(DevelopmentIdentity, RefusesAnAuthorityThatOthersCouldHavePutThere) {
  const TestDirectory root;
  const std::string directory = root.path("shared");
  open(directory);
  const std::string file = development_file(directory, 1);
  ::chmod(file.c_str(), 0644);
  auto opened = open_development(directory, kNow);
  ASSERT_FALSE(opened);
  EXPECT_THAT(std::string(opened.error().message()), HasSubstr("open to other users"));
  ::chmod(file.c_str(), 0600);
  std::filesystem::rename(file, root.path("elsewhere"));
  std::filesystem::create_symlink(root.path("elsewhere"), file);
  opened = open_development(directory, kNow);
  ASSERT_FALSE(opened);
  EXPECT_THAT(std::string(opened.error().message()), HasSubstr("symbolic link"));
}

TEST(DevelopmentIdentity, SaysWhatToDoAboutABrokenAuthority) {
  const TestDirectory root;
  root.write("authority-1.pem", "nonsense");
  const auto opened = open_development(root.path(), kNow);
  ASSERT_FALSE(opened);
  EXPECT_THAT(std::string(opened.error().message()),
              ::testing::AllOf(HasSubstr("authority-1.pem"), HasSubstr("remove the directory")));
}

TEST(DevelopmentIdentity, TheDefaultDirectoryIsOfThisUser) {
  const std::string directory = development_directory("");
  EXPECT_THAT(directory, ::testing::EndsWith("/weir-" + std::to_string(geteuid())));
  EXPECT_EQ(development_directory("/somewhere"), "/somewhere");
}

}  // namespace
}  // namespace weir::handshake
