// The end of a certificate, over real sockets: who has a new one in time goes on, who has none is neither called nor
// served. Set WEIR_CERTIFICATE_SECONDS for certificates that live longer than those of the ordinary run.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pool/identity_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::code_of;
using testing::identity_client;
using testing::identity_server;
using testing::open;
using testing::sentence_of;
using testing::serve_echo;
using testing::TestAuthority;
using testing::TestDirectory;
using testing::text_of;

// A node's files, which can be replaced while a pool uses them.
class NodeFiles {
 public:
  NodeFiles(const TestAuthority& authority, std::string name) : authority_(authority), name_(std::move(name)) {
    directory_.write("ca.crt", authority_.roots());
  }
  // By another pair of certificate and key, which ends `seconds` from now.
  void issue(std::int64_t seconds) {
    const handshake::Issued issued = authority_.issue({name_}, {-60, seconds});
    replace("node.key", issued.key_pem);
    replace("node.crt", issued.chain_pem);
  }
  Identity identity() const {
    return Identity::from_files(directory_.path("node.crt"), directory_.path("node.key"), directory_.path("ca.crt"));
  }

 private:
  void replace(const char* name, const std::string& content) {
    directory_.write("new", content);
    std::filesystem::rename(directory_.path("new"), directory_.path(name));
  }

  const TestAuthority& authority_;
  const std::string name_;
  TestDirectory directory_;
};

TEST(EndOfACertificate, IsNoneForCallersOfAServerWhoseFilesWereReplacedInTime) {
  TestAuthority authority;
  NodeFiles files(authority, "127.0.0.1");
  const auto start = std::chrono::steady_clock::now();
  files.issue(5);
  Pool server = open(identity_server(files.identity()));
  serve_echo(server);
  Pool client = open(identity_client(authority.identity({"client.test"})));
  const Peer peer = client.peer(server.listen_address());
  EXPECT_EQ(text_of(peer.unary("echo", "first").get()), "first");
  std::this_thread::sleep_until(start + 3s);
  files.issue(3'600);
  std::this_thread::sleep_until(start + 6s);  // nobody has called since the beginning
  const Result<Reply> late = peer.unary("echo", "late").get();
  EXPECT_EQ(text_of(late), "late") << sentence_of(late);
}

TEST(EndOfACertificate, LetsNoHandlerRunForItsOwner) {
  TestAuthority authority;
  Pool server = open(identity_server(authority.identity({"127.0.0.1"})));
  std::atomic<int> handled{0};
  ASSERT_TRUE(server.serve("count", [&](Request) {
    ++handled;
    return Reply{};
  }));
  NodeFiles files(authority, "client.test");
  files.issue(2);
  const std::int64_t end = handshake::wall_clock_seconds() + 2;
  Pool client = open(identity_client(files.identity()));
  const Peer peer = client.peer(server.listen_address());
  int answered = 0;
  while (handshake::wall_clock_seconds() <= end) {
    answered += peer.unary("count", "", {.deadline = 500ms}).get().has_value() ? 1 : 0;
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_GT(answered, 0);
  const int before = handled;
  const auto stop = std::chrono::steady_clock::now() + 2s;
  int refused = 0;
  while (std::chrono::steady_clock::now() < stop) {
    const Result<Reply> reply = peer.unary("count", "", {.deadline = 200ms}).get();
    EXPECT_FALSE(reply.has_value());
    ++refused;
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(handled, before) << "a handler ran for a caller whose certificate had ended";
}

TEST(EndOfACertificate, CostsNoCallWhereBothSidesReplaceTheirsAtHalfTime) {
  const char* const wish = std::getenv("WEIR_CERTIFICATE_SECONDS");
  const std::int64_t life = wish != nullptr ? std::atol(wish) : 4;
  ASSERT_GE(life, 4);
  TestAuthority authority;
  NodeFiles of_server(authority, "127.0.0.1"), of_client(authority, "client.test");
  of_server.issue(life);
  of_client.issue(life);
  Pool server = open(identity_server(of_server.identity(), 2));
  serve_echo(server);
  Pool client = open(identity_client(of_client.identity(), 2));
  const Peer peer = client.peer(server.listen_address());
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> calls{0}, lost{0};
  std::mutex mutex;
  std::string complaint;
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      while (!is_over) {
        const Result<Reply> reply = peer.unary("echo", "soak", {.deadline = 10s}).get();
        ++calls;
        if (!reply) {
          ++lost;
          std::lock_guard lock(mutex);
          complaint = sentence_of(reply);
        }
        std::this_thread::sleep_for(200us);
      }
    });
  }
  // One side after the other, and each twice and a half.
  const auto quarter = std::chrono::milliseconds(life * 250);
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(quarter);
    (i % 2 == 0 ? of_server : of_client).issue(life);
  }
  is_over = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(lost, 0u) << "of " << calls << ", the last one because: " << complaint;
  EXPECT_GT(calls, 100u);
  std::uint64_t handshakes = 0;
  for (const Counters& each : client.counters()) handshakes += each.handshakes_completed;
  RecordProperty("calls", std::to_string(calls));
  RecordProperty("paths", std::to_string(handshakes));
}

}  // namespace
}  // namespace weir
