// Everything that can go wrong is an error value with a code and a sentence; bad configuration is refused at open.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "pool/pool_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::client_config;
using testing::kSecret;
using testing::open;
using testing::serve_echo;
using testing::server_config;
using testing::text_of;

Code code_of(const Result<Reply>& result) { return result ? Code{} : result.error().code(); }

TEST(Failure, AMethodThatNobodyServes) {
  Pool server = open(server_config(1));
  Pool client = open(client_config(1));
  Result<Reply> result = client.peer(server.listen_address()).unary("nothing", "x").get();
  EXPECT_EQ(code_of(result), Code::unknown_method);
  EXPECT_FALSE(result.error().may_have_run());
}

TEST(Failure, SaysWhichMethodOfWhichPeer) {
  Pool server = open(server_config(1));
  std::vector<Responder> kept;
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) { kept.push_back(request.defer()); }));
  ASSERT_TRUE(server.serve_inline("refuse", [](InlineRequest& r) { r.fail(Code::application, "its own words"); }));
  ASSERT_TRUE(
      server.serve_inline("lack", [](InlineRequest& r) { r.fail(Code::unknown_method, "no such method of mine"); }));
  const std::string address = server.listen_address();
  for (const int workers : {0, 1}) {
    Pool client = open(client_config(workers));
    const Peer to = client.peer(address);
    EXPECT_EQ(to.unary("nothing", "x").get().error().message(),
              "\"nothing\" at " + address + ": nobody serves this method there");
    const std::string late = "\"hold\" at " + address + ": the deadline passed";
    EXPECT_EQ(to.unary("hold", "", {.deadline = 50ms}).get().error().message(), late);
    const auto awaits = [&to]() -> Task<std::string> {
      Call call = to.unary("hold", "", {.deadline = 50ms});
      Result<Bytes> header = co_await call.header();
      Result<Reply> reply = co_await call;
      co_return std::string(header.error().message()) + "; " + std::string(reply.error().message());
    };
    EXPECT_EQ(client.run(awaits()), late + "; " + late);
    EXPECT_EQ(to.unary("refuse", "").get().error().message(), "its own words");
    EXPECT_EQ(to.unary("lack", "").get().error().message(), "no such method of mine");
  }
  static_cast<void>(server.close(0ms));
}

// Whether the call is done when its continuation comes is chance: that must not decide what its error says.
TEST(Failure, SaysTheSameToAContinuationHoweverLateThatComes) {
  Pool server = open(server_config(1));
  std::vector<Responder> kept;
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) { kept.push_back(request.defer()); }));
  ASSERT_TRUE(server.serve_inline("lack", [](InlineRequest& r) { r.fail(Code::unknown_method, "none of mine"); }));
  const std::string address = server.listen_address();
  for (const int workers : {0, 1}) {
    Pool client = open(client_config(workers));
    const Peer to = client.peer(address);
    const auto turn_until = [&](const auto& done) {
      await([&] {
        if (workers == 0) client.poll();
        return done();
      });
    };
    for (const bool late : {false, true}) {
      const auto message_of = [&](Method method) {
        Call call = to.unary(method, "", {.deadline = 50ms});
        if (late) turn_until([&] { return detail::call_ready(call.record()); });
        std::string message;
        std::atomic<bool> is_done{false};
        std::move(call).then([&](const Result<Reply>& result) {
          message = result ? "it succeeded" : std::string(result.error().message());
          is_done = true;
        });
        turn_until([&] { return is_done.load(); });
        return message;
      };
      EXPECT_EQ(message_of("nothing"), "\"nothing\" at " + address + ": nobody serves this method there") << late;
      EXPECT_EQ(message_of("hold"), "\"hold\" at " + address + ": the deadline passed") << late;
      EXPECT_EQ(message_of("lack"), "none of mine") << late;
    }
    // One that was made where the loop is turned, and given to another thread.
    if (workers == 0) {
      Call call = to.unary("hold", "", {.deadline = 200ms});
      std::string message;
      std::atomic<bool> is_done{false};
      std::thread([&] {
        std::move(call).then([&](const Result<Reply>& result) {
          message = result.error().message();
          is_done = true;
        });
      }).join();
      turn_until([&] { return is_done.load(); });
      EXPECT_EQ(message, "\"hold\" at " + address + ": the deadline passed");
    }
  }
  static_cast<void>(server.close(0ms));
}

