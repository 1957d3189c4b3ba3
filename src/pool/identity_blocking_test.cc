// Applications that block where they must not: in the function that says who may call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "pool/identity_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using ::testing::HasSubstr;
using testing::identity_client;
using testing::identity_server;
using testing::open;
using testing::serve_echo;
using testing::TestAuthority;
using testing::text_of;

constexpr std::uint32_t kHandshakeWorker = 1;  // after the workers, of which there is one

// On a busy machine any thread may stand still for longer than the watchdog's patience.
struct Watch : Subscriber {
  void on(const event::WorkerStalled& e) override {
    if (e.meta.worker == kHandshakeWorker) has_heard_of_handshakes = true;
  }
  std::atomic<bool> has_heard_of_handshakes{false};
};

// Shared with the function, which outlives the pool: it blocks until it is let go.
struct Door {
  std::atomic<int> asked{0};
  std::atomic<bool> is_open{false};
};

auto blocking(std::shared_ptr<Door> door) {
  return [door](std::string_view) {
    ++door->asked;
    while (!door->is_open) std::this_thread::sleep_for(1ms);
    return true;
  };
}

TEST(AFunctionThatBlocksTheHandshakeThread, IsReportedByTheWatchdog) {
  TestAuthority authority;
  auto watch = std::make_shared<Watch>();
  Config config = identity_server(authority.identity({"127.0.0.1"}).authorise([&](std::string_view) {
    await([&] { return watch->has_heard_of_handshakes.load(); });
    return true;
  }));
  config.watchdog = 20ms;
  config.subscriber = watch;
  Pool server = open(config);
  serve_echo(server);
  Pool client = open(identity_client(authority.identity({"client.test"})));
  EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("echo", "x", {.deadline = 1h}).get()), "x");
}

// Its caller hears nothing for far longer than a peer needs that has restarted.
TEST(AFunctionThatBlocksTheHandshakeThread, IsAskedOnceAboutACallerThatWaits) {
  TestAuthority authority;
  std::atomic<int> asked{0};
  Pool server = open(identity_server(authority.identity({"127.0.0.1"}).authorise([&](std::string_view) {
    ++asked;
    std::this_thread::sleep_for(600ms);
    return true;
  })));
  serve_echo(server);
  Pool client = open(identity_client(authority.identity({"client.test"})));
  EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("echo", "x", {.deadline = 1h}).get()), "x");
  EXPECT_EQ(asked, 1);
}

// Without a deadline that holds, this test would never end: the function returns only after the pool is gone.
TEST(AFunctionThatBlocksTheHandshakeThread, DoesNotKeepAPoolFromClosing) {
  TestAuthority authority;
  auto door = std::make_shared<Door>();
  const std::weak_ptr<Door> held = door;
  Pool client = open(identity_client(authority.identity({"client.test"})));
  {
    Pool server = open(identity_server(authority.identity({"127.0.0.1"}).authorise(blocking(door))));
    const Peer peer = server.peer("127.0.0.1:9");  // something of the pool's that requests name
    Call mine = peer.ready({.deadline = 1h});
    client.peer(server.listen_address()).unary("echo", "x", {.deadline = 1h}).then([](const Result<Reply>&) {});
    await([&] { return door->asked > 0; });
    const Result<void> closed = server.close(10ms);
    ASSERT_FALSE(closed);
    EXPECT_EQ(closed.error().code(), Code::timeout);
    EXPECT_THAT(std::string(closed.error().message()), HasSubstr("authorise"));
  }
  EXPECT_EQ(door->asked, 1);
  door->is_open = true;
  door.reset();
  await([&] { return held.expired(); });  // everything that the thread had is gone with it
}

TEST(AFunctionThatBlocksTheHandshakeThread, KeepsNeitherSharedWorkersNorTheirOtherPools) {
  TestAuthority authority;
  auto door = std::make_shared<Door>();
  const std::weak_ptr<Door> held = door;
  Pool client = open(identity_client(authority.identity({"client.test"})));
  {
    std::optional<Workers> workers = Workers::open({.threads = 1}).value();
    Config config = identity_server(authority.identity({"127.0.0.1"}).authorise(blocking(door)));
    config.on = &*workers;
    Pool blocked = open(config);
    config.identity = authority.identity({"127.0.0.1"});
    Pool other = open(config);
    client.peer(blocked.listen_address()).unary("echo", "x", {.deadline = 1h}).then([](const Result<Reply>&) {});
    await([&] { return door->asked > 0; });
    EXPECT_FALSE(blocked.close(10ms));
    EXPECT_FALSE(other.close(10ms)) << "its handshakes are made by the same thread";
  }
  door->is_open = true;
  door.reset();
  await([&] { return held.expired(); });
}

}  // namespace
}  // namespace weir
