#include "handshake/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "handshake/development.h"
#include "handshake/directory_testing.h"
#include "handshake/identity_testing.h"

namespace weir::handshake {
namespace {

using namespace weir::handshake::testing;
using ::testing::HasSubstr;

constexpr std::int64_t kNow = kTestWallSeconds;

class IdentityTest : public ::testing::Test {
 protected:
  // As a deployment tool would: all three files, each replaced at once.
  Identity write(const NodeRequest& request) {
    const Issued issued = value_of(authority_.issue(request));
    replace("node.crt", issued.chain_pem);
    replace("node.key", issued.key_pem);
    replace("ca.crt", authority_.certificate_pem());
    return Identity::from_files(directory_.path("node.crt"), directory_.path("node.key"), directory_.path("ca.crt"));
  }
  void replace(std::string_view name, std::string_view content) {
    directory_.write("new", content);
    std::filesystem::rename(directory_.path("new"), directory_.path(name));
  }
  std::string trouble(const Identity& identity, std::int64_t wall_seconds = kNow) {
    auto opened = IdentitySource::open(identity, wall_seconds);
    return opened ? "opened" : std::string(opened.error().message());
  }

  TestDirectory directory_;
  Authority authority_ = make_authority();
};

Names caller(std::vector<std::string> names) {
  Names result;
  for (const std::string& name : names) {
    if (const auto ip = parse_ip(name)) {
      result.ips.push_back(*ip);
    } else {
      result.dns.push_back(name);
    }
  }
  return result;
}

TEST_F(IdentityTest, IsReadWhenItIsOpenedAndNotBefore) {
  const Identity missing = Identity::from_files("no.crt", "no.key", "no.ca");
  EXPECT_TRUE(missing.is_set());
  EXPECT_FALSE(Identity{}.is_set());
  EXPECT_THAT(trouble(missing), ::testing::AllOf(HasSubstr("no.crt"), HasSubstr("no such file")));
  const Identity identity = write(node_request({"us.example"}));
  auto source = value_of(IdentitySource::open(identity, kNow));
  EXPECT_EQ(source->current()->names().first(), "us.example");
  EXPECT_FALSE(source->is_development());
  EXPECT_EQ(source->warning(), "");
}

TEST_F(IdentityTest, ComesFromTextsToo) {
  const Issued issued = value_of(authority_.issue(node_request({"us.example"})));
  const Identity identity = Identity::from_pem(issued.chain_pem, issued.key_pem, authority_.certificate_pem());
  auto source = value_of(IdentitySource::open(identity, kNow));
  EXPECT_EQ(source->current()->names().first(), "us.example");
  EXPECT_FALSE(source->reload_if_changed(kNow + 1000 * kDaySeconds));
  EXPECT_THAT(trouble(Identity::from_pem("x", "y", "z")), HasSubstr("the certificate"));
}

TEST_F(IdentityTest, ErrorsNameTheFiles) {
  const Identity identity = write(node_request({"us.example"}));
  replace("node.key", value_of(authority_.issue(node_request({"other.example"}))).key_pem);
  EXPECT_THAT(trouble(identity), ::testing::AllOf(HasSubstr("node.key"), HasSubstr("does not belong")));
  std::filesystem::remove(directory_.path("ca.crt"));
  EXPECT_THAT(trouble(identity), HasSubstr("ca.crt"));
  EXPECT_THAT(trouble(Identity::from_files("", "", "")), HasSubstr("lacks the path"));
  EXPECT_THAT(trouble(Identity{}), HasSubstr("no identity"));
  EXPECT_THAT(trouble(Identity::from_files(directory_.path(), "", "")), HasSubstr("not a regular file"));
}

TEST_F(IdentityTest, RefusesAKeyThatEverybodyCanRead) {
  const Identity identity = write(node_request({"us.example"}));
  ::chmod(directory_.path("node.key").c_str(), 0644);
  EXPECT_THAT(trouble(identity), ::testing::AllOf(HasSubstr("node.key"), HasSubstr("chmod 600")));
  ::chmod(directory_.path("node.key").c_str(), 0640);
  EXPECT_EQ(trouble(identity), "opened");
}

TEST_F(IdentityTest, RefusesACertificateOfOursThatNobodyWouldAccept) {
  const Identity identity = write(node_request({"us.example"}));
  EXPECT_THAT(trouble(identity, kNow + 2 * kDaySeconds), HasSubstr("our own certificate \"CN=us.example\" expired"));
  EXPECT_THAT(trouble(identity, kNow - 2 * kDaySeconds), HasSubstr("not valid before"));
}

TEST_F(IdentityTest, IsLoadedAgainWhenItsFilesChange) {
  auto source = value_of(IdentitySource::open(write(node_request({"first.example"})), kNow));
  const std::shared_ptr<const Credentials> first = source->current();
  EXPECT_FALSE(source->reload_if_changed(kNow));
  EXPECT_EQ(source->current(), first);
  write(node_request({"second.example"}));
  EXPECT_TRUE(source->reload_if_changed(kNow));
  EXPECT_EQ(source->current()->names().first(), "second.example");
  EXPECT_EQ(first->names().first(), "first.example");  // whoever still holds it
  EXPECT_FALSE(source->reload_if_changed(kNow));
  EXPECT_EQ(source->complaint(), "");
}

TEST_F(IdentityTest, HalfNewFilesKeepTheOldIdentityAndComplainOnce) {
  auto source = value_of(IdentitySource::open(write(node_request({"first.example"})), kNow));
  const Issued issued = value_of(authority_.issue(node_request({"second.example"})));
  replace("node.crt", issued.chain_pem);
  EXPECT_FALSE(source->reload_if_changed(kNow));
  EXPECT_THAT(source->complaint(), HasSubstr("does not belong"));
  EXPECT_EQ(source->complaint(), "");
  EXPECT_FALSE(source->reload_if_changed(kNow));
  EXPECT_EQ(source->complaint(), "");  // the same reason again
  EXPECT_EQ(source->current()->names().first(), "first.example");
  directory_.write("node.key", issued.key_pem.substr(0, 40));
  EXPECT_FALSE(source->reload_if_changed(kNow));
  EXPECT_THAT(source->complaint(), HasSubstr("not a PEM private key"));
  directory_.write("node.key", issued.key_pem);
  EXPECT_TRUE(source->reload_if_changed(kNow));
  EXPECT_EQ(source->current()->names().first(), "second.example");
}

TEST_F(IdentityTest, ANewCertificateWaitsForItsTime) {
  auto source = value_of(IdentitySource::open(write(node_request({"first.example"})), kNow));
  NodeRequest later = node_request({"second.example"});
  later.validity.from_seconds = kNow + 60;
  write(later);
  EXPECT_FALSE(source->reload_if_changed(kNow));
  EXPECT_THAT(source->complaint(), HasSubstr("not valid before"));
  EXPECT_TRUE(source->reload_if_changed(kNow + 60));
  EXPECT_EQ(source->current()->names().first(), "second.example");
}

TEST_F(IdentityTest, RemovedFilesKeepTheOldIdentity) {
  auto source = value_of(IdentitySource::open(write(node_request({"first.example"})), kNow));
  std::filesystem::remove(directory_.path("node.crt"));
  EXPECT_FALSE(source->reload_if_changed(kNow));
  EXPECT_THAT(source->complaint(), HasSubstr("node.crt"));
  EXPECT_EQ(source->current()->names().first(), "first.example");
}

TEST_F(IdentityTest, MayBeReadWhileItIsLoadedAgain) {
  auto source = value_of(IdentitySource::open(write(node_request({"us.example"})), kNow));
  std::jthread reader([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      EXPECT_EQ(source->current()->names().first(), "us.example");
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 20; ++i) {
    write(node_request({"us.example"}));
    EXPECT_TRUE(source->reload_if_changed(kNow));
  }
}

TEST_F(IdentityTest, WithoutRulesEverybodyMayCall) {
  auto source = value_of(IdentitySource::open(write(node_request({"us.example"})), kNow));
  EXPECT_TRUE(source->allows(caller({"db7.example"})));
  EXPECT_TRUE(source->allows(caller({})));
}

TEST_F(IdentityTest, AListOfNamesKeepsTheOthersOut) {
  const Identity identity = write(node_request({"us.example"})).allow({"db7.example", "*.rack1.example", "10.0.0.7"});
  auto source = value_of(IdentitySource::open(identity.allow({"added.example"}), kNow));
  EXPECT_TRUE(source->allows(caller({"db7.example"})));
  EXPECT_TRUE(source->allows(caller({"x.example", "db7.example"})));
  EXPECT_TRUE(source->allows(caller({"a.rack1.example"})));
  EXPECT_TRUE(source->allows(caller({"10.0.0.7"})));
  EXPECT_TRUE(source->allows(caller({"added.example"})));
  EXPECT_FALSE(source->allows(caller({"db8.example"})));
  EXPECT_FALSE(source->allows(caller({"a.rack2.example"})));
  EXPECT_FALSE(source->allows(caller({"10.0.0.8"})));
  EXPECT_FALSE(source->allows(caller({})));
  auto nobody = value_of(IdentitySource::open(write(node_request({"us.example"})).allow({}), kNow));
  EXPECT_FALSE(nobody->allows(caller({"db7.example"})));
}

TEST_F(IdentityTest, ARevokedNameIsRefusedWhateverElseItProves) {
  const Identity identity =
      write(node_request({"us.example"})).allow({"*.rack1.example"}).deny({"db7.rack1.example", "10.0.0.9"});
  auto source = value_of(IdentitySource::open(identity, kNow));
  EXPECT_TRUE(source->allows(caller({"db6.rack1.example"})));
  EXPECT_FALSE(source->allows(caller({"db7.rack1.example"})));
  EXPECT_FALSE(source->allows(caller({"db6.rack1.example", "db7.rack1.example"})));
  EXPECT_FALSE(source->allows(caller({"db6.rack1.example", "10.0.0.9"})));
  EXPECT_FALSE(source->allows(caller({"*.rack1.example"})));  // could be the revoked one
}

TEST_F(IdentityTest, TheApplicationHasTheLastWord) {
  std::vector<std::string> asked;
  const Identity identity = write(node_request({"us.example"})).deny({"bad.example"}).authorise([&](auto name) {
    asked.emplace_back(name);
    if (name == "throws.example") throw std::runtime_error("no");
    return name == "db7.example";
  });
  auto source = value_of(IdentitySource::open(identity, kNow));
  EXPECT_TRUE(source->allows(caller({"a.example", "db7.example", "b.example"})));
  EXPECT_EQ(asked, (std::vector<std::string>{"a.example", "db7.example"}));
  asked.clear();
  EXPECT_FALSE(source->allows(caller({"db7.example", "bad.example"})));
  EXPECT_TRUE(asked.empty());
  EXPECT_FALSE(source->allows(caller({"throws.example"})));
  EXPECT_FALSE(source->allows(caller({})));
  EXPECT_EQ(asked.back(), "");
}

TEST_F(IdentityTest, ListsMustMakeSense) {
  const Identity identity = write(node_request({"us.example"}));
  EXPECT_THAT(trouble(identity.allow({"db*.example"})), HasSubstr("\"db*.example\" in the list of names to allow"));
  EXPECT_THAT(trouble(identity.deny({"a b"})), HasSubstr("to deny"));
  EXPECT_EQ(trouble(identity), "opened");  // what was added went into copies
}

TEST_F(IdentityTest, TheSignerIsKeptInItsFile) {
  const std::string path = directory_.path("signer");
  const Identity identity = write(node_request({"us.example"}));
  auto first = value_of(IdentitySource::open(identity.signer_file(path), kNow));
  EXPECT_EQ(mode_of(path), 0600u);
  EXPECT_EQ(std::filesystem::file_size(path), 32u);
  auto second = value_of(IdentitySource::open(identity.signer_file(path), kNow));
  EXPECT_EQ(first->signer(), second->signer());
  auto without = value_of(IdentitySource::open(identity, kNow));
  EXPECT_FALSE(without->signer() == first->signer());
  EXPECT_FALSE(without->signer() == crypto::Secret{});
  EXPECT_FALSE(first->signer() == crypto::Secret{});
}

TEST_F(IdentityTest, TheSignerComesFromThePrivateKeyIfThereIsNoFile) {
  const Identity identity = write(node_request({"us.example"}));
  auto first = value_of(IdentitySource::open(identity, kNow));
  auto second = value_of(IdentitySource::open(identity, kNow));
  EXPECT_EQ(first->signer(), second->signer()) << "a restart";
  EXPECT_FALSE(first->signer() == crypto::Secret{});
  const crypto::Secret before = first->signer();
  auto other = value_of(IdentitySource::open(write(node_request({"us.example"})), kNow));
  EXPECT_FALSE(other->signer() == before) << "another key, another signer";
}

TEST_F(IdentityTest, ManyWhoMakeTheSignerTogetherAgree) {
  const Identity identity = write(node_request({"us.example"})).signer_file(directory_.path("signer"));
  std::vector<std::unique_ptr<IdentitySource>> all(8);
  std::vector<std::thread> threads;
  for (auto& one : all) threads.emplace_back([&] { one = value_of(IdentitySource::open(identity, kNow)); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : all) EXPECT_EQ(one->signer(), all.front()->signer());
}

TEST_F(IdentityTest, RefusesASignerThatOthersKnowOrThatIsNone) {
  const Identity identity = write(node_request({"us.example"})).signer_file(directory_.path("signer"));
  directory_.write("signer", std::string(32, 's'), 0640);
  EXPECT_THAT(trouble(identity), ::testing::AllOf(HasSubstr("signer"), HasSubstr("open to other users (mode 0640)")));
  directory_.write("signer", std::string(31, 's'));
  EXPECT_THAT(trouble(identity), HasSubstr("31 bytes instead of 32"));
  directory_.write("signer", std::string(33, 's'));
  EXPECT_THAT(trouble(identity), HasSubstr("33 bytes instead of 32"));
  directory_.write("signer", std::string(1000, 's'));
  EXPECT_THAT(trouble(identity), HasSubstr("larger than"));
  directory_.write("signer", "");
  EXPECT_THAT(trouble(identity), HasSubstr("0 bytes instead of 32"));
  std::filesystem::remove(directory_.path("signer"));
  directory_.write("elsewhere", std::string(32, 's'));
  std::filesystem::create_symlink(directory_.path("elsewhere"), directory_.path("signer"));
  EXPECT_THAT(trouble(identity), HasSubstr("symbolic link"));
  EXPECT_THAT(trouble(identity.signer_file(directory_.path("no/where"))), HasSubstr("cannot create"));
}

TEST_F(IdentityTest, ADevelopmentIdentitySaysSo) {
  const std::string shared = directory_.path("shared");
  const Identity identity = Identity::development(shared).allow({"db7.example"}).key_log("keys");
  EXPECT_TRUE(identity.is_development());
  auto source = value_of(IdentitySource::open(identity, kNow));
  EXPECT_TRUE(source->is_development());
  EXPECT_THAT(source->warning(), ::testing::AllOf(HasSubstr("development"), HasSubstr(shared)));
  EXPECT_TRUE(source->current()->is_development());
  EXPECT_EQ(source->key_log_path(), "keys");
  Names peer = source->current()->names();
  EXPECT_FALSE(source->allows(peer));
  peer.development = true;
  EXPECT_TRUE(source->allows(peer));
}

TEST_F(IdentityTest, ADevelopmentIdentityFollowsItsDirectory) {
  const std::string shared = directory_.path("shared");
  auto source = value_of(IdentitySource::open(Identity::development(shared), kNow));
  EXPECT_FALSE(source->reload_if_changed(kNow));
  EXPECT_FALSE(source->reload_if_changed(kNow + 28 * kDaySeconds));
  EXPECT_TRUE(source->reload_if_changed(kNow + 29 * kDaySeconds + 1));
  EXPECT_FALSE(source->reload_if_changed(kNow + 29 * kDaySeconds + 1));
  // Somebody else made the next one.
  const std::int64_t later = kNow + 59 * kDaySeconds;
  value_of(open_development(shared, later));
  EXPECT_TRUE(source->reload_if_changed(later));
  // Removed and made anew: what we had is of no use any more.
  std::filesystem::remove_all(shared);
  value_of(open_development(shared, later));
  EXPECT_TRUE(source->reload_if_changed(later));
  EXPECT_FALSE(source->reload_if_changed(later));
}

}  // namespace
}  // namespace weir::handshake