TEST(Failure, ARequestOverTheLimit) {
  Pool server = open(server_config(1));
  serve_echo(server);
  Config config = client_config(1);
  config.limits.message_bytes = config.limits.inline_bytes;  // no large messages
  Pool client = open(config);
  Peer to = client.peer(server.listen_address());
  const Result<Reply> result = to.unary("echo", std::string(16'385, 'x')).get();
  EXPECT_EQ(code_of(result), Code::too_large);
  EXPECT_EQ(result.error().message(), "the request has 16385 bytes, and Limits::message_bytes is 16384");
  EXPECT_TRUE(to.unary("echo", std::string(16'384, 'x')).get());
}

TEST(Failure, AReplyOverTheLimit) {
  Config config = server_config(1);
  config.limits.message_bytes = config.limits.inline_bytes;
  Pool server = open(config);
  const std::string large(20'000, 'x');
  ASSERT_TRUE(server.serve_inline("inline", [&](InlineRequest& request) { request.reply(large); }));
  ASSERT_TRUE(server.serve("task", [&](Request) { return Reply{large}; }));
  Pool client = open(client_config(1));
  for (const char* method : {"inline", "task"}) {
    Result<Reply> result = client.peer(server.listen_address()).unary(method, "").get();
    EXPECT_EQ(code_of(result), Code::too_large) << method;
    EXPECT_EQ(result.error().message(), "the reply has 20000 bytes, and Limits::message_bytes is 16384") << method;
  }
}

TEST(Failure, AnotherSecret) {
  Pool server = open(server_config(1));
  serve_echo(server);
  Config config = client_config(1);
  config.secret = "quite another secret";
  config.timeouts.connect = 200ms;
  Pool client = open(config);
  Result<Reply> result = client.peer(server.listen_address()).unary("echo", "x").get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::unauthenticated) << result.error().to_string();
  EXPECT_NE(result.error().message().find("secret"), std::string_view::npos) << result.error().to_string();
  EXPECT_TRUE(result.error().message().starts_with("\"echo\" at " + server.listen_address() + ": "));
  EXPECT_FALSE(result.error().may_have_run());
  EXPECT_EQ(server.counters()[0].requests_received, 0u);
}

TEST(Failure, APeerThatIsNotThere) {
  std::string address;
  {
    Pool gone = open(server_config(1));
    address = gone.listen_address();
  }
  Config config = client_config(1);
  config.timeouts.connect = 500ms;
  Pool client = open(config);
  Result<Reply> result = client.peer(address).unary("echo", "x").get();
  EXPECT_EQ(code_of(result), Code::peer_failed);
  EXPECT_FALSE(result.error().may_have_run());
  EXPECT_TRUE(result.error().message().starts_with("\"echo\" at " + address + ": ")) << result.error().to_string();
  result = client.peer(address).ready().get();
  EXPECT_EQ(code_of(result), Code::peer_failed);
  EXPECT_TRUE(result.error().message().starts_with(address + ": ")) << result.error().to_string();
}

TEST(Failure, AnAddressThatIsNone) {
  Pool client = open(client_config(1));
  Result<Reply> result = client.peer("no port here").unary("echo", "x").get();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::invalid_argument) << result.error().to_string();
}

TEST(Failure, TheDeadlinePasses) {
  Pool server = open(server_config(1));
  std::vector<Responder> kept;
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) { kept.push_back(request.defer()); }));
  Pool client = open(client_config(1));
  Result<Reply> result = client.peer(server.listen_address()).unary("hold", "", {.deadline = 50ms}).get();
  EXPECT_EQ(code_of(result), Code::timeout);
  static_cast<void>(server.close(0ms));
}

TEST(Failure, TheDefaultDeadlinePassesWhereNoneWasGiven) {
  Pool server = open(server_config(1));
  std::vector<Responder> kept;
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) { kept.push_back(request.defer()); }));
  Config config = client_config(1);
  config.timeouts.default_deadline = 50ms;
  Pool client = open(config);
  const Peer to = client.peer(server.listen_address());
  ASSERT_TRUE(to.ready().get());
  std::vector<const char*> ended;
  std::atomic<int> count{0};
  const auto end_of = [&](const char* which) {
    return [&, which](const Result<Reply>& result) {
      EXPECT_EQ(code_of(result), Code::timeout);
      EXPECT_TRUE(result.error().may_have_run());
      ended.push_back(which);
      ++count;
    };
  };
  to.unary("hold", "", {.deadline = 1s}).then(end_of("its own"));
  to.unary("hold", "").then(end_of("the default"));
  await([&] { return count == 2; });
  EXPECT_EQ(ended, (std::vector{"the default", "its own"}));
  static_cast<void>(server.close(0ms));
}

TEST(Failure, OptionsThatMakeNoSense) {
  Pool client = open(client_config(1));
  Peer to = client.peer("127.0.0.1:9");
  EXPECT_EQ(code_of(to.unary("echo", "", {.priority = 8}).get()), Code::invalid_argument);
  EXPECT_EQ(code_of(to.unary("echo", "", {.priority = -1}).get()), Code::invalid_argument);
  EXPECT_EQ(code_of(to.unary("echo", "", {.deadline = -1ns}).get()), Code::invalid_argument);
}

