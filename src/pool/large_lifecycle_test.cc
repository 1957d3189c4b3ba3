// Large messages that are given up, held on to, or cut off, at every stage.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "pool/large_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::is_same;
using testing::kMiB;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::serve_echo;
using testing::server_config;
using testing::text_of;
using testing::total;

// A server that takes one message at a time, and keeps the first for as long as it is told to.
struct Narrow {
  Narrow() {
    Config listening = server_config(1);
    listening.limits.message_bytes = listening.limits.large_request_bytes = 4 * kMiB;
    listening.limits.nested_large_request_bytes = listening.limits.large_bytes_per_peer = 4 * kMiB;
    server.emplace(open(listening));
    EXPECT_TRUE(server->serve("hold", [this](Request request) {
      std::lock_guard lock(mutex);
      held.push_back(std::move(request));
      return Reply{"held"};
    }));
    serve_echo(*server);
  }
  void let_go() {
    std::lock_guard lock(mutex);
    held.clear();
  }

  std::mutex mutex;
  std::vector<Request> held;
  std::optional<Pool> server;
};

TEST(LargeLifecycle, AHandlerMayKeepTheBodyAndOthersWaitForItsMemory) {
  Narrow narrow;
  Pool client = open(client_config(1));
  const Peer to = client.peer(narrow.server->listen_address());
  const std::string body = pattern(3 * kMiB);
  EXPECT_EQ(text_of(to.unary("hold", body).get()), "held");
  Call waiting = to.unary("hold", body, {.deadline = 60s});
  await([&] { return total(*narrow.server).regions_exhausted != 0; });
  EXPECT_FALSE(detail::call_ready(waiting.record()));
  EXPECT_TRUE(is_same(narrow.held.front().text(), body));
  narrow.let_go();
  EXPECT_EQ(text_of(waiting.get()), "held");
}

TEST(LargeLifecycle, ABodyOutlivesItsPool) {
  std::optional<Request> kept;
  std::optional<Reply> reply;
  const std::string body = pattern(kMiB);
  {
    Pool server = open(server_config(1)), client = open(client_config(1));
    serve_echo(server);
    ASSERT_TRUE(server.serve("keep", [&](Request request) {
      kept.emplace(std::move(request));
      return Reply{"kept"};
    }));
    const Peer to = client.peer(server.listen_address());
    EXPECT_EQ(text_of(to.unary("keep", body, {.header = "h"}).get()), "kept");
    reply.emplace(std::move(to.unary("echo", body).get().value()));
    EXPECT_TRUE(server.close());
    EXPECT_TRUE(client.close());
    EXPECT_TRUE(is_same(kept->text(), body));
  }
  EXPECT_TRUE(is_same(kept->text(), body));
  EXPECT_EQ(kept->header_text(), "h");
  EXPECT_TRUE(is_same(reply->text(), body));
}

TEST(LargeLifecycle, APayloadOutlivesItsPoolAndMayBeSentThroughAnother) {
  Pool server = open(server_config(1)), client = open(client_config(1));
  serve_echo(server);
  const std::string body = pattern(kMiB);
  std::optional<Payload> payload;
  {
    Pool brief = open(client_config(1));
    payload.emplace(payload_of(brief, body));
  }
  const Result<Reply> reply = client.peer(server.listen_address()).unary("echo", *payload).get();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_TRUE(is_same(reply->text(), body));
}

TEST(LargeLifecycle, CallsMayBeDroppedAtAnyMoment) {
  Pool server = open(server_config(1)), client = open(client_config(1));
  serve_echo(server);
  ASSERT_TRUE(server.serve("task", [](Request r) -> Task<Reply> { co_return Reply{r.body()}; }));
  const Peer to = client.peer(server.listen_address());
  const std::string body = pattern(2 * kMiB);
  const Payload payload = payload_of(client, body);
  for (int i = 0; i < 60; ++i) {
    Call call = to.unary(i % 2 == 0 ? "echo" : "task", payload);
    std::this_thread::sleep_for(std::chrono::microseconds(i * i * 2));
    if (i % 3 == 0) call.cancel();
  }
  const Result<Reply> reply = to.unary("echo", payload).get();
  ASSERT_TRUE(reply) << reply.error().to_string();
  EXPECT_TRUE(is_same(reply->text(), body));
  EXPECT_TRUE(client.close());
}

TEST(LargeLifecycle, TasksMayBeDestroyedWhileTheirRepliesAreOnTheWay) {
  Pool server = open(server_config(1)), client = open(client_config(1));
  serve_echo(server);
  const Peer to = client.peer(server.listen_address());
  const Payload payload = payload_of(client, pattern(2 * kMiB));
  for (int i = 0; i < 40; ++i) {
    const auto task = [&]() -> Task<void> { static_cast<void>(co_await to.unary("echo", payload)); };
    auto started = task();
    started.start();
    std::this_thread::sleep_for(std::chrono::microseconds(i * i * 4));
    client.poll();
  }
  EXPECT_TRUE(to.unary("echo", payload).get());
}

