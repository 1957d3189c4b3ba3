// A child that is forked in the middle of something of the application's that a pool runs: a handler, a continuation, a
// coroutine, a subscriber, a rule. It may end there, or return, and the library's thread that it is ends with status 0.
#include <memory>
#include <optional>
#include <vector>

#include "pool/fork_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::fork_program;
using testing::is_child;
using testing::judge_record;
using testing::open;
using testing::run_program;
using testing::says_forked;
using testing::serve_echo;
using testing::server_config;
using testing::TestAuthority;
using testing::text_of;
using testing::wait_for;

enum class End { exits_inside, returns, uses_own_pool };
constexpr End kEnds[] = {End::exits_inside, End::returns, End::uses_own_pool};

void use_own_pool() {
  for (const int workers : {1, 0}) {
    Pool server = open(server_config(1));
    serve_echo(server);
    Pool client = open(client_config(workers));
    WEIR_EXPECT(text_of(client.peer(server.listen_address()).unary("echo", "own", {.deadline = 30s}).get()) == "own");
  }
}

// Forks, once for each way to end. In the parent, the children; in a child, nothing.
class Forks {
 public:
  // True: this is a child that is to return from where it is.
  bool make() {
    for (const End end : kEnds) {
      const pid_t child = fork_program();
      if (child != 0) {
        children_.push_back(child);
        continue;
      }
      if (end == End::exits_inside) std::exit(0);
      if (end == End::uses_own_pool) use_own_pool();
      return true;
    }
    has_forked_ = true;
    return false;
  }
  bool has_forked() const { return has_forked_; }
  void wait() {
    testing::await([&] { return has_forked_.load(); });
    for (const pid_t child : children_) WEIR_EXPECT(wait_for(child) == 0);
  }

 private:
  std::vector<pid_t> children_;
  std::atomic<bool> has_forked_{false};
};

void call(Pool& client, const Pool& server, int count) {
  const Peer to = client.peer(server.listen_address());
  for (int i = 0; i < count; ++i) WEIR_EXPECT(text_of(to.unary("echo", "x", {.deadline = 60s}).get()) == "x");
}

void expect_program(const std::function<int()>& program) {
  EXPECT_EQ(run_program(program), 0);
  EXPECT_EQ(judge_record(), "");
}

TEST(ForkInAHandler, OnAWorker) {
  expect_program([] {
    Forks forks;
    std::atomic<int> runs{0};
    Pool server = open(server_config(1));
    serve_echo(server);
    WEIR_EXPECT(server.serve_inline("fork", [&](InlineRequest& request) {
      if (!forks.has_forked()) forks.make();
      request.reply(is_child() ? "child" : "parent");
    }));
    // A child of the handler before it must not run this one.
    WEIR_EXPECT(server.serve_inline("next", [&](InlineRequest& request) {
      if (is_child()) std::_Exit(98);
      ++runs;
      request.reply("");
    }));
    Pool client = open(client_config(1));
    const Peer to = client.peer(server.listen_address());
    call(client, server, 3);
    std::vector<Call> calls;
    calls.push_back(to.unary("fork", "", {.deadline = 60s}));
    for (int i = 0; i < 20; ++i) calls.push_back(to.unary("next", "", {.deadline = 60s}));
    WEIR_EXPECT(text_of(calls[0].get()) == "parent");
    for (std::size_t i = 1; i < calls.size(); ++i) WEIR_EXPECT(calls[i].get());
    forks.wait();
    WEIR_EXPECT(runs == 20);
    call(client, server, 10);
    return 0;
  });
}

TEST(ForkInAHandler, OnAnExecutor) {
  expect_program([] {
    Forks forks;
    Config config = server_config(2);
    config.executor_threads = 1;
    Pool server = open(config);
    serve_echo(server);
    WEIR_EXPECT(server.serve("fork", [&](Request request) {
      if (!forks.has_forked()) forks.make();
      WEIR_EXPECT(request.cancelled() == is_child());
      return Reply(is_child() ? "child" : "parent");
    }));
    WEIR_EXPECT(server.serve("next", [&](Request) {
      if (is_child()) std::_Exit(98);
      return Reply("");
    }));
    Pool client = open(client_config(1));
    const Peer to = client.peer(server.listen_address());
    call(client, server, 3);
    std::vector<Call> calls;
    calls.push_back(to.unary("fork", "", {.deadline = 60s}));
    for (int i = 0; i < 20; ++i) calls.push_back(to.unary("next", "", {.deadline = 60s}));
    WEIR_EXPECT(text_of(calls[0].get()) == "parent");
    for (std::size_t i = 1; i < calls.size(); ++i) WEIR_EXPECT(calls[i].get());
    forks.wait();
    call(client, server, 10);
    return 0;
  });
}