TEST(Failure, AHandleThatWasUsedUp) {
  Pool client = open(client_config(1));
  Call call = client.peer("127.0.0.1:9").unary("echo", "");
  call.cancel();
  EXPECT_EQ(code_of(call.get()), Code::invalid_argument);
}

// The callers would notice a silence after an hour only: the end of the test is that they were told.
TEST(Failure, APeerThatClosesTellsItsCallersAtOnce) {
  Pool server = open(server_config(1));
  std::atomic<int> held{0};
  std::vector<Responder> kept;
  ASSERT_TRUE(server.serve_inline("hold", [&](InlineRequest& request) {
    kept.push_back(request.defer());
    ++held;
  }));
  struct Watch final : Subscriber {
    void on(const event::PeerHealthChanged& e) override {
      if (e.health == event::PeerHealth::closed) ++closed;
      if (e.health == event::PeerHealth::failed) ++failed;
    }
    std::atomic<int> closed{0}, failed{0};
  };
  constexpr int kClients = 3;
  std::vector<std::shared_ptr<Watch>> watches;
  std::vector<Pool> clients;
  std::vector<Call> calls;
  for (int k = 0; k < kClients; ++k) {
    Config config = client_config(1);
    config.timeouts.silence = 1h;
    config.subscriber = watches.emplace_back(std::make_shared<Watch>());
    clients.push_back(open(config));
    for (int i = 0; i < 10; ++i) {
      calls.push_back(clients.back().peer(server.listen_address()).unary("hold", "", {.deadline = 1h}));
    }
  }
  await([&] { return held == kClients * 10; });
  Result<void> closed = server.close(10ms);
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code(), Code::timeout);
  for (Call& call : calls) {
    Result<Reply> result = call.get();
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), Code::peer_failed) << result.error().to_string();
    EXPECT_NE(result.error().message().find("the peer closed"), std::string::npos) << result.error().to_string();
    EXPECT_TRUE(result.error().may_have_run()) << result.error().to_string();
  }
  for (const auto& watch : watches) {
    EXPECT_EQ(watch->closed, 1);
    EXPECT_EQ(watch->failed, 0);
  }
  kept.clear();  // answers to nobody, after the pool has gone
}

