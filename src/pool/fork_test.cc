// What a forked child can do with the pools of its parent: nothing, and quickly; and what it can do with its own.
#include <vector>

#include "pool/fork_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::client_config;
using testing::fork_program;
using testing::has_sent_something;
using testing::judge_record;
using testing::open;
using testing::run_program;
using testing::says_forked;
using testing::serve_echo;
using testing::server_config;
using testing::TestAuthority;
using testing::text_of;
using testing::wait_for;

enum class Mode { secret, identity };
enum class End { returns, calls_exit };

struct Variant {
  int workers = 1;
  Mode mode = Mode::secret;
  End end = End::returns;
};

std::string name_of(const ::testing::TestParamInfo<Variant>& info) {
  return std::string(info.param.mode == Mode::secret ? "Secret" : "Identity") + std::to_string(info.param.workers) +
         (info.param.end == End::returns ? "Returns" : "Exits");
}

// A server with a worker thread and a client as the setup says, both in this process.
struct Pair {
  explicit Pair(const Variant& setup)
      : server(open(setup.mode == Mode::secret ? server_config(1)
                                               : testing::identity_server(authority.identity({"127.0.0.1"}), 1))),
        client(open(setup.mode == Mode::secret
                        ? client_config(setup.workers)
                        : testing::identity_client(authority.identity({"client.test"}), setup.workers))) {
    serve_echo(server);
    // Answers when it is told to.
    WEIR_EXPECT(server.serve_inline("later", [this](InlineRequest& request) { kept.push_back(request.defer()); }));
    to.emplace(client.peer(server.listen_address()));
  }
  void call(int count) {
    for (int i = 0; i < count; ++i) WEIR_EXPECT(text_of(to->unary("echo", "x", {.deadline = 30s}).get()) == "x");
  }

  TestAuthority authority;
  std::vector<Responder> kept;  // the server worker's
  Pool server, client;
  std::optional<Peer> to;
};

class ForkedChild : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Workers, ForkedChild,
                         ::testing::Values(Variant{.workers = 0}, Variant{.workers = 1}, Variant{.workers = 2},
                                           Variant{.workers = 0, .mode = Mode::identity},
                                           Variant{.workers = 2, .mode = Mode::identity, .end = End::calls_exit},
                                           Variant{.workers = 1, .end = End::calls_exit}),
                         name_of);