TEST(LargeLifecycle, ACancelledCallMakesRoomForOthers) {
  Narrow narrow;
  Pool client = open(client_config(1));
  const Peer to = client.peer(narrow.server->listen_address());
  const std::string body = pattern(3 * kMiB);
  EXPECT_EQ(text_of(to.unary("hold", body).get()), "held");
  {
    Call given_up = to.unary("hold", body, {.deadline = 60s});
    await([&] { return total(*narrow.server).regions_exhausted != 0; });
  }
  Call waiting = to.unary("hold", body, {.deadline = 60s});
  await([&] { return total(*narrow.server).regions_exhausted > 1; });
  narrow.let_go();
  EXPECT_EQ(text_of(waiting.get()), "held");
}

TEST(LargeLifecycle, ADeadlinePassesWhileThereIsNoMemory) {
  Narrow narrow;
  Pool client = open(client_config(1));
  const Peer to = client.peer(narrow.server->listen_address());
  const std::string body = pattern(3 * kMiB);
  EXPECT_EQ(text_of(to.unary("hold", body).get()), "held");
  const Result<Reply> late = to.unary("hold", body, {.deadline = 100ms}).get();
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::timeout);
  EXPECT_FALSE(late.error().may_have_run()) << "its data was never sent";
  narrow.let_go();
  EXPECT_EQ(text_of(to.unary("hold", body).get()), "held");
}

// A server in a process of its own; its address.
pid_t fork_holder(std::string& address) {
  int pipes[2];
  EXPECT_EQ(pipe(pipes), 0);
  const pid_t child = fork();
  if (child == 0) {
    Config config = server_config(1);
    config.limits.message_bytes = 64 * kMiB;
    config.limits.large_request_bytes = config.limits.large_bytes_per_peer = 192 * kMiB;
    Pool server = open(config);
    std::vector<Request> held;
    static_cast<void>(server.serve("hold", [&](Request request) {
      held.push_back(std::move(request));
      return Reply{"held"};
    }));
    const std::string line = server.listen_address() + "\n";
    static_cast<void>(!write(pipes[1], line.data(), line.size()));
    for (;;) pause();
  }
  for (char c = 0; read(pipes[0], &c, 1) == 1 && c != '\n';) address += c;
  close(pipes[0]);
  close(pipes[1]);
  return child;
}

// A first message is there, a second has its memory and is on its way. It is met there, if not at once then soon.
TEST(LargeLifecycle, APeerThatIsKilledMidwayFailsTheCall) {
  constexpr int kTries = 20;
  constexpr std::uint64_t kBytes = 60 * kMiB;
  bool was_midway = false;
  for (int i = 0; i < kTries && !was_midway; ++i) {
    std::string address;
    const pid_t child = fork_holder(address);
    Config config = client_config(1);
    config.timeouts.silence = 500ms;
    Pool client = open(config);
    const Peer to = client.peer(address);
    const Payload payload = payload_of(client, pattern(kBytes));
    EXPECT_EQ(text_of(to.unary("hold", payload).get()), "held");
    Call second = to.unary("hold", payload);
    const auto sent = [&] { return total(client).payload_bytes_sent; };
    while (sent() < kBytes + 10 * kMiB && !detail::call_ready(second.record())) std::this_thread::yield();
    kill(child, SIGSTOP);  // it takes nothing more; what of it is midway cannot come to its end
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, WUNTRACED), child);
    was_midway = sent() < 2 * kBytes - 20 * kMiB;
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    const Result<Reply> outcome = second.get();
    if (!was_midway) continue;
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code(), Code::peer_failed) << outcome.error().to_string();
    EXPECT_LT(sent(), 2 * kBytes) << "nothing more of it was sent";
  }
  EXPECT_TRUE(was_midway);
}

TEST(LargeLifecycle, ClosingCutsOffWhatIsOnTheWay) {
  for (int i = 0; i < 12; ++i) {
    std::optional<Pool> server = open(server_config(1)), client = open(client_config(1));
    serve_echo(*server);
    ASSERT_TRUE(server->serve("task", [](Request r) -> Task<Reply> { co_return Reply{r.body()}; }));
    const Peer to = client->peer(server->listen_address());
    const Payload payload = payload_of(*client, pattern(4 * kMiB));
    std::atomic<int> ended{0};
    std::vector<Call> calls;
    for (int k = 0; k < 4; ++k) {
      calls.push_back(to.unary(k % 2 == 0 ? "echo" : "task", payload));
      to.unary(k % 2 == 0 ? "echo" : "task", payload).then([&](Result<Reply>) { ++ended; });
    }
    std::this_thread::sleep_for(std::chrono::microseconds(i * i * 60));
    if (i % 2 == 0) {
      static_cast<void>(client->close(0s));
    } else {
      static_cast<void>(server->close(0s));
    }
    for (Call& call : calls) static_cast<void>(call.get());
    await([&] { return ended == 4; });
  }
}

