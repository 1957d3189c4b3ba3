// What a large message costs its two processes, by count: its bytes are sealed once, moved once from the packets they
// came in to where they are opened, opened once, and copied by nobody.
#include <string>
#include <vector>

#include "buffer/work.h"
#include "pool/large_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::is_same;
using testing::kMiB;
using testing::kRecord;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::server_config;

struct Done {
  std::uint64_t sealed = buffer::work.sealed_bytes.load(), moved = buffer::work.moved_bytes.load(),
                opened = buffer::work.opened_bytes.load(), copied = buffer::work.copied_bytes.load();
};

// A packet that was lost or late comes twice and is moved twice; soon none is.
template <class Function>
void expect_work(const Done& wanted, Function&& send) {
  constexpr int kTries = 20;
  std::uint64_t moved = 0;
  for (int i = 0; i < kTries && moved != wanted.moved; ++i) {
    const Done before;
    send();
    const Done now;
    EXPECT_EQ(now.sealed - before.sealed, wanted.sealed);
    EXPECT_EQ(now.opened - before.opened, wanted.opened);
    EXPECT_EQ(now.copied - before.copied, wanted.copied);
    moved = now.moved - before.moved;
    EXPECT_GE(moved, wanted.moved);
  }
  EXPECT_EQ(moved, wanted.moved);
}

class LargeWork : public ::testing::Test {
 protected:
  LargeWork() {
    for (int i = 0; i < 3; ++i) {
      servers.push_back(open(server_config(1)));
      EXPECT_TRUE(servers.back().serve("take", [this](Request request) {
        return Reply{is_same(request.text(), text) ? "taken" : "something else"};
      }));
      EXPECT_TRUE(
          servers.back().serve_inline("give bytes", [this](InlineRequest& request) { request.reply(as_bytes(text)); }));
      EXPECT_TRUE(servers.back().serve("give a copy", [this](Request) { return Reply{as_bytes(text)}; }));
      EXPECT_TRUE(servers.back().serve("give a payload", [this](Request) { return Reply{payload}; }));
      peers.push_back(client.peer(servers.back().listen_address()));
      EXPECT_EQ(testing::text_of(peers.back().unary("take", "hello").get()), "something else");
    }
    payload = payload_of(client, text);
  }
  void expect_taken(const Result<Reply>& reply) { EXPECT_EQ(testing::text_of(reply), "taken"); }

  const std::string text = pattern(5 * kMiB + kRecord / 2);
  const std::uint64_t bytes = text.size();
  Pool client = open(client_config(1));
  std::vector<Pool> servers;
  std::vector<Peer> peers;
  Payload payload;
};

TEST_F(LargeWork, ALargeRequestIsSealedOnceCopiedOnceAndOpenedOnce) {
  expect_work({.sealed = bytes, .moved = bytes, .opened = bytes, .copied = 0},
              [&] { expect_taken(peers[0].unary("take", text, {.deadline = 60s}).get()); });
  // One that was sealed before.
  expect_work({.sealed = 0, .moved = bytes, .opened = bytes, .copied = 0},
              [&] { expect_taken(peers[0].unary("take", payload, {.deadline = 60s}).get()); });
}

TEST_F(LargeWork, SoIsALargeReplyUnlessItsHandlerMakesAReplyOfBytes) {
  const auto expect_given = [&](const char* method) {
    const Result<Reply> reply = peers[0].unary(method, "", {.deadline = 60s}).get();
    ASSERT_TRUE(reply) << method << ": " << reply.error().to_string();
    EXPECT_TRUE(is_same(reply->text(), text)) << method;
  };
  expect_work({.sealed = 0, .moved = bytes, .opened = bytes, .copied = 0}, [&] { expect_given("give a payload"); });
  expect_work({.sealed = bytes, .moved = bytes, .opened = bytes, .copied = 0}, [&] { expect_given("give bytes"); });
  expect_work({.sealed = bytes, .moved = bytes, .opened = bytes, .copied = bytes},
              [&] { expect_given("give a copy"); });
}

TEST_F(LargeWork, ABroadcastIsSealedOnceAndMovedOnceByEach) {
  expect_work({.sealed = bytes, .moved = 3 * bytes, .opened = 3 * bytes, .copied = 0}, [&] {
    const BroadcastOutcome outcome = client.broadcast(peers, "take", payload_of(client, text), {.deadline = 60s}).get();
    ASSERT_EQ(outcome.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(outcome[i]);
      expect_taken(*outcome[i]);
    }
  });
}

}  // namespace
}  // namespace weir
