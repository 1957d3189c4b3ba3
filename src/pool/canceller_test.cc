// Call::then_cancellable(): the continuation runs exactly once, whoever comes first.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::open;
using testing::serve_echo;
using testing::server_config;

// Serves "hold", which answers when it is told to, and "echo".
struct Server {
  Server() : pool(open(server_config(1))) {
    serve_echo(pool);
    EXPECT_TRUE(pool.serve_inline("hold", [this](InlineRequest& request) {
      std::lock_guard lock(mutex);
      held.push_back(request.defer());
    }));
  }
  std::size_t holding() {
    std::lock_guard lock(mutex);
    return held.size();
  }
  bool has_first_caller_gone() {
    std::lock_guard lock(mutex);
    return held.at(0).cancelled();
  }
  void let_go() {
    std::lock_guard lock(mutex);
    for (Responder& responder : held) responder.reply("late");
    held.clear();
  }

  std::mutex mutex;
  std::vector<Responder> held;
  Pool pool;
};

// What one continuation saw.
struct Seen {
  std::atomic<int> runs{0};
  std::string text;  // once it has run
  bool may_have_run = false;

  auto continuation() {
    return [this](Result<Reply> result) {
      text = result ? std::string(result->text()) : std::string(result.error().message());
      EXPECT_TRUE(result || result.error().code() == Code::cancelled || result.error().code() == Code::closed);
      may_have_run = !result && result.error().may_have_run();
      ++runs;
    };
  }
};

void await(Pool& client, int workers, const std::function<bool()>& condition) {
  testing::await([&] {
    if (workers == 0) client.poll();
    return condition();
  });
}

constexpr const char* kCancelled = "the caller cancelled it";

class Cancelling : public ::testing::TestWithParam<int> {
 protected:
  int workers() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Workers, Cancelling, ::testing::Values(0, 1, 2));

TEST_P(Cancelling, RunsTheContinuationOnceAndTellsThePeer) {
  Server server;
  Pool client = open(client_config(workers()));
  Seen seen;
  const Canceller canceller = client.peer(server.pool.listen_address())
                                  .unary("hold", "", {.deadline = 1h})
                                  .then_cancellable(seen.continuation());
  await(client, workers(), [&] { return server.holding() == 1; });
  EXPECT_EQ(seen.runs, 0);
  canceller.cancel();
  const Canceller copy = canceller;
  copy.cancel();
  await(client, workers(), [&] { return seen.runs == 1; });
  EXPECT_EQ(seen.text, kCancelled);
  EXPECT_TRUE(seen.may_have_run);
  await(client, workers(), [&] { return server.has_first_caller_gone(); });
  server.let_go();
  static_cast<void>(client.close(10s));
  EXPECT_EQ(seen.runs, 1);
}

TEST_P(Cancelling, ComesTooLateForACallThatIsComplete) {
  Server server;
  std::optional<Pool> client = open(client_config(workers()));
  const Peer peer = client->peer(server.pool.listen_address());
  Seen first, second;
  const Canceller canceller = peer.unary("echo", "a", {.deadline = 1h}).then_cancellable(first.continuation());
  await(*client, workers(), [&] { return first.runs == 1; });
  EXPECT_EQ(first.text, "a");
  // This call may have the record of the other.
  peer.unary("hold", "", {.deadline = 1h}).then(second.continuation());
  await(*client, workers(), [&] { return server.holding() == 1; });
  canceller.cancel();
  server.let_go();
  await(*client, workers(), [&] { return second.runs == 1; });
  EXPECT_EQ(second.text, "late");

  Seen third;
  const Canceller of_closed = peer.unary("hold", "", {.deadline = 1h}).then_cancellable(third.continuation());
  static_cast<void>(client->close(0ns));
  EXPECT_EQ(third.runs, 1);
  of_closed.cancel();
  client.reset();
  const Canceller& of_nothing = of_closed;
  of_nothing.cancel();
  Canceller().cancel();
  EXPECT_EQ(first.runs + second.runs + third.runs, 3);
}

TEST_P(Cancelling, IsNotWhatDroppingTheCancellerDoes) {
  Server server;
  Pool client = open(client_config(workers()));
  Seen seen;
  {
    const Canceller dropped = client.peer(server.pool.listen_address())
                                  .unary("hold", "", {.deadline = 1h})
                                  .then_cancellable(seen.continuation());
  }
  await(client, workers(), [&] { return server.holding() == 1; });
  server.let_go();
  await(client, workers(), [&] { return seen.runs == 1; });
  EXPECT_EQ(seen.text, "late");
}

