// What outlives what: calls outlive new certificates, renewed and evicted credentials.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <mutex>
#include <thread>

#include "pool/identity_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
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
  config.timeouts.credential = 400ms;  // one that is not renewed in twice that fails calls, on a busy machine, too
  config.timeouts.idle_peer = 50ms;
  Pool client = open(config);
  EXPECT_EQ(text_of(client.peer(idle.listen_address()).unary("echo", "x").get()), "x");
  Callers callers(client.peer(busy.listen_address()), 1);
  // Sooner or later it is left alone.
  int before = 0;
  do {
    before = of_idle;
    await([&, until = of_busy + 4] { return of_busy >= until; });
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

}  // namespace
}  // namespace weir
