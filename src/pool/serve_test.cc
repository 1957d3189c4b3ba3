// Handlers: on the executor and on the worker, nested, late, failing, cancelled.
#include <atomic>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::open;
using testing::serve_echo;
using testing::server_config;
using testing::text_of;

TEST(Serve, AMethodHasANameAndNotOneOfTheLibrarys) {
  Pool server = open(server_config(1));
  for (const char* name : {"", "weir.bulk.put", "weir.anything"}) {
    for (const Result<void>& served : {server.serve(name, [](Request) { return Reply{}; }),
                                       server.serve_inline(name, [](InlineRequest& request) { request.reply(""); })}) {
      ASSERT_FALSE(served) << name;
      EXPECT_EQ(served.error().code(), Code::invalid_argument);
      EXPECT_NE(served.error().message().find(name), std::string_view::npos);
    }
  }
  EXPECT_TRUE(server.serve("weirdly", [](Request) { return Reply{}; }));
  std::byte memory[64] = {};
  EXPECT_TRUE(server.place("memory", Placement::memory(memory)));  // whose methods those are
}

TEST(Serve, WhatIsCalledHasANameToo) {
  Pool client = open(client_config(1));
  const Peer to = client.peer("127.0.0.1:9");
  const Payload payload = client.seal([&] {
    Buffer buffer = *client.allocate(1).get();
    static_cast<void>(buffer.span());
    return buffer;
  }());
  std::byte memory[1] = {};
  const auto expect_refused = [](const std::optional<Error>& error) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Code::invalid_argument) << error->to_string();
    EXPECT_NE(error->message().find("name"), std::string_view::npos) << error->to_string();
  };
  Call call = to.unary("", "x");
  EXPECT_EQ(call.record(), nullptr) << "nothing was sent";
  expect_refused(call.get().error());
  expect_refused(to.unary("", payload).get().error());
  expect_refused(to.put("", payload).get().error());
  expect_refused(to.get("", into(memory)).get().error());
  const BroadcastOutcome outcome = client.broadcast({&to, 1}, "", payload).get();
  EXPECT_FALSE(outcome.reached());
  expect_refused(outcome.error());
  expect_refused(outcome[0]->error());
}

TEST(Serve, AFunctionMayReturnATaskAReplyOrAResult) {
  Pool server = open(server_config(1));
  ASSERT_TRUE(server.serve(
      "task", [](Request request) -> Task<Reply> { co_return Reply{"task " + std::string(request.text())}; }));
  ASSERT_TRUE(server.serve("task of result", [](Request request) -> Task<Result<Reply>> {
    if (request.text() == "bad") co_return std::unexpected(Error(Code::refused, "not this one"));
    co_return Reply{"fine"};
  }));
  ASSERT_TRUE(server.serve("reply", [](Request request) { return Reply{request.text(), request.header_text()}; }));
  ASSERT_TRUE(server.serve(
      "result", [](Request) -> Result<Reply> { return std::unexpected(Error(Code::application, "no luck")); }));
  Pool client = open(client_config(1));
  Peer to = client.peer(server.listen_address());
  EXPECT_EQ(text_of(to.unary("task", "a").get()), "task a");
  EXPECT_EQ(text_of(to.unary("task of result", "good").get()), "fine");
  Result<Reply> refused = to.unary("task of result", "bad").get();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::refused);
  EXPECT_EQ(refused.error().message(), "not this one");
  Result<Reply> reply = to.unary("reply", "body", {.header = "header"}).get();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->header_text(), "header");
  EXPECT_EQ(reply->text(), "body");
  EXPECT_EQ(to.unary("result", "").get().error().message(), "no luck");
}