TEST(LargeLifecycle, AResponderMayAnswerLargeFromAnyThreadAndAfterTheEnd) {
  std::optional<Pool> server = open(server_config(1));
  Pool client = open(client_config(1));
  std::mutex mutex;
  std::vector<Responder> kept;
  ASSERT_TRUE(server->serve_inline("hold", [&](InlineRequest& request) {
    std::lock_guard lock(mutex);
    kept.push_back(request.defer());
  }));
  const Peer to = client.peer(server->listen_address());
  const std::string body = pattern(kMiB);
  Call first = to.unary("hold", ""), second = to.unary("hold", ""), third = to.unary("hold", "");
  await([&] {
    std::lock_guard lock(mutex);
    return kept.size() == 3;
  });
  const Payload payload = payload_of(*server, body);
  kept[0].reply(body, "header");
  int whole = 0;
  second.cancel();
  await([&] { return kept[1].cancelled(); });
  kept[1].reply(body);
  const Result<Reply> reply = first.get();
  whole += reply && is_same(reply->text(), body) && reply->header_text() == "header";
  EXPECT_EQ(whole, 1);
  static_cast<void>(server->close(0s));
  server.reset();
  kept[2].reply(payload);
  EXPECT_FALSE(third.get());
}

// ---- allocations ----------------------------------------------------------------------------------------------------

TEST(LargeLifecycle, AllocationsWaitInLineAndResumeWhereTheyWait) {
  Config config = client_config(1);
  config.limits.buffer_bytes = 2 * kMiB;
  Pool pool = open(config);
  std::optional<Buffer> held = pool.allocate(kMiB + kMiB / 2).get().value();
  EXPECT_EQ(pool.allocate(kMiB, {.wait = false}).get().error().code(), Code::overloaded);
  EXPECT_EQ(pool.allocate(3 * kMiB).get().error().code(), Code::too_large);
  std::vector<int> order;
  const std::thread::id here = std::this_thread::get_id();
  int done = 0;
  const auto task = [&](int number) -> Task<void> {
    const Result<Buffer> page = co_await pool.allocate(kMiB);
    EXPECT_TRUE(page);
    EXPECT_EQ(std::this_thread::get_id(), here);
    order.push_back(number);
    ++done;
  };
  for (int i = 0; i < 5; ++i) pool.spawn(task(i));
  { Allocation given_up = pool.allocate(kMiB); }
  std::thread([&] { held.reset(); }).join();
  while (done < 5) pool.poll_for(1ms);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(LargeLifecycle, AThreadWaitsForMemoryThatAnotherGivesBack) {
  Config config = client_config(1);
  config.limits.buffer_bytes = 2 * kMiB;
  Pool pool = open(config);
  std::optional<Buffer> held = pool.allocate(kMiB + kMiB / 2).get().value();
  std::thread other([&] {
    std::this_thread::sleep_for(10ms);
    held.reset();
  });
  EXPECT_TRUE(pool.allocate(kMiB).get());
  other.join();
}

TEST(LargeLifecycle, ClosingEndsAllocationsThatWait) {
  Config config = client_config(1);
  config.limits.buffer_bytes = 2 * kMiB;
  std::optional<Pool> pool = open(config);
  Buffer held = pool->allocate(kMiB + kMiB / 2).get().value();
  Allocation waiting = pool->allocate(kMiB), dropped = pool->allocate(kMiB);
  std::thread closer([&] { EXPECT_TRUE(pool->close()); });
  EXPECT_EQ(waiting.get().error().code(), Code::closed);
  closer.join();
  EXPECT_EQ(pool->allocate(1).get().error().code(), Code::closed);
  pool.reset();
  held.span()[0] = std::byte{1};
}

TEST(LargeLifecycle, TasksThatWaitForMemoryMayBeDestroyed) {
  Config config = client_config(1);
  config.limits.buffer_bytes = 2 * kMiB;
  Pool pool = open(config);
  for (int i = 0; i < 100; ++i) {
    std::optional<Buffer> held = pool.allocate(kMiB + kMiB / 2).get().value();
    std::thread other([&] { held.reset(); });
    {
      const auto task = [&]() -> Task<void> { static_cast<void>(co_await pool.allocate(kMiB)); };
      auto started = task();
      started.start();
      if (i % 2 == 0) pool.poll();
    }
    other.join();
    pool.poll();
  }
  EXPECT_TRUE(pool.allocate(kMiB).get());
}

}  // namespace
}  // namespace weir
