// What outlives what: calls outlive new certificates, renewed and evicted credentials; peers outlive a server that was
// killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <mutex>
#include <new>
#include <thread>

#include "pool/identity_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::code_of;
using testing::identity_client;
using testing::identity_server;
using testing::Listener;
using testing::open;
using testing::serve_echo;
using testing::TestAuthority;
using testing::TestDirectory;
using testing::text_of;
using testing::total;

// Calls one peer without pause, from a thread of its own, until it ends.
class Callers {
 public:
  Callers(Peer peer, int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this, peer] { run(peer); });
  }
  ~Callers() { stop(); }
  void stop() {
    is_over_ = true;
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  std::uint64_t done() const { return done_; }

 private:
  static constexpr std::size_t kInFlight = 32;

  void run(const Peer& peer) {
    std::deque<Call> calls;
    while (!is_over_ || !calls.empty()) {
      while (!is_over_ && calls.size() < kInFlight) calls.push_back(peer.unary("echo", "x"));
      if (calls.empty()) break;
      EXPECT_EQ(text_of(calls.front().get()), "x");
      calls.pop_front();
      ++done_;
    }
  }

  std::atomic<bool> is_over_{false};
  std::atomic<std::uint64_t> done_{0};
  std::vector<std::thread> threads_;
};

// ---- certificates ----

class CertificateFiles {
 public:
  explicit CertificateFiles(const TestAuthority& authority) : authority_(authority) {
    directory_.write("ca.crt", authority_.roots());
  }
  // Each file at once, as careful administrators do it.
  void replace(const handshake::Issued& issued) const {
    put("node.key", issued.key_pem);
    put("node.crt", issued.chain_pem);
  }
  void put(const char* name, const std::string& content) const {
    directory_.write(std::string(name) + ".new", content);
    std::filesystem::rename(directory_.path(std::string(name) + ".new"), directory_.path(name));
  }
  Identity identity() const {
    return Identity::from_files(directory_.path("node.crt"), directory_.path("node.key"), directory_.path("ca.crt"));
  }

 private:
  const TestAuthority& authority_;
  TestDirectory directory_;
};