TEST(Serve, RequestsSayWhatTheCallerGave) {
  Pool server = open(server_config(1));
  std::atomic<int> priority{-1}, depth{-1};
  std::atomic<std::int64_t> left{0};
  ASSERT_TRUE(server.serve("look", [&](Request request) {
    priority = request.priority();
    depth = request.depth();
    left = request.time_left().count();
    return Reply{};
  }));
  Pool client = open(client_config(1));
  ASSERT_TRUE(client.peer(server.listen_address()).unary("look", "", {.priority = 6, .deadline = 50s}).get());
  EXPECT_EQ(priority, 6);
  EXPECT_EQ(depth, 0);
  EXPECT_GT(left, 1'000'000'000);
  EXPECT_LE(left, 50'000'000'000);
}

std::string shown(const Caller& caller) {
  return std::string(caller.name) + " at " + std::string(caller.address.substr(0, caller.address.rfind(':')));
}

TEST(Callers, AreKnownToEveryKindOfHandler) {
  for (const int executors : {0, 2}) {
    Config config = server_config(1);
    config.executor_threads = executors;
    Pool server = open(config);
    ASSERT_TRUE(server.serve("task", [](Request request) -> Task<Reply> { co_return Reply{shown(request.caller())}; }));
    ASSERT_TRUE(server.serve_inline("inline", [](InlineRequest& request) { request.reply(shown(request.caller())); }));
    ASSERT_TRUE(server.serve_inline("deferred", [](InlineRequest& request) {
      Responder responder = request.defer();
      EXPECT_EQ(request.caller().address, "");
      std::thread([responder = std::move(responder)]() mutable {
        responder.reply(shown(responder.caller()));
        EXPECT_EQ(responder.caller().name, "");
      }).join();
    }));
    ASSERT_TRUE(server.serve("claims", [](Request request) -> Task<Reply> {
      co_return Reply{request.caller().names.empty() && !request.caller().proves("client") ? "proves nothing" : "?"};
    }));
    Config other = client_config(1);
    other.name = "another";
    for (const Config& each : {client_config(1), client_config(0), other}) {
      Pool client = open(each);
      const Peer to = client.peer(server.listen_address());
      for (const char* method : {"task", "inline", "deferred"}) {
        for (const std::size_t bytes : {0, 100, 100'000}) {
          EXPECT_EQ(text_of(to.unary(method, std::string(bytes, 'x')).get()), each.name + " at 127.0.0.1")
              << method << " " << bytes;
        }
      }
      EXPECT_EQ(text_of(to.unary("claims", "").get()), "proves nothing");
    }
  }
}

TEST(Callers, AreKnownAfterTheyHaveGone) {
  std::mutex mutex;
  std::vector<Responder> held;
  std::vector<std::string> seen;
  std::atomic<bool> goes_on{false};
  std::atomic<int> begun{0};
  Pool server = open(server_config(1));
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) {
    std::lock_guard lock(mutex);
    held.push_back(request.defer());
  }));
  ASSERT_TRUE(server.serve("work", [&](Request request) {
    ++begun;
    await([&] { return goes_on.load(); });
    std::lock_guard lock(mutex);
    seen.push_back(shown(request.caller()));
    return Reply{};
  }));
  const auto has_gone = [&](std::size_t which) {
    std::lock_guard lock(mutex);
    return held.size() > which && held[which].cancelled();
  };
  // Each one's path has the place, and the number, of one that went before.
  for (std::size_t i = 0; i < 4; ++i) {
    Config config = client_config(1);
    config.name = "client " + std::to_string(i);
    Pool client = open(config);
    const Peer to = client.peer(server.listen_address());
    Call work = to.unary("work", "");
    if (i == 0) await([&] { return begun == 1; });
    Call hold = to.unary("hold", "");
    await([&] {
      std::lock_guard lock(mutex);
      return held.size() == i + 1;
    });
    static_cast<void>(client.close(0ms));
    await([&] { return has_gone(i); });
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    EXPECT_EQ(shown(held[i].caller()), "client " + std::to_string(i) + " at 127.0.0.1");
  }
  goes_on = true;
  await([&] {
    std::lock_guard lock(mutex);
    return !seen.empty();
  });
  {
    std::lock_guard lock(mutex);
    EXPECT_EQ(seen[0], "client 0 at 127.0.0.1");
  }
  for (Responder& responder : held) responder.reply("too late");
  // And also if the server goes first.
  Pool client = open(client_config(1));
  Call call = client.peer(server.listen_address()).unary("hold", "");
  await([&] {
    std::lock_guard lock(mutex);
    return held.size() == 5;
  });
  static_cast<void>(server.close(0ms));
  EXPECT_EQ(shown(held.back().caller()), "client at 127.0.0.1");
}

