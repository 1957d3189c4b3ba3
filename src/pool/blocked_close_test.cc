// Closing pools while something of the application's blocks: the deadline holds, and what the blocked thread uses of
// the library stays until it returns.
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using ::testing::HasSubstr;
using testing::open;
using testing::serve_echo;
using testing::server_config;
using testing::text_of;

// What a handler waits for. Every handler shares it, so that who watches it sees when all of them are gone.
struct Door {
  std::atomic<int> inside{0};
  std::atomic<bool> is_open{false};
  void wait() {
    ++inside;
    await([this] { return is_open.load(); });
  }
};

std::string sentence_of(const Result<void>& closed) {
  return closed ? "it worked" : std::string(closed.error().message());
}

class BlockedClose : public ::testing::Test {
 protected:
  // Opens the door, when the pools are gone, and waits until all that shared it is gone, too.
  void let_all_go() {
    const std::weak_ptr<Door> watched = door;
    door->is_open = true;
    door.reset();
    await([&] { return watched.expired(); });
  }
  std::shared_ptr<Door> door = std::make_shared<Door>();
};

TEST_F(BlockedClose, InAnInlineHandler) {
  Pool client = open(client_config(1));
  {
    Pool server = open(server_config(1));
    ASSERT_TRUE(server.serve_inline("inline", [door = door](InlineRequest& request) {
      door->wait();
      request.reply("late");
    }));
    client.peer(server.listen_address()).unary("inline", "", {.deadline = 1h}).then([](const Result<Reply>&) {});
    await([&] { return door->inside == 1; });
    // Behind the handler: these end when it returns.
    Call behind = server.peer("127.0.0.1:9").unary("echo", "x", {.deadline = 1h});
    const Result<void> closed = server.close(10ms);
    ASSERT_FALSE(closed);
    EXPECT_EQ(closed.error().code(), Code::timeout);
    EXPECT_THAT(sentence_of(closed), HasSubstr("\"inline\" (1)"));
    EXPECT_EQ(server.serve_inline("more", [](InlineRequest&) {}).error().code(), Code::closed);
  }
  let_all_go();
}

TEST_F(BlockedClose, InHandlersOnTheExecutor) {
  Pool client = open(client_config(1));
  {
    Config config = server_config(2);
    config.executor_threads = 3;
    Pool server = open(config);
    for (const char* name : {"one", "two"}) {
      ASSERT_TRUE(server.serve(Method(name), [door = door](Request request) {
        door->wait();
        return Reply(request.cancelled() ? "nobody is there" : "late");
      }));
    }
    const Peer to = client.peer(server.listen_address());
    std::vector<Call> calls;
    for (const char* name : {"one", "two", "two"}) calls.push_back(to.unary(Method(name), "", {.deadline = 1h}));
    await([&] { return door->inside == 3; });
    for (int i = 0; i < 5; ++i) calls.push_back(to.unary("one", "never runs", {.deadline = 1h}));
    const Result<void> closed = server.close(10ms);
    EXPECT_THAT(sentence_of(closed), HasSubstr("\"one\" (1), \"two\" (2)"));
    for (Call& call : calls) EXPECT_FALSE(call.get());
  }
  EXPECT_EQ(door->inside, 3) << "what was queued does not run";
  let_all_go();
}

TEST_F(BlockedClose, InAContinuation) {
  Pool server = open(server_config(1));
  serve_echo(server);
  {
    Pool client = open(client_config(2));
    const Peer to = client.peer(server.listen_address());
    to.unary("echo", "x", {.deadline = 1h}).then([door = door, to](const Result<Reply>&) { door->wait(); });
    await([&] { return door->inside == 1; });
    const Result<void> closed = client.close(10ms);
    EXPECT_THAT(sentence_of(closed), HasSubstr("a continuation"));
  }
  let_all_go();
}