TEST_P(Cancelling, SaysThatACallWhichWasNotSentHasNotRun) {
  const int silent = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage address{};
  address.ss_family = AF_INET;
  ASSERT_EQ(::bind(silent, reinterpret_cast<sockaddr*>(&address), sizeof(sockaddr_in)), 0);
  socklen_t length = sizeof address;
  ASSERT_EQ(::getsockname(silent, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const int port = ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  Pool client = open(client_config(workers()));
  Seen seen;
  const Canceller canceller = client.peer("127.0.0.1:" + std::to_string(port))
                                  .unary("hold", "", {.deadline = 1h})
                                  .then_cancellable(seen.continuation());
  canceller.cancel();
  await(client, workers(), [&] { return seen.runs == 1; });
  EXPECT_EQ(seen.text, kCancelled);
  EXPECT_FALSE(seen.may_have_run);
  ::close(silent);
}

TEST_P(Cancelling, FreesWhatTheContinuationHoldsAlthoughTheCancellerStays) {
  Server server;
  Pool client = open(client_config(workers()));
  std::atomic<int> runs{0};
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  const Canceller canceller = client.peer(server.pool.listen_address())
                                  .unary("echo", "", {.deadline = 1h})
                                  .then_cancellable([held = std::move(held), &runs,
                                                     large = std::array<char, 100>{}](Result<Reply>) { ++runs; });
  await(client, workers(), [&] { return runs == 1 && watched.expired(); });
}

// A call that is made in a handler, whose thread turns the loop, and cancelled there, and by whoever it is given to.
TEST_P(Cancelling, WorksInsideOfHandlersAndForCallsOfHandlers) {
  Server server;
  Pool middle = open(server_config(workers()));
  const Peer to = middle.peer(server.pool.listen_address());
  Seen here, elsewhere;
  std::mutex mutex;
  std::optional<Call> given;
  ASSERT_TRUE(middle.serve_inline("middle", [&](InlineRequest& request) {
    const Canceller canceller = to.unary("hold", "", {.deadline = 1h}).then_cancellable(here.continuation());
    canceller.cancel();
    EXPECT_EQ(here.runs, 0) << "never inside of cancel()";
    std::lock_guard lock(mutex);
    given = to.unary("hold", "", {.deadline = 1h});
    request.reply("");
  }));
  Pool client = open(client_config(1));
  std::atomic<bool> is_answered{false};
  client.peer(middle.listen_address()).unary("middle", "", {.deadline = 1h}).then([&](Result<Reply> result) {
    EXPECT_TRUE(result);
    is_answered = true;
  });
  await(middle, workers(), [&] { return is_answered && here.runs == 1; });
  EXPECT_EQ(here.text, kCancelled);
  std::thread other([&] {
    std::lock_guard lock(mutex);
    given->then_cancellable(elsewhere.continuation()).cancel();
  });
  await(middle, workers(), [&] { return elsewhere.runs == 1; });
  other.join();
  EXPECT_EQ(elsewhere.text, kCancelled);
  server.let_go();
}

TEST_P(Cancelling, RacesCompletionAndEndsOnce) {
  constexpr int kCalls = 2'000;
  Server server;
  Pool client = open(client_config(workers()));
  const Peer peer = client.peer(server.pool.listen_address());
  std::vector<std::atomic<int>> runs(kCalls);
  std::vector<Canceller> cancellers(kCalls);
  std::atomic<int> made{0}, over{0}, cancelled{0};
  std::thread canceller([&] {
    for (int i = 0; i < kCalls; ++i) {
      testing::await([&] { return made > i; });
      if (i % 3 != 0) cancellers[static_cast<std::size_t>(i)].cancel();
    }
  });
  for (int i = 0; i < kCalls; ++i) {
    cancellers[static_cast<std::size_t>(i)] =
        peer.unary("echo", "x", {.deadline = 1h}).then_cancellable([&, i](Result<Reply> result) {
          if (!result) {
            EXPECT_EQ(result.error().code(), Code::cancelled);
            EXPECT_NE(i % 3, 0);
            ++cancelled;
          }
          ++runs[static_cast<std::size_t>(i)];
          ++over;
        });
    ++made;
    if (workers() == 0) client.poll();
  }
  await(client, workers(), [&] { return over == kCalls; });
  canceller.join();
  EXPECT_TRUE(client.close(10s));
  for (const std::atomic<int>& each : runs) EXPECT_EQ(each, 1);
  EXPECT_EQ(over, kCalls);
  RecordProperty("cancelled", cancelled);
}

TEST_P(Cancelling, RacesTheEndOfThePoolAndEndsOnce) {
  Server server;
  for (int round = 0; round < 30; ++round) {
    constexpr int kCalls = 16;
    std::optional<Pool> client = open(client_config(workers()));
    std::atomic<int> over{0};
    std::vector<Canceller> cancellers;
    for (int i = 0; i < kCalls; ++i) {
      cancellers.push_back(client->peer(server.pool.listen_address())
                               .unary("echo", "x", {.deadline = 1h})
                               .then_cancellable([&](Result<Reply>) { ++over; }));
    }
    std::thread canceller([&] {
      for (const Canceller& each : cancellers) each.cancel();
    });
    if (round % 2 == 0) static_cast<void>(client->close(0ns));
    client.reset();
    canceller.join();
    EXPECT_EQ(over, kCalls);
  }
}

}  // namespace
}  // namespace weir