TEST(Serve, AHandlerThatThrowsAnswersWithItsWordsIfTheyAreToBeSent) {
  for (int workers : {0, 1}) {
    Config config = server_config(workers);
    config.send_exception_text = true;
    Pool server = open(config);
    ASSERT_TRUE(server.serve("throw", [](Request) -> Task<Reply> {
      throw std::runtime_error("thrown in a task");
      co_return Reply{};
    }));
    ASSERT_TRUE(server.serve_inline("throw inline", [](InlineRequest&) { throw std::runtime_error("thrown inline"); }));
    std::atomic<bool> stop{false};
    std::thread turner([&] {
      while (!stop) server.poll_for(1ms);
    });
    Pool client = open(client_config(1));
    Peer to = client.peer(server.listen_address());
    Result<Reply> thrown = to.unary("throw", "").get();
    ASSERT_FALSE(thrown);
    EXPECT_EQ(thrown.error().code(), Code::application);
    EXPECT_EQ(thrown.error().message(), "thrown in a task");
    EXPECT_TRUE(thrown.error().may_have_run());
    EXPECT_EQ(to.unary("throw inline", "").get().error().message(), "thrown inline");
    stop = true;
    turner.join();
  }
}

TEST(Serve, AnUnansweredRequestIsAnsweredWithAnError) {
  Pool server = open(server_config(1));
  ASSERT_TRUE(server.serve_inline("silent", [](InlineRequest&) {}));
  ASSERT_TRUE(
      server.serve_inline("late and silent", [](InlineRequest& request) { static_cast<void>(request.defer()); }));
  Pool client = open(client_config(1));
  Peer to = client.peer(server.listen_address());
  for (const char* method : {"silent", "late and silent"}) {
    Result<Reply> result = to.unary(method, "").get();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::application);
    EXPECT_EQ(result.error().message(), "the handler dropped the request without an answer");
  }
}

TEST(Serve, AReplyMayComeAfterTheHandlerReturnedFromAnotherThread) {
  Pool server = open(server_config(1));
  std::mutex mutex;
  std::vector<Responder> waiting;
  ASSERT_TRUE(server.serve_inline("later", [&](InlineRequest& request) {
    std::lock_guard lock(mutex);
    waiting.push_back(request.defer());
  }));
  Pool client = open(client_config(1));
  Peer to = client.peer(server.listen_address());
  std::vector<Call> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(to.unary("later", ""));
  await([&] {
    std::lock_guard lock(mutex);
    return waiting.size() == 20;
  });
  const std::string large(5'000, 'L');
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    if (i % 3 == 0) {
      waiting[i].reply(large);
    } else if (i % 3 == 1) {
      waiting[i].reply(Reply{"body", "header"});
    } else {
      waiting[i].fail(Code::refused, "from another thread");
    }
  }
  int large_ones = 0, small_ones = 0, refused = 0;
  for (Call& call : calls) {
    Result<Reply> result = call.get();
    if (!result) {
      EXPECT_EQ(result.error().message(), "from another thread");
      ++refused;
    } else if (result->text() == large) {
      ++large_ones;
    } else if (result->text() == "body" && result->header_text() == "header") {
      ++small_ones;
    }
  }
  EXPECT_EQ(large_ones, 7);
  EXPECT_EQ(small_ones, 7);
  EXPECT_EQ(refused, 6);
}

