// Where pools with identities send their packets, and how large.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "pool/identity_testing.h"

namespace weir {
namespace {

using testing::await;
using testing::identity_client;
using testing::identity_server;
using testing::open;
using testing::serve_echo;
using testing::TestAuthority;
using testing::text_of;

TEST(IdentityPaths, CallersAreSpreadEvenlyOverTheWorkersOfAServer) {
  constexpr int kWorkers = 4, kCallers = 12;
  const TestAuthority authority;
  Pool server = open(identity_server(authority.identity({"127.0.0.1"}), kWorkers));
  std::mutex mutex;
  std::map<std::thread::id, int> taken;
  ASSERT_TRUE(server.serve_inline("who", [&](InlineRequest& request) {
    std::lock_guard lock(mutex);
    ++taken[std::this_thread::get_id()];
    request.reply("");
  }));
  for (int i = 0; i < kCallers; ++i) {
    Pool caller = open(identity_client(authority.identity({"caller.test"}), 0));
    ASSERT_TRUE(caller.peer(server.listen_address()).unary("who", "").get());
  }
  std::lock_guard lock(mutex);
  EXPECT_EQ(taken.size(), static_cast<std::size_t>(kWorkers));
  for (const auto& [thread, calls] : taken) EXPECT_EQ(calls, kCallers / kWorkers);
}

struct SizeListener : Subscriber {
  void on(const event::MtuChanged& e) override {
    std::uint32_t seen = largest.load();
    while (seen < e.datagram_bytes && !largest.compare_exchange_weak(seen, e.datagram_bytes)) {
    }
  }
  std::atomic<std::uint32_t> largest{0};
};

TEST(IdentityPaths, NobodyTriesForLargerDatagramsThanBothSidesWant) {
  const TestAuthority authority;
  for (const bool is_server_small : {true, false}) {
    SCOPED_TRACE(is_server_small);
    auto heard = std::make_shared<SizeListener>();
    Config ours = identity_client(authority.identity({"client.test"}));
    Config theirs = identity_server(authority.identity({"127.0.0.1"}));
    (is_server_small ? theirs : ours).datagram_bytes = 1'400;
    (is_server_small ? ours : theirs).subscriber = heard;
    Pool server = open(theirs);
    serve_echo(server);
    Pool client = open(ours);
    Peer peer = client.peer(server.listen_address());
    const auto call = [&] { EXPECT_EQ(text_of(peer.unary("echo", "x").get()), "x"); };
    await([&] {
      call();
      return heard->largest != 0;
    });
    for (int i = 0; i < 200; ++i) call();
    EXPECT_EQ(heard->largest, 1'400u);
  }
}

}  // namespace
}  // namespace weir
