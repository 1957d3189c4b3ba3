// Which thread seals and opens a large message: never the dedicated worker of a pool that has an executor.
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "buffer/work.h"
#include "pool/large_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::adopted_payload;
using testing::await;
using testing::client_config;
using testing::is_same;
using testing::kMiB;
using testing::open;
using testing::pattern;
using testing::payload_of;
using testing::server_config;
using testing::text_of;

using Done = buffer::ThreadWork;

// What this thread did since.
class Mine {
 public:
  Done done() const {
    const Done now = buffer::thread_work;
    return {.sealed_bytes = now.sealed_bytes - before_.sealed_bytes,
            .opened_bytes = now.opened_bytes - before_.opened_bytes,
            .bindings = now.bindings - before_.bindings};
  }

 private:
  const Done before_ = buffer::thread_work;
};

// Both pools share one worker, and each has an executor of one thread.
class LargeThread : public ::testing::Test {
 protected:
  LargeThread() {
    Config listening = server_config(1), calling = client_config(1);
    listening.on = calling.on = &workers;
    server.emplace(open(listening));
    client.emplace(open(calling));
    const auto note = [this] {
      handlers = buffer::thread_work;
      handlers_thread = std::this_thread::get_id();
    };
    EXPECT_TRUE(server->serve("take", [=](Request request) {
      note();
      return Reply{std::to_string(request.body().size())};
    }));
    EXPECT_TRUE(server->serve("take in a task", [=](Request request) -> Task<Reply> {
      note();
      co_return Reply{std::to_string(request.body().size())};
    }));
    EXPECT_TRUE(server->serve_inline("take inline", [this](InlineRequest& request) {
      workers_thread = std::this_thread::get_id();
      request.reply(std::to_string(request.body().size()));
    }));
    EXPECT_TRUE(server->serve("give", [this](Request) {
      await([this] { return may_give.load(); });
      return Reply{payload};
    }));
    EXPECT_TRUE(server->serve("give adopted", [this](Request) {
      await([this] { return may_give.load(); });
      return Reply{adopted};
    }));
    EXPECT_TRUE(server->serve("give a copy", [=, this](Request) {
      note();
      return Reply{as_bytes(text)};
    }));
    EXPECT_TRUE(server->serve_inline("look", [this](InlineRequest& request) {
      the_workers = buffer::thread_work;
      workers_thread = std::this_thread::get_id();
      request.reply("");
    }));
    to.emplace(client->peer(server->listen_address()));
    payload = payload_of(*server, text);
    adopted = adopted_payload(*server, text);
  }
  void TearDown() override {
    ASSERT_TRUE(to->unary("look", "").get());
    EXPECT_NE(workers_thread, std::this_thread::get_id());
    EXPECT_EQ(the_workers.opened_bytes, 0u) << "the worker opened records";
    EXPECT_EQ(the_workers.sealed_bytes, 0u) << "the worker sealed records";
    EXPECT_EQ(the_workers.bindings, 0u) << "the worker looked at bindings";
  }

  const std::string text = pattern(2 * kMiB);
  Payload payload, adopted;
  std::atomic<bool> may_give{true};
  Done the_workers, handlers;  // read by whoever has the answer
  std::thread::id workers_thread, handlers_thread;
  Workers workers = Workers::open({.threads = 1}).value();
  std::optional<Pool> server, client;
  std::optional<Peer> to;
};

TEST_F(LargeThread, WhoCallsSeals) {
  const Mine mine;
  EXPECT_EQ(text_of(to->unary("take", text).get()), std::to_string(text.size()));
  EXPECT_EQ(mine.done().sealed_bytes, text.size());
  const Payload sealed = payload_of(*client, text);
  EXPECT_EQ(mine.done().sealed_bytes, 2 * text.size());
  EXPECT_EQ(text_of(to->unary("take", sealed).get()), std::to_string(text.size()));
  EXPECT_EQ(mine.done().sealed_bytes, 2 * text.size());
  EXPECT_EQ(mine.done().opened_bytes, 0u);
}

TEST_F(LargeThread, WhoRunsTheHandlerOpensTheRequestAndSealsTheReply) {
  std::uint64_t opened = 0;
  for (const char* method : {"take", "take in a task"}) {
    EXPECT_EQ(text_of(to->unary(method, text).get()), std::to_string(text.size()));
    opened += text.size();
    EXPECT_EQ(handlers.opened_bytes, opened) << method;
    EXPECT_EQ(handlers.bindings, 0u);
  }
  EXPECT_EQ(text_of(to->unary("take", adopted_payload(*client, text)).get()), std::to_string(text.size()));
  EXPECT_EQ(handlers.opened_bytes, opened);
  EXPECT_EQ(handlers.bindings, 1u) << "once";
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(to->unary("give a copy", "").get());
  EXPECT_EQ(handlers.sealed_bytes, text.size()) << "of the first reply, when the second is made";
  EXPECT_NE(handlers_thread, std::this_thread::get_id());
}

// What a handler on the worker gets was opened before, elsewhere.
TEST_F(LargeThread, TheExecutorOpensForHandlersOnTheWorker) {
  EXPECT_EQ(text_of(to->unary("take inline", text).get()), std::to_string(text.size()));
  EXPECT_EQ(text_of(to->unary("take inline", adopted_payload(*client, text)).get()), std::to_string(text.size()));
  EXPECT_NE(workers_thread, std::this_thread::get_id());
  ASSERT_TRUE(to->unary("take", "").get());  // to hear from the executor's one thread
  EXPECT_EQ(handlers.opened_bytes, text.size());
  EXPECT_EQ(handlers.bindings, 1u);
}

TEST_F(LargeThread, WhoWaitsForAReplyOpensIt) {
  const Mine mine;
  Result<Reply> reply = to->unary("give", "").get();
  ASSERT_TRUE(reply);
  EXPECT_TRUE(is_same(reply->text(), text));
  EXPECT_EQ(mine.done().opened_bytes, text.size());
  ASSERT_TRUE(to->unary("give adopted", "").get());
  EXPECT_EQ(mine.done().bindings, 1u);
  const auto task = [&]() -> Task<bool> {
    const Result<Reply> awaited = co_await to->unary("give", "");
    const Result<Reply> second = co_await to->unary("give adopted", "");
    co_return awaited&& second&& is_same(awaited->text(), text);
  };
  EXPECT_TRUE(client->run(task()));
  EXPECT_EQ(mine.done().opened_bytes, 2 * text.size());
  EXPECT_EQ(mine.done().bindings, 2u);
}

// Neither by the worker, which runs the continuation, nor by who called.
TEST_F(LargeThread, TheExecutorOpensForContinuations) {
  for (const char* method : {"give", "give adopted"}) {
    const Mine mine;
    const std::uint64_t opened = buffer::work.opened_bytes;
    std::atomic<bool> is_done = false;
    std::thread::id thread;
    may_give = false;  // before the continuation is there: whoever attaches one to a call that is over runs it
    to->unary(method, "").then([&](Result<Reply> reply) {
      EXPECT_TRUE(reply && is_same(reply->text(), text));
      thread = std::this_thread::get_id();
      is_done = true;
    });
    may_give = true;
    await([&] { return is_done.load(); });
    EXPECT_EQ(mine.done().opened_bytes + mine.done().bindings, 0u);
    EXPECT_EQ(buffer::work.opened_bytes - opened, method == std::string_view("give") ? text.size() : 0u);
    ASSERT_TRUE(to->unary("look", "").get());
    EXPECT_EQ(thread, workers_thread);
  }
}

}  // namespace
}  // namespace weir