TEST(NewCertificates, AreShownFromTheNextHandshakeOnAndDisturbNoCall) {
  TestAuthority authority;
  CertificateFiles files(authority);
  files.replace(authority.issue({"127.0.0.1", "old.test"}));
  auto heard = std::make_shared<Listener>();
  Config config = identity_server(files.identity());
  config.subscriber = heard;
  Pool server = open(config);
  serve_echo(server);
  const Identity ours = authority.identity({"client.test"});
  Pool client = open(identity_client(ours));
  Callers callers(client.peer(server.listen_address()), 1);
  const auto shows = [&](std::string_view name) {
    Pool newcomer = open(identity_client(ours));
    const Result<Reply> reply = newcomer.peer(server.listen_address(), {.name = name}).unary("echo", "x").get();
    EXPECT_TRUE(reply || reply.error().code() == Code::unauthenticated) << text_of(reply);
    return reply.has_value();
  };
  EXPECT_TRUE(shows("old.test"));
  EXPECT_FALSE(shows("new.test"));

  // Half of a file is none, and is complained of once, however often it is looked at.
  const handshake::Issued fresh = authority.issue({"127.0.0.1", "new.test"});
  files.put("node.crt", fresh.chain_pem.substr(0, fresh.chain_pem.size() / 2));
  await([&] { return !heard->degraded("certificates").empty(); });
  EXPECT_TRUE(shows("old.test"));
  std::this_thread::sleep_for(1'200ms);  // it is looked at every second
  EXPECT_TRUE(shows("old.test"));
  ASSERT_EQ(heard->degraded("certificates").size(), 1u);
  EXPECT_NE(heard->degraded("certificates")[0].find("node.crt"), std::string::npos);

  files.replace(fresh);
  await([&] { return shows("new.test"); });
  EXPECT_FALSE(shows("old.test"));
  await([&] { return callers.done() >= 10'000; });
}

TEST(NewCertificates, OfACallerAreShownAtTheNextRenewal) {
  TestAuthority authority;
  std::mutex mutex;
  std::string last;
  Pool server = open(identity_server(authority.identity({"127.0.0.1"}).authorise([&](std::string_view name) {
    std::lock_guard lock(mutex);
    last = name;
    return true;
  })));
  serve_echo(server);
  CertificateFiles files(authority);
  files.replace(authority.issue({"old.test"}));
  Config config = identity_client(files.identity());
  config.timeouts.credential = 300ms;
  Pool client = open(config);
  Callers callers(client.peer(server.listen_address()), 1);
  const auto last_is = [&](const char* name) {
    std::lock_guard lock(mutex);
    return last == name;
  };
  await([&] { return last_is("old.test"); });
  files.replace(authority.issue({"new.test"}));
  await([&] { return last_is("new.test"); });
  await([&] { return callers.done() >= 1'000; });
}

// ---- renewals ----

TEST(Renewal, DisturbsNoCallAndGoesOnForAsLongAsThereAreCalls) {
  TestAuthority authority;
  std::atomic<int> handshakes{0};
  Pool server = open(identity_server(authority.identity({"127.0.0.1"}).authorise([&](std::string_view) {
    ++handshakes;
    return true;
  }),
                                     2));
  serve_echo(server);
  Config config = identity_client(authority.identity({"client.test"}), 2);
  config.timeouts.credential = 400ms;
  Pool client = open(config);
  Callers callers(client.peer(server.listen_address()), 3);
  await([&] { return handshakes >= 5 && callers.done() >= 5'000; });
  callers.stop();
  const Counters ours = total(client);
  EXPECT_GE(ours.handshakes_completed, 4u);  // of paths: one for each credential
  EXPECT_EQ(ours.calls_failed, 0u);
  EXPECT_EQ(ours.handshakes_failed, 0u);
}

TEST(Renewal, IsForThoseInUse) {
  TestAuthority authority;
  std::atomic<int> of_idle{0}, of_busy{0};
  const auto counting = [](std::atomic<int>& handshakes) {
    return [&handshakes](std::string_view) {
      ++handshakes;
      return true;
    };
  };
  Pool idle = open(identity_server(authority.identity({"127.0.0.1"}).authorise(counting(of_idle))));
  Pool busy = open(identity_server(authority.identity({"127.0.0.1"}).authorise(counting(of_busy))));
  serve_echo(idle);
  serve_echo(busy);
  Config config = identity_client(authority.identity({"client.test"}));
  config.timeouts.credential = 100ms;
  config.timeouts.idle_peer = 50ms;
  Pool client = open(config);
  EXPECT_EQ(text_of(client.peer(idle.listen_address()).unary("echo", "x").get()), "x");
  Callers callers(client.peer(busy.listen_address()), 1);
  // Sooner or later it is left alone.
  int before = 0;
  do {
    before = of_idle;
    await([&, until = of_busy + 8] { return of_busy >= until; });
  } while (of_idle != before);
  EXPECT_EQ(text_of(client.peer(idle.listen_address()).unary("echo", "x").get()), "x");
}

// The one who calls renews. The other side has nothing to ask of it, even though it could.
TEST(Renewal, IsTheCallersBusiness) {
  TestAuthority authority;
  std::atomic<int> at_server{0}, at_client{0};
  const auto counting = [](std::atomic<int>& handshakes) {
    return [&handshakes](std::string_view) {
      ++handshakes;
      return true;
    };
  };
  Config config = identity_server(authority.identity({"127.0.0.1"}).authorise(counting(at_server)));
  config.timeouts.credential = 200ms;
  Pool server = open(config);
  serve_echo(server);
  config.identity = authority.identity({"127.0.0.1"}).authorise(counting(at_client));
  Pool client = open(config);
  Callers callers(client.peer(server.listen_address()), 1);
  await([&] { return at_server >= 5; });
  // The client is asked about the server once for each handshake of its own; had the server begun some, too, there
  // would be twice as many.
  EXPECT_LE(at_client, at_server + 1);
}

// ---- eviction ----

TEST(Eviction, OfCredentialsFailsNoCall) {
  constexpr std::size_t kClients = 12;
  TestAuthority authority;
  std::atomic<int> handshakes{0};
  Config config = identity_server(authority.identity({"127.0.0.1"}).authorise([&](std::string_view) {
    ++handshakes;
    return true;
  }));
  config.limits.credentials = 4;
  config.timeouts.idle_peer = 20ms;  // so that paths must be opened anew
  Pool server = open(config);
  serve_echo(server);
  config = identity_client(authority.identity({"client.test"}));
  config.timeouts.idle_peer = 20ms;
  std::vector<Pool> clients;
  for (std::size_t i = 0; i < kClients; ++i) clients.push_back(open(config));
  // From the second round on, nobody's credential is left: each is told so, and shakes hands again.
  while (handshakes < 2 * static_cast<int>(kClients)) {
    for (Pool& client : clients) {
      EXPECT_EQ(text_of(client.peer(server.listen_address()).unary("echo", "x").get()), "x");
    }
    std::this_thread::sleep_for(30ms);
  }
}

// ---- a server that is killed ----

// A process that starts servers, each a process of its own, and kills them. It is made before there are threads, so
// that forking is safe.
class ServerProcesses {
 public:
  struct Shared {
    std::atomic<int> handshakes{0};
    std::atomic<int> runs{0};
    std::atomic<int> held{0};
  };

  explicit ServerProcesses(const Identity& identity)
      : shared_(new(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                    Shared) {
    EXPECT_EQ(::pipe(orders_), 0);
    EXPECT_EQ(::pipe(answers_), 0);
    starter_ = ::fork();
    if (starter_ != 0) return;
    ::close(orders_[1]);
    std::uint16_t port = 0;
    pid_t child = 0;
    while (::read(orders_[0], &port, sizeof(port)) == sizeof(port)) {
      if (child != 0) {
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        child = 0;
      }
      if (port == kNone) {
        static_cast<void>(!::write(answers_[1], &port, sizeof(port)));
      } else if ((child = ::fork()) == 0) {
        serve(identity, port);
      }
    }
    if (child != 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    ::_exit(0);
  }
  ~ServerProcesses() {
    ::close(orders_[1]);
    ::waitpid(starter_, nullptr, 0);
    ::close(orders_[0]);
    ::close(answers_[0]);
    ::close(answers_[1]);
    ::munmap(shared_, sizeof(Shared));
  }

  // 0: any port. Whoever ran before is killed. Returns the port.
  std::uint16_t start(std::uint16_t port = 0) { return order(port); }
  void kill() { order(kNone); }
  Shared& shared() { return *shared_; }

 private:
  static constexpr std::uint16_t kNone = 0xffff;

  std::uint16_t order(std::uint16_t what) {
    std::uint16_t answer = 0;
    EXPECT_EQ(::write(orders_[1], &what, sizeof(what)), static_cast<ssize_t>(sizeof(what)));
    EXPECT_EQ(::read(answers_[0], &answer, sizeof(answer)), static_cast<ssize_t>(sizeof(answer)));
    return answer;
  }
  [[noreturn]] void serve(const Identity& identity, std::uint16_t port) {
    Shared& shared = *shared_;
    Config config = identity_server(identity.authorise([&shared](std::string_view) {
      ++shared.handshakes;
      return true;
    }));
    config.listen = "127.0.0.1:" + std::to_string(port);
    Result<Pool> pool = Pool::open(config);
    if (!pool) ::_exit(1);
    std::vector<Responder> kept;
    static_cast<void>(pool->serve_inline("echo", [&](InlineRequest& request) {
      ++shared.runs;
      request.reply(request.body());
    }));
    static_cast<void>(pool->serve_inline("hold", [&](InlineRequest& request) {
      kept.push_back(request.defer());
      ++shared.held;
    }));
    port = Address::parse(pool->listen_address())->port;
    static_cast<void>(!::write(answers_[1], &port, sizeof(port)));
    for (;;) ::pause();
  }

  Shared* shared_;
  int orders_[2] = {-1, -1};
  int answers_[2] = {-1, -1};
  pid_t starter_ = -1;
};

class KilledServer : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kHeld = 50;

  Identity server_identity() const {
    const Identity identity = authority_.identity({"127.0.0.1"});
    return GetParam() ? identity.signer_file(directory_.path("signer")) : identity;
  }

  TestAuthority authority_;
  TestDirectory directory_;
};

TEST_P(KilledServer, IsFoundAgainWithOneHandshake) {
  ServerProcesses servers(server_identity());
  const std::uint16_t port = servers.start();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  Config config = identity_client(authority_.identity({"client.test"}));
  config.timeouts.silence = 8s;  // however long a process takes to start
  Pool client = open(config);
  Peer peer = client.peer(address);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(text_of(peer.unary("echo", "x").get()), "x");
  std::vector<Call> held;
  for (int i = 0; i < kHeld; ++i) held.push_back(peer.unary("hold", ""));
  await([&] { return servers.shared().held == kHeld; });
  EXPECT_EQ(servers.shared().handshakes, 1);

  ASSERT_EQ(servers.start(port), port);
  // What was sent before has perhaps run, and surely does not run again.
  for (Call& call : held) {
    const Result<Reply> result = call.get();
    ASSERT_FALSE(result);
    EXPECT_EQ(code_of(result), Code::reset) << text_of(result);
    EXPECT_TRUE(result.error().may_have_run());
  }
  EXPECT_EQ(servers.shared().held, kHeld);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(text_of(peer.unary("echo", "x").get()), "x");
  EXPECT_EQ(servers.shared().runs, 40);
  EXPECT_EQ(servers.shared().handshakes, 2);
}

TEST_P(KilledServer, IsFoundAgainByCallsThatCameMeanwhile) {
  ServerProcesses servers(server_identity());
  const std::uint16_t port = servers.start();
  Config config = identity_client(authority_.identity({"client.test"}));
  config.timeouts.silence = 8s;  // however long a process takes to start
  Pool client = open(config);
  Peer peer = client.peer("127.0.0.1:" + std::to_string(port));
  EXPECT_EQ(text_of(peer.unary("echo", "x").get()), "x");
  servers.kill();
  std::vector<Call> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(peer.unary("echo", "x"));
  ASSERT_EQ(servers.start(port), port);
  for (Call& call : calls) {
    const Result<Reply> result = call.get();
    EXPECT_TRUE(result || result.error().code() == Code::reset || result.error().code() == Code::peer_failed)
        << text_of(result);
  }
  EXPECT_EQ(text_of(peer.unary("echo", "x").get()), "x");
  EXPECT_LE(servers.shared().runs, 22);
}

INSTANTIATE_TEST_SUITE_P(SignerFile, KilledServer, ::testing::Bool());

}  // namespace
}  // namespace weir