TEST(Config, IsValidatedWithSentences) {
  struct Case {
    const char* says;
    std::function<void(Config&)> spoil;
  };
  const Case cases[] = {
      {"secret", [](Config& c) { c.secret = "short"; }},
      {"name", [](Config& c) { c.name = std::string(65, 'n'); }},
      {"workers", [](Config& c) { c.workers = -1; }},
      {"workers", [](Config& c) { c.workers = 5'000; }},
      {"places", [](Config& c) { c.places.resize(3); }},
      {"core", [](Config& c) { c.places = {{.core = 100'000}}; }},
      {"NUMA node", [](Config& c) { c.places = {{.numa_node = 4'000}}; }},
      {"executor_threads", [](Config& c) { c.executor_threads = -1; }},
      {"datagram_bytes", [](Config& c) { c.datagram_bytes = 100; }},
      {"datagram_bytes", [](Config& c) { c.datagram_bytes = 70'000; }},
      {"socket_buffer_bytes", [](Config& c) { c.socket_buffer_bytes = 0; }},
      {"limits.inline_bytes", [](Config& c) { c.limits.inline_bytes = 60'001; }},
      {"limits.calls_per_peer", [](Config& c) { c.limits.calls_per_peer = 0; }},
      {"limits.queued_calls", [](Config& c) { c.limits.queued_calls = 0; }},
      {"limits.peers", [](Config& c) { c.limits.peers = 0; }},
      {"limits.request_bytes", [](Config& c) { c.limits.request_bytes = 1; }},
      {"limits.request_bytes_per_peer", [](Config& c) { c.limits.request_bytes_per_peer = 1; }},
      {"limits.request_bytes_per_peer",
       [](Config& c) { c.limits.request_bytes_per_peer = c.limits.request_bytes + 1; }},
      {"limits.nested_request_bytes", [](Config& c) { c.limits.nested_request_bytes = 1; }},
      {"limits.answer_bytes", [](Config& c) { c.limits.answer_bytes = 16 * 1024; }},
      {"limits.reply_bytes", [](Config& c) { c.limits.reply_bytes = 1; }},
      {"limits.message_bytes", [](Config& c) { c.limits.message_bytes = 1'000; }},
      {"limits.large_request_bytes", [](Config& c) { c.limits.large_request_bytes = c.limits.message_bytes - 1; }},
      {"limits.nested_large_request_bytes",
       [](Config& c) { c.limits.nested_large_request_bytes = c.limits.message_bytes - 1; }},
      {"limits.large_reply_bytes", [](Config& c) { c.limits.large_reply_bytes = c.limits.message_bytes - 1; }},
      {"limits.large_bytes_per_peer", [](Config& c) { c.limits.large_bytes_per_peer = c.limits.message_bytes - 1; }},
      {"limits.buffer_bytes", [](Config& c) { c.limits.buffer_bytes = ~std::size_t{0}; }},
      {"limits.receive_buffers", [](Config& c) { c.limits.receive_buffers = 1; }},
      {"limits.submission_ring[5]", [](Config& c) { c.limits.submission_ring[5] = 0; }},
      {"limits.executor_queue", [](Config& c) { c.limits.executor_queue = 0; }},
      {"timeouts.default_deadline", [](Config& c) { c.timeouts.default_deadline = 0ns; }},
      {"timeouts.silence", [](Config& c) { c.timeouts.silence = -1ns; }},
      {"timeouts.silence", [](Config& c) { c.timeouts.silence = std::chrono::nanoseconds::max(); }},
      {"watchdog", [](Config& c) { c.watchdog = std::chrono::hours(366 * 24); }},
      {"timeouts.connect", [](Config& c) { c.timeouts.connect = 0ns; }},
      {"timeouts.idle_peer", [](Config& c) { c.timeouts.idle_peer = 0ns; }},
      {"watchdog", [](Config& c) { c.watchdog = -1ns; }},
  };
  for (const Case& each : cases) {
    Config config = server_config(1);
    each.spoil(config);
    Result<Pool> pool = Pool::open(config);
    ASSERT_FALSE(pool) << each.says;
    EXPECT_EQ(pool.error().code(), Code::invalid_argument);
    EXPECT_NE(pool.error().message().find(each.says), std::string_view::npos) << pool.error().message();
  }
  Config config = server_config(1);
  config.listen = "nonsense";
  EXPECT_FALSE(Pool::open(config));
}

TEST(Config, LimitsCanBeRead) {
  Pool pool = open(server_config(2));
  const std::string text = pool.limits();
  for (const char* word : {"configured",
                           "\nin force",
                           "\nmemory",
                           "workers: 2\n",
                           "inline_bytes: 16384 bytes (16 KiB)\n",
                           "calls_per_peer",
                           "queued_calls",
                           "peers",
                           "request_bytes",
                           "reply_bytes",
                           "message_bytes: 67108864",
                           "large_request_bytes",
                           "nested_large_request_bytes",
                           "large_reply_bytes",
                           "large_bytes_per_peer",
                           "buffer_bytes: 1073741824",
                           "receive_buffers",
                           "submission_ring[7]",
                           "executor_queue",
                           "calls_per_peer: 4096 calls\n",
                           "most bytes"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
  }
}

// Workers at one port copy datagrams for each other: that is part of the memory that others can make them hold.
TEST(Config, LimitsCountTheDatagramsThatWorkersHandEachOther) {
  const auto held_by_one = [](int workers) {
    const std::string text = open(server_config(workers)).limits();
    const std::string line = "most bytes of messages that all peers together can make one worker hold: ";
    const std::size_t at = text.find(line);
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + line.size()));
  };
  // Of two workers each has two sockets: one to listen, one to call.
  EXPECT_EQ(held_by_one(2), 2 * held_by_one(1) + (8u << 20));
}

TEST(Config, LimitsBeyondTheMachinesMemorySayWhatToLower) {
  const auto note_of = [](const Limits& limits) {
    Config config = server_config(1);
    config.limits = limits;
    const std::string text = open(config).limits();
    const std::size_t at = text.find("  note: ");
    return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
  };
  Limits limits;
  limits.peers = 1u << 20;
  std::string note = note_of(limits);
  EXPECT_NE(note.find("more than the"), std::string::npos) << note;
  EXPECT_NE(note.find("lower (of Config::limits) peers or calls_per_peer ("), std::string::npos) << note;
  limits.peers = 16;
  limits.calls_per_peer = 64;
  limits.queued_calls = 1u << 28;
  note = note_of(limits);
  EXPECT_NE(note.find("lower (of Config::limits) queued_calls ("), std::string::npos) << note;
  limits.queued_calls = 64;
  limits.answer_bytes = limits.reply_bytes = std::size_t{16} << 20;
  EXPECT_EQ(note_of(limits), "") << "it fits";
}

TEST(Config, AnAddressInUseIsASystemError) {
  Pool first = open(server_config(1));
  Config config = server_config(1);
  config.listen = first.listen_address();
  Result<Pool> second = Pool::open(config);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::system);
}

static_assert(std::is_trivially_destructible_v<CallOptions>);

}  // namespace
}  // namespace weir