TEST_F(BlockedClose, OnAWorkerThatPoolsShare) {
  Pool client = open(client_config(1));
  {
    Workers workers = Workers::open({.threads = 1}).value();
    Config config = server_config(1);
    config.on = &workers;
    std::optional<Pool> blocked = open(config);
    std::optional<Pool> other = open(config);
    ASSERT_TRUE(blocked->serve_inline("inline", [door = door](InlineRequest&) { door->wait(); }));
    client.peer(blocked->listen_address()).unary("inline", "", {.deadline = 1h}).then([](const Result<Reply>&) {});
    await([&] { return door->inside == 1; });
    EXPECT_THAT(sentence_of(blocked->close(10ms)), HasSubstr("\"inline\" (1)"));
    EXPECT_THAT(sentence_of(other->close(10ms)), HasSubstr("another pool's handler"));
    blocked.reset();
    other.reset();
    door->is_open = true;  // the destructor of shared workers has patience
  }
  let_all_go();
}

TEST_F(BlockedClose, InTheGuardOfAPlacement) {
  Pool client = open(client_config(1));
  std::vector<std::byte> memory(1000), target(1000);
  {
    Pool server = open(server_config(1));
    ASSERT_TRUE(server.place("place", Placement::memory(memory).guard([door = door](const BulkRequest&) {
      door->wait();
      return Result<void>();
    })));
    std::thread getter([&] { EXPECT_FALSE(client.peer(server.listen_address()).get("place", into(target)).get()); });
    await([&] { return door->inside == 1; });
    EXPECT_THAT(sentence_of(server.close(10ms)), HasSubstr("(1)"));
    getter.join();
  }
  let_all_go();
}

TEST_F(BlockedClose, InTheSubscriberThatTheWatchdogTells) {
  struct Blocking : Subscriber {
    explicit Blocking(std::shared_ptr<Door> door_) : door(std::move(door_)) {}
    void on(const event::WorkerStalled&) override { door->wait(); }
    std::shared_ptr<Door> door;
  };
  Pool client = open(client_config(1));
  {
    Config config = server_config(1);
    config.watchdog = 20ms;
    config.subscriber = std::make_shared<Blocking>(door);
    Pool server = open(config);
    config.subscriber.reset();
    // The worker stands still until the watchdog has told of it.
    ASSERT_TRUE(
        server.serve_inline("inline", [door = door](InlineRequest&) { await([&] { return door->inside == 1; }); }));
    client.peer(server.listen_address()).unary("inline", "", {.deadline = 1h}).then([](const Result<Reply>&) {});
    await([&] { return door->inside == 1; });
    EXPECT_THAT(sentence_of(server.close(10ms)), HasSubstr("subscriber"));
  }
  let_all_go();
}

// The handler of a closed pool has the last handle, and with it the last reference to its own thread.
TEST_F(BlockedClose, TheLastHandleMayGoOnAWorkerThatWasShared) {
  Pool client = open(client_config(1));
  {
    Workers workers = Workers::open({.threads = 2, .watchdog = 1s}).value();
    Config config = server_config(1);
    config.on = &workers;
    auto server = std::make_shared<std::optional<Pool>>(open(config));
    ASSERT_TRUE((*server)->serve_inline("inline", [door = door, last = server](InlineRequest&) {
      door->wait();
      last->reset();
    }));
    client.peer((*server)->listen_address()).unary("inline", "", {.deadline = 1h}).then([](const Result<Reply>&) {});
    await([&] { return door->inside == 1; });
    EXPECT_THAT(sentence_of((*server)->close(10ms)), HasSubstr("\"inline\" (1)"));
  }
  let_all_go();
}

// Nobody said how long it may take. It waits for handlers longer than for calls, but not for ever.
TEST_F(BlockedClose, TheLastHandleDoesNotWaitForEver) {
  Pool client = open(client_config(1));
  {
    Pool server = open(server_config(1));
    ASSERT_TRUE(server.serve_inline("inline", [door = door](InlineRequest&) { door->wait(); }));
    ASSERT_TRUE(server.serve("task", [door = door](Request) {
      door->wait();
      return Reply();
    }));
    const Peer to = client.peer(server.listen_address());
    to.unary("task", "", {.deadline = 1h}).then([](const Result<Reply>&) {});
    await([&] { return door->inside == 1; });
    to.unary("inline", "", {.deadline = 1h}).then([](const Result<Reply>&) {});
    await([&] { return door->inside == 2; });
  }
  let_all_go();
}

}  // namespace
}  // namespace weir