TEST(Serve, ACancelledCallReachesTheHandler) {
  Pool server = open(server_config(1));
  std::mutex mutex;
  std::optional<Responder> kept;
  std::atomic<bool> is_running{false};
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) {
    std::lock_guard lock(mutex);
    kept.emplace(request.defer());
    is_running = true;
  }));
  for (int workers : {1, 0}) {
    is_running = false;
    Pool client = open(client_config(workers));
    {
      Call call = client.peer(server.listen_address()).unary("hold", "");
      await([&] {
        if (workers == 0) client.poll();
        return is_running.load();
      });
      std::lock_guard lock(mutex);
      EXPECT_FALSE(kept->cancelled());
    }
    await([&] {
      if (workers == 0) client.poll();
      std::lock_guard lock(mutex);
      return kept->cancelled();
    });
    kept->reply("for nobody");
    kept.reset();
  }
}

TEST(Serve, ADestroyedCoroutineCancelsWhatItWaitedFor) {
  Pool server = open(server_config(1));
  std::mutex mutex;
  std::vector<Responder> kept;
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) {
    std::lock_guard lock(mutex);
    kept.push_back(request.defer());
  }));
  for (int workers : {1, 0}) {
    Pool client = open(client_config(workers));
    const std::size_t before = kept.size();
    {
      auto task = [](Peer to) -> Task<void> {
        (void)co_await to.unary("hold", "");
      }(client.peer(server.listen_address()));
      task.start();
      await([&] {
        client.poll();
        std::lock_guard lock(mutex);
        return kept.size() == before + 1;
      });
    }
    await([&] {
      client.poll();
      std::lock_guard lock(mutex);
      return kept[before].cancelled();
    });
  }
}

class Nested : public ::testing::TestWithParam<int> {};

// A handler that calls the next server before it replies; the depth travels along.
TEST_P(Nested, AHandlerMayAwaitCalls) {
  const int workers = GetParam();
  Pool last = open(server_config(1));
  ASSERT_TRUE(last.serve("depth", [](Request request) { return Reply{std::to_string(request.depth())}; }));
  Pool middle = open(server_config(workers));
  const Peer next = middle.peer(last.listen_address());
  ASSERT_TRUE(middle.serve("ask", [next](Request request) -> Task<Result<Reply>> {
    Result<Reply> one = co_await next.unary("depth", "");
    Result<Reply> two = co_await next.unary("depth", "");  // after a suspension too
    if (!one || !two) co_return std::unexpected(Error(Code::application, "nested call failed"));
    co_return Reply{std::string(request.text()) + std::string(one->text()) + std::string(two->text())};
  }));
  std::atomic<bool> stop{false};
  std::thread turner([&] {
    while (!stop) middle.poll_for(1ms);
  });
  Pool client = open(client_config(1));
  Peer to = client.peer(middle.listen_address());
  std::vector<Call> calls;
  for (int i = 0; i < 100; ++i) calls.push_back(to.unary("ask", std::to_string(i) + ":"));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(text_of(calls[static_cast<std::size_t>(i)].get()), std::to_string(i) + ":11");
  stop = true;
  turner.join();
}

TEST_P(Nested, CallsNestedTooDeepAreRefused) {
  const int workers = GetParam();
  Pool server = open(server_config(workers));
  Pool mirror = open(server_config(1));
  const auto ask_each_other = [](Pool& from, Pool& to) {
    return from.serve("again", [other = from.peer(to.listen_address())](Request request) -> Task<Result<Reply>> {
      co_return co_await other.unary("again", request.text());
    });
  };
  ASSERT_TRUE(ask_each_other(server, mirror));
  ASSERT_TRUE(ask_each_other(mirror, server));
  std::atomic<bool> stop{false};
  std::thread turner([&] {
    while (!stop) server.poll_for(1ms);
  });
  Pool client = open(client_config(1));
  Result<Reply> result = client.peer(server.listen_address()).unary("again", "x").get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::overloaded) << result.error().to_string();
  stop = true;
  turner.join();
}