// The child's pools are destroyed, as it returns from main(); the parent goes on calling all the time.
TEST_P(ForkedChild, SendsNothingAndItsParentGoesOn) {
  const Variant setup = GetParam();
  const int status = run_program([setup] {
    Pair pair(setup);
    pair.call(20);
    const Call outstanding = pair.to->unary("later", "x", {.deadline = 1h});
    std::vector<pid_t> children;
    for (int round = 0; round < 3; ++round) {
      const pid_t child = fork_program();
      if (child == 0) {
        if (setup.end == End::calls_exit) std::exit(0);
        return 0;
      }
      children.push_back(child);
      pair.call(20);
    }
    for (const pid_t child : children) WEIR_EXPECT(wait_for(child) == 0);
    pair.call(20);
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(has_sent_something());
  EXPECT_EQ(judge_record(), "");
}

void expect_calls_fail(Pair& pair) {
  const std::string address = pair.server.listen_address();
  WEIR_EXPECT(!address.empty());
  WEIR_EXPECT(says_forked(pair.to->unary("echo", "x").get()));
  WEIR_EXPECT(says_forked(pair.to->unary("echo", std::string(100'000, 'x')).get()));
  WEIR_EXPECT(says_forked(pair.to->ready().get()));
  WEIR_EXPECT(says_forked(pair.client.peer(address).unary("echo", "x").get()));
  WEIR_EXPECT(says_forked(pair.client.peer("127.0.0.1:9").unary("echo", "x").get()));
  bool has_run = false;
  pair.to->unary("echo", "x").then([&](Result<Reply> reply) { has_run = says_forked(reply); });
  WEIR_EXPECT(has_run);
  WEIR_EXPECT(
      pair.client.run([](Peer to) -> Task<bool> { co_return says_forked(co_await to.unary("echo", "x")); }(*pair.to)));
  std::vector<std::byte> target(10);
  WEIR_EXPECT(says_forked(pair.to->get("place", into(target)).get()));
  const BroadcastOutcome outcome = pair.client.broadcast(std::span(&*pair.to, 1), "echo", Payload()).get();
  WEIR_EXPECT(!outcome.reached());
}

void expect_pools_fail(Pair& pair) {
  WEIR_EXPECT(says_forked(pair.server.serve("more", [](Request) { return Reply{}; })));
  WEIR_EXPECT(says_forked(pair.server.serve_inline("again", [](InlineRequest&) {})));
  static std::byte memory[16];
  WEIR_EXPECT(says_forked(pair.server.place("place", Placement::memory(memory))));
  WEIR_EXPECT(says_forked(pair.server.unplace("place")));
  WEIR_EXPECT(says_forked(pair.client.allocate(100).get()));
  WEIR_EXPECT(says_forked(pair.client.close(1h)));
  WEIR_EXPECT(says_forked(pair.server.close(1h)));
  WEIR_EXPECT(pair.client.counters().empty());
  WEIR_EXPECT(pair.client.limits().find("fork") != std::string::npos);
  // What cannot return an error stops the process, with the sentence.
  const pid_t polling = fork();
  if (polling == 0) {
    static_cast<void>(freopen("/dev/null", "w", stderr));
    pair.client.poll();
    std::_Exit(0);
  }
  WEIR_EXPECT(wait_for(polling) == 1000 + SIGABRT);
}

TEST_P(ForkedChild, IsToldSoByEveryHandle) {
  const Variant setup = GetParam();
  const int status = run_program([setup] {
    Pair pair(setup);
    pair.call(5);
    std::vector<Call> outstanding;
    for (int i = 0; i < 4; ++i) outstanding.push_back(pair.to->unary("later", "x", {.deadline = 1h}));
    Call done = pair.to->unary("echo", "x");
    pair.call(1);
    const pid_t child = fork_program();
    if (child == 0) {
      expect_calls_fail(pair);
      expect_pools_fail(pair);
      WEIR_EXPECT(says_forked(outstanding[0].get()));
      bool has_run = false;
      outstanding[1].then([&](Result<Reply> reply) { has_run = says_forked(reply) && reply.error().may_have_run(); });
      WEIR_EXPECT(has_run);
      WEIR_EXPECT(
          pair.client.run([](Call& call) -> Task<bool> { co_return says_forked(co_await call); }(outstanding[2])));
      WEIR_EXPECT(says_forked(done.get()));
      for (Responder& responder : pair.kept) {
        WEIR_EXPECT(responder.cancelled());
        if (responder.pending()) responder.reply("a child must not answer");
      }
      return 0;
    }
    WEIR_EXPECT(wait_for(child) == 0);
    pair.call(5);
    WEIR_EXPECT(text_of(done.get()) == "x");
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(judge_record(), "");
}

TEST_P(ForkedChild, CallsWithAPoolOfItsOwn) {
  const Variant setup = GetParam();
  const int status = run_program([setup] {
    Pair pair(setup);
    pair.call(5);
    const pid_t child = fork_program();
    Pair own(setup);  // the parent's second pair, or the child's own
    own.call(20);
    if (child == 0) {
      // Of its parent's server it is a client like any other.
      if (setup.mode == Mode::secret) {
        const Peer to = own.client.peer(pair.server.listen_address());
        WEIR_EXPECT(text_of(to.unary("echo", "y", {.deadline = 30s}).get()) == "y");
      }
      WEIR_EXPECT(says_forked(pair.to->unary("echo", "x").get()));
      WEIR_EXPECT(own.client.close(30s));
      return 0;
    }
    pair.call(20);
    WEIR_EXPECT(wait_for(child) == 0);
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(judge_record(), "");
}

// Memory of files is shared by both processes: a child that counted references would free its parent's buffers.
TEST(ForkedChildsBuffers, AreItsParents) {
  for (const BufferMemory memory : {BufferMemory::heap, BufferMemory::files}) {
    const int status = run_program([memory] {
      Pool server = open(server_config(1));
      serve_echo(server);
      Config config = client_config(1);
      config.buffers.memory = memory;
      if (memory == BufferMemory::files) config.buffers.directory = ::testing::TempDir();
      Pool client = open(config);
      const auto make = [&](char letter) {
        Buffer buffer = client.allocate(300'000, {.piece_bytes = 100'000}).get().value();
        for (auto& span : buffer.spans()) std::fill(span.begin(), span.end(), static_cast<std::byte>(letter));
        return buffer;
      };
      std::optional<Buffer> buffer = make('a');
      std::optional<Payload> payload = client.seal(make('b'));
      const std::string large(200'000, 'c');
      const Peer to = client.peer(server.listen_address());
      std::optional<Reply> reply = to.unary("echo", large, {.deadline = 30s}).get().value();
      const pid_t child = fork_program();
      if (child == 0) {
        const Payload copy = *payload;
        WEIR_EXPECT(client.seal(std::move(*buffer)).size() == 0);
        WEIR_EXPECT(says_forked(to.unary("echo", copy).get()));
        WEIR_EXPECT(says_forked(to.put("place", copy).get()));
        Pool own = open(client_config(1));
        WEIR_EXPECT(says_forked(own.peer(server.listen_address()).unary("echo", copy).get()));
        buffer.reset();
        payload.reset();
        reply.reset();
        return 0;
      }
      WEIR_EXPECT(wait_for(child) == 0);
      WEIR_EXPECT(reply->text() == large);
      const Payload first = client.seal(std::move(*buffer));
      WEIR_EXPECT(to.unary("echo", first, {.deadline = 30s}).get()->text() == std::string(300'000, 'a'));
      WEIR_EXPECT(to.unary("echo", *std::move(payload), {.deadline = 30s}).get()->text() == std::string(300'000, 'b'));
      return 0;
    });
    EXPECT_EQ(status, 0);
    EXPECT_EQ(judge_record(), "");
  }
}

TEST(ForkedChildsWorkers, AreItsParents) {
  for (const int threads : {0, 2}) {
    const int status = run_program([threads] {
      Workers workers = Workers::open({.threads = threads}).value();
      const Workers unused = Workers::open({.threads = 1}).value();
      Config config = client_config(1);
      config.on = &workers;
      Pool server = open(server_config(1));
      serve_echo(server);
      Pool client = open(config), second = open(config);
      const Peer to = client.peer(server.listen_address());
      WEIR_EXPECT(text_of(to.unary("echo", "x", {.deadline = 30s}).get()) == "x");
      const pid_t child = fork_program();
      if (child == 0) {
        WEIR_EXPECT(says_forked(Pool::open(config)));
        WEIR_EXPECT(says_forked(to.unary("echo", "x").get()));
        return 0;
      }
      WEIR_EXPECT(text_of(to.unary("echo", "x", {.deadline = 30s}).get()) == "x");
      WEIR_EXPECT(wait_for(child) == 0);
      WEIR_EXPECT(text_of(second.peer(server.listen_address()).unary("echo", "x", {.deadline = 30s}).get()) == "x");
      return 0;
    });
    EXPECT_EQ(status, 0);
    EXPECT_EQ(judge_record(), "");
  }
}

// Under load some thread of the parent holds some lock at nearly every fork.
TEST(ForkedChildOfABusyProcess, EndsWithoutWaitingForAnyLock) {
  const int status = run_program([] {
    Pool server = open(server_config(2));
    serve_echo(server);
    WEIR_EXPECT(server.serve("task", [](Request request) { return Reply(request.body()); }));
    Pool client = open(client_config(2));
    const Peer to = client.peer(server.listen_address());
    std::atomic<bool> is_over{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        const std::string large(100'000, 'x');
        while (!is_over) {
          WEIR_EXPECT(to.unary("task", "x", {.deadline = 60s}).get());
          if (i == 0) WEIR_EXPECT(to.unary("task", large, {.deadline = 60s}).get());
        }
      });
    }
    for (int round = 0; round < 30; ++round) {
      std::vector<Call> calls;
      for (int i = 0; i < 20; ++i) calls.push_back(to.unary("task", "x", {.deadline = 60s}));
      std::optional<Buffer> buffer = client.allocate(100'000).get().value();
      const pid_t child = fork_program();
      if (child == 0) {
        calls.clear();
        buffer.reset();
        client = open(client_config(0));  // the last handle of the parent's goes
        server = open(client_config(1));
        std::exit(0);  // not the threads' destructors, which are the application's to see to
      }
      WEIR_EXPECT(wait_for(child) == 0);
    }
    is_over = true;
    for (auto& thread : threads) thread.join();
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(judge_record(), "");
}

}  // namespace
}  // namespace weir
