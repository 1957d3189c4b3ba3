// Files that hold secrets: who may own them.
#include "handshake/private_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "handshake/directory_testing.h"

namespace weir::handshake {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kRoot = 0, kUser = 1000, kAnother = 1001;
constexpr uid_t kNobody = 65534;

// The error's sentence; empty if the file was read.
std::string trouble_with(const std::string& path, Readers readers) {
  const auto text = read_file(AT_FDCWD, path, path, {.max_bytes = 100, .readers = readers});
  if (!text) return std::string(text.error().message());
  EXPECT_TRUE(*text && (*text)->view() == "secret");
  return "";
}

TEST(PrivateFile, ASecretBelongsToRootOrToTheUserOfTheProcess) {
  EXPECT_TRUE(may_own_secret(kUser, kUser));
  EXPECT_TRUE(may_own_secret(kRoot, kUser));
  EXPECT_TRUE(may_own_secret(kRoot, kRoot));
  EXPECT_FALSE(may_own_secret(kAnother, kUser));
  EXPECT_FALSE(may_own_secret(kUser, kRoot));
}

TEST(PrivateFile, ASecretOfAnotherUserIsRefused) {
  if (::geteuid() != kRoot) GTEST_SKIP() << "only root can give a file away";
  testing::TestDirectory directory;
  const std::string path = directory.path("node.key");
  directory.write("node.key", "secret", 0640);
  EXPECT_EQ(trouble_with(path, Readers::owner_and_group), "");
  ASSERT_EQ(::chown(path.c_str(), kNobody, kRoot), 0);
  EXPECT_THAT(trouble_with(path, Readers::owner_and_group),
              AllOf(HasSubstr(path), HasSubstr("belongs to another user (uid 65534)"), HasSubstr("root")));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_THAT(trouble_with(path, Readers::owner), HasSubstr("belongs to another user"));
  EXPECT_EQ(trouble_with(path, Readers::anybody), "") << "what is no secret may be anybody's";
}

TEST(PrivateFile, AGroupMayReadASecretOfRoot) {
  if (::geteuid() != kRoot) GTEST_SKIP() << "only root can become another user";
  testing::TestDirectory directory;
  const std::string path = directory.path("node.key");
  directory.write("node.key", "secret", 0640);
  ASSERT_EQ(::chown(path.c_str(), kRoot, kNobody), 0);
  ASSERT_EQ(::chmod(directory.path().c_str(), 0755), 0);
  const gid_t group = ::getegid();
  ASSERT_EQ(::setegid(kNobody), 0);
  ASSERT_EQ(::seteuid(kNobody), 0);
  const std::string trouble = trouble_with(path, Readers::owner_and_group);
  ASSERT_EQ(::seteuid(kRoot), 0);
  ASSERT_EQ(::setegid(group), 0);
  EXPECT_EQ(trouble, "");
}

}  // namespace
}  // namespace weir::handshake
