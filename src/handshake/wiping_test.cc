// What a handshake leaves behind in memory that was given back. Every block that C++ code frees goes through here.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>
#include <string>
#include <string_view>

#include "handshake/broker_testing.h"
#include "handshake/development.h"
#include "handshake/directory_testing.h"

namespace {

// The contents of freed blocks, while it is open.
struct Graveyard {
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;
  char* bytes = nullptr;
  std::size_t size = 0;
  bool is_open = false;
  bool is_full = false;
};
Graveyard graveyard;

void bury(void* block) {
  if (block != nullptr && graveyard.is_open) {
    const std::size_t size = malloc_usable_size(block);
    if (graveyard.size + size <= Graveyard::kMaxBytes) {
      std::memcpy(graveyard.bytes + graveyard.size, block, size);
      graveyard.size += size;
    } else {
      graveyard.is_full = true;
    }
  }
  std::free(block);
}

}  // namespace

void* operator new(std::size_t size) {
  if (void* block = std::malloc(std::max<std::size_t>(size, 1))) return block;
  throw std::bad_alloc();
}
void operator delete(void* block) noexcept { bury(block); }
void operator delete(void* block, std::size_t) noexcept { bury(block); }

namespace weir::handshake::testing {
namespace {

class Wiping : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { graveyard.bytes = static_cast<char*>(std::malloc(Graveyard::kMaxBytes)); }
  static void TearDownTestSuite() { std::free(graveyard.bytes); }
  void SetUp() override { graveyard.size = 0; }
  void TearDown() override {
    graveyard.is_open = false;
    EXPECT_FALSE(graveyard.is_full);
  }

  static bool has(std::string_view needle) {
    return std::string_view(graveyard.bytes, graveyard.size).find(needle) != std::string_view::npos;
  }
  static bool has(ByteSpan needle) {
    return has(std::string_view(reinterpret_cast<const char*>(needle.data()), needle.size()));
  }
};

TEST_F(Wiping, TheGraveyardKeepsWhatWasNotWiped) {
  graveyard.is_open = true;
  { const std::string text("a secret that nobody wiped before it went"); }
  graveyard.is_open = false;
  EXPECT_TRUE(has("that nobody wiped"));
}

TEST_F(Wiping, AHandshakeLeavesNoSecretBehind) {
  peer::Credential of_one, of_two;
  crypto::KeyBytes signer;
  for (std::size_t i = 0; i < signer.size(); ++i) signer[i] = static_cast<std::byte>(0x91 + 7 * i);
  {
    Network network(1);
    auto one = std::make_unique<BrokerNode>(Address::v4(0x0a010001, 4433), 1, 64, signer);
    auto two = std::make_unique<BrokerNode>(Address::v4(0x0a010002, 4433), 2, 64, signer);
    network.add(one->at, *one);
    network.add(two->at, *two);
    graveyard.is_open = true;
    one->broker->want(two->at, "", network.now());
    network.run(3s);
    ASSERT_EQ(one->news().size(), 1u);
    ASSERT_TRUE(one->broker->map().find_by_address(two->at, Instant{}, of_one));
    ASSERT_TRUE(two->broker->map().find(of_one.id, Instant{}, of_two));
    one.reset();
    two.reset();
    graveyard.is_open = false;
  }
  ASSERT_GT(graveyard.size, 0u);
  EXPECT_FALSE(has(of_one.secret.bytes())) << "the credential's secret";
  EXPECT_FALSE(has(of_one.reset_key)) << "the responder's reset key";
  EXPECT_FALSE(has(of_two.reset_key)) << "the initiator's reset key";
  EXPECT_FALSE(has(of_one.hello_key));
  EXPECT_FALSE(has(signer));
}

TEST_F(Wiping, ADevelopmentIdentityLeavesNoKeyBehind) {
  const TestDirectory root;
  graveyard.is_open = true;
  ASSERT_TRUE(open_development(root.path("shared"), kTestWallSeconds));
  graveyard.is_open = false;
  std::stringstream text;
  text << std::ifstream(development_file(root.path("shared"), 1)).rdbuf();
  const std::string file = text.str();
  const std::string begin = "-----BEGIN PRIVATE KEY-----\n";
  const std::size_t at = file.find(begin);
  ASSERT_NE(at, std::string::npos);
  // The last characters of the only line: the first ones are the same for all keys of the kind.
  const std::string line = file.substr(at + begin.size(), file.find('\n', at + begin.size()) - at - begin.size());
  ASSERT_GT(line.size(), 40u);
  EXPECT_FALSE(has(line.substr(line.size() - 32)));
}

}  // namespace
}  // namespace weir::handshake::testing