TEST_P(Nested, AnInlineHandlerMayCallAndAnswerInTheContinuation) {
  const int workers = GetParam();
  Pool last = open(server_config(1));
  serve_echo(last);
  Pool middle = open(server_config(workers));
  const Peer next = middle.peer(last.listen_address());
  ASSERT_TRUE(middle.serve_inline("forward", [next](InlineRequest& request) {
    next.unary("echo", request.text()).then([responder = request.defer()](Result<Reply> reply) mutable {
      reply ? responder.reply(*reply) : responder.fail(reply.error().code(), reply.error().message());
    });
  }));
  std::atomic<bool> stop{false};
  std::thread turner([&] {
    while (!stop) middle.poll_for(1ms);
  });
  Pool client = open(client_config(1));
  Peer to = client.peer(middle.listen_address());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(text_of(to.unary("forward", std::to_string(i)).get()), std::to_string(i));
  stop = true;
  turner.join();
}

INSTANTIATE_TEST_SUITE_P(Workers, Nested, ::testing::Values(1, 0, 2));

TEST(Serve, AMethodIsServedOnce) {
  Pool server = open(server_config(2));
  serve_echo(server);
  Result<void> again = server.serve_inline("echo", [](InlineRequest&) {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::invalid_argument);
}

TEST(Serve, AnInlineHandlerThatThrowsAfterItsAnswerHasAnswered) {
  Pool server = open(server_config(1));
  ASSERT_TRUE(server.serve_inline("late", [](InlineRequest& request) {
    request.reply("answered");
    throw std::runtime_error("too late");
  }));
  Pool client = open(client_config(1));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("late", "").get()), "answered");
  }
}

TEST(Serve, HandlersThatBlockAreNotStackedOnOneAnother) {
  Pool far = open(server_config(1));
  serve_echo(far);
  Pool caller = open(client_config(1));
  const Peer to = caller.peer(far.listen_address());
  Pool server = open(server_config(1));
  std::atomic<int> blocked{0}, most{0};
  ASSERT_TRUE(server.serve("both", [&](Request) -> Task<Reply> {
    EXPECT_TRUE(co_await to.unary("echo", "awaited"));
    most = std::max(most.load(), ++blocked);
    EXPECT_TRUE(to.unary("echo", "blocking").get());
    --blocked;
    co_return Reply{"done"};
  }));
  Pool client = open(client_config(1));
  std::vector<Call> calls;
  for (int i = 0; i < 200; ++i) calls.push_back(client.peer(server.listen_address()).unary("both", ""));
  for (Call& call : calls) EXPECT_EQ(text_of(call.get()), "done");
  EXPECT_EQ(most, 1) << "there is one executor thread";
}

TEST(Serve, AHandlerMayOutliveItsPool) {
  Pool far = open(server_config(1));
  std::atomic<bool> is_asked{false};
  Responder kept;
  ASSERT_TRUE(far.serve_inline("slow", [&](InlineRequest& request) {
    kept = request.defer();
    is_asked = true;
  }));
  Pool other = open(client_config(0));
  auto server = std::make_unique<Pool>(open(server_config(0)));
  bool is_resumed = false;
  const std::string captured(100, 'c');
  ASSERT_TRUE(
      server->serve("wait", [&is_resumed, captured, to = other.peer(far.listen_address())](Request) -> Task<Reply> {
        static_cast<void>(co_await to.unary("slow", "", {.deadline = 1h}));
        is_resumed = captured == std::string(100, 'c');
        co_return Reply{captured};
      }));
  Pool client = open(client_config(1));
  Call call = client.peer(server->listen_address()).unary("wait", "", {.deadline = 1h});
  while (!is_asked) {
    server->poll();
    other.poll();
  }
  static_cast<void>(server->close(1ms));
  server.reset();
  kept.reply("late");
  while (!is_resumed) other.poll_for(1ms);
  EXPECT_FALSE(call.get());
}

TEST(Serve, AnExecutorThreadThatTurnsAnotherPoolsLoopStillTakesRequests) {
  Pool far = open(server_config(1));
  serve_echo(far);
  Pool threadless = open(client_config(0));
  const Peer to = threadless.peer(far.listen_address());
  Pool server = open(server_config(1));
  ASSERT_TRUE(server.serve("get", [&](Request) { return Reply{text_of(to.unary("echo", "x").get())}; }));
  Pool client = open(client_config(1));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("get", "", {.deadline = 1h}).get()), "x");
  }
}

}  // namespace
}  // namespace weir