TEST(ForkInAHandler, InsidePoll) {
  expect_program([] {
    Forks forks;
    Pool client = open(client_config(1));
    Pool server = open(server_config(0));
    serve_echo(server);
    WEIR_EXPECT(server.serve_inline("fork", [&](InlineRequest& request) {
      forks.make();
      request.reply(is_child() ? "child" : "parent");
    }));
    Call calling = client.peer(server.listen_address()).unary("fork", "", {.deadline = 60s});
    std::optional<std::string> answer;
    calling.then([&](Result<Reply> reply) { answer = text_of(reply); });
    while (!answer) {
      server.poll_for(1ms);
      if (is_child()) return 0;  // it has to look: the next poll() would stop it
    }
    WEIR_EXPECT(answer == "parent");
    std::atomic<bool> is_over{false};
    std::thread caller([&] {
      call(client, server, 10);
      is_over = true;
    });
    while (!is_over) server.poll_for(1ms);
    caller.join();
    forks.wait();
    return 0;
  });
}

TEST(ForkInAContinuation, OnAWorkerAndInsidePoll) {
  for (const int workers : {1, 0}) {
    expect_program([workers] {
      Forks forks;
      Pool server = open(server_config(1));
      serve_echo(server);
      Pool client = open(client_config(workers));
      const Peer to = client.peer(server.listen_address());
      std::atomic<int> completed{0};
      to.unary("echo", "x", {.deadline = 60s}).then([&](Result<Reply> reply) {
        WEIR_EXPECT(text_of(reply) == "x");
        if (forks.make()) WEIR_EXPECT(says_forked(to.unary("echo", "x").get()));
        ++completed;
      });
      for (int i = 0; i < 10; ++i) {
        to.unary("echo", "x", {.deadline = 60s}).then([&](Result<Reply>) {
          if (is_child()) std::_Exit(98);
          ++completed;
        });
      }
      while (completed < 11) {
        workers == 0 ? static_cast<void>(client.poll_for(1ms)) : std::this_thread::sleep_for(1ms);
        if (is_child()) return 0;
      }
      forks.wait();
      call(client, server, 10);
      return 0;
    });
  }
}

TEST(ForkInACoroutine, GoesOnInBothProcesses) {
  for (const int workers : {1, 0}) {
    expect_program([workers] {
      Forks forks;
      Pool server = open(server_config(1));
      serve_echo(server);
      Pool client = open(client_config(workers));
      const Peer to = client.peer(server.listen_address());
      const bool is_good = client.run([](Peer peer, Forks& all) -> Task<bool> {
        static_cast<void>(co_await peer.unary("echo", "x", {.deadline = 60s}));
        Call outstanding = peer.unary("echo", "y", {.deadline = 60s});
        if (!all.make()) co_return text_of(co_await outstanding) == "y";
        if (!says_forked(co_await outstanding) || !says_forked(co_await peer.unary("echo", "z"))) co_return false;
        // Its own pool's call suspends it, and somebody has to resume it.
        Pool own_server = open(server_config(1));
        serve_echo(own_server);
        Pool own = open(client_config(1));
        const Peer own_peer = own.peer(own_server.listen_address());
        co_return text_of(co_await own_peer.unary("echo", "own", {.deadline = 60s})) == "own";
      }(to, forks));
      WEIR_EXPECT(is_good);
      if (is_child()) return 0;
      forks.wait();
      call(client, server, 10);
      return 0;
    });
  }
}

// Tells a function of the first thing that happens.
class Once final : public Subscriber {
 public:
  explicit Once(std::function<void()> tell) : tell_(std::move(tell)) {}
  bool wants_transfers() const override { return true; }
  void on(const event::TransferMoved&) override {
    if (tell_) std::exchange(tell_, nullptr)();
  }

 private:
  std::function<void()> tell_;
};

TEST(ForkInASubscriber, ReturnsIntoNothing) {
  expect_program([] {
    Forks forks;
    Config config = server_config(1);
    config.subscriber = std::make_shared<Once>([&] { forks.make(); });
    Pool server = open(config);
    serve_echo(server);
    Pool client = open(client_config(1));
    call(client, server, 10);
    forks.wait();
    call(client, server, 10);
    return 0;
  });
}

TEST(ForkInARule, OnTheHandshakeThread) {
  expect_program([] {
    Forks forks;
    const TestAuthority authority;
    const Identity identity = authority.identity({"127.0.0.1"}).authorise([&](std::string_view) {
      if (!forks.has_forked()) forks.make();
      return true;
    });
    Pool server = open(testing::identity_server(identity));
    serve_echo(server);
    Pool client = open(testing::identity_client(authority.identity({"client.test"})));
    call(client, server, 10);
    forks.wait();
    call(client, server, 10);
    return 0;
  });
}

}  // namespace
}  // namespace weir
