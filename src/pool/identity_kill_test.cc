// A server that is killed: what its peers notice, and whose word they believe.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "pool/identity_testing.h"
#include "wire/packet.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::code_of;
using testing::DatagramSocket;
using testing::identity_client;
using testing::identity_server;
using testing::open;
using testing::TestAuthority;
using testing::TestDirectory;
using testing::text_of;

// A process that starts servers, each a process of its own, and kills them. It is made before there are threads, so
// that forking is safe.
class ServerProcesses {
 public:
  struct Shared {
    std::atomic<int> handshakes{0};
    std::atomic<int> runs{0};
    std::atomic<int> held{0};
  };

  ServerProcesses(const Identity& identity, std::uint16_t data_port)
      : data_port_(data_port),
        shared_(new(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
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
    config.data_port = data_port_;
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

  const std::uint16_t data_port_;
  Shared* shared_;
  int orders_[2] = {-1, -1};
  int answers_[2] = {-1, -1};
  pid_t starter_ = -1;
};

// Counts what it was told of paths that the peer does not know, and did not believe.
class Doubter : public Subscriber {
 public:
  void on(const event::PacketRejected& e) override {
    doubts_ += e.reason == event::Rejection::forged && e.bytes == wire::kUnknownPathBytes ? 1 : 0;
  }
  int doubts() const { return doubts_; }

 private:
  std::atomic<int> doubts_{0};
};

// Whether it keeps its signer in a file. The ports of its workers are fixed, so that a peer's packets reach the process
// that comes after it.
class KilledServer : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kHeld = 50;

  Identity server_identity() const {
    const Identity identity = authority_.identity({"127.0.0.1"});
    return GetParam() ? identity.signer_file(directory_.path("signer")) : identity;
  }
  // What a server says to a packet for a path that it does not have.
  std::vector<std::byte> word_for(const DatagramSocket& stranger) const {
    std::byte packet[wire::kMinPacketBytes] = {};
    wire::encode(wire::PacketHeader{.number_low = 7, .path = 5}, packet);
    std::vector<std::byte> word;
    Address from;
    await([&] {
      stranger.send(packet, Address::v4(0x7f000001, data_port_));
      stranger.wait(100ms);
      return stranger.receive(word, from);
    });
    EXPECT_EQ(from.port, data_port_);
    EXPECT_EQ(word.size(), wire::kUnknownPathBytes);
    return word;
  }

  const std::uint16_t data_port_ = DatagramSocket().local().port;
  TestAuthority authority_;
  TestDirectory directory_;
};

// That a restart costs one handshake is checked in virtual time (RestartWhileConfirming, and the simulator's scenario
// identity_restart). Here a process that is not scheduled for a while looks like one that does not answer, and its
// credential may be doubted again: as often as rule R-5 allows.
TEST_P(KilledServer, IsFoundAgainAndNothingRunsTwice) {
  constexpr int kHandshakesAtOnce = 4;
  ServerProcesses servers(server_identity(), data_port_);
  const std::uint16_t port = servers.start();
  const std::string address = "127.0.0.1:" + std::to_string(port);
  Config config = identity_client(authority_.identity({"client.test"}));
  config.timeouts.silence = 60s;  // however long a process takes to start
  const auto doubter = std::make_shared<Doubter>();
  config.subscriber = doubter;
  Pool client = open(config);
  Peer peer = client.peer(address);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(text_of(peer.unary("echo", "x", {.deadline = 1h}).get()), "x");
  std::vector<Call> held;
  for (int i = 0; i < kHeld; ++i) held.push_back(peer.unary("hold", "", {.deadline = 1h}));
  await([&] { return servers.shared().held == kHeld; });
  const int before = servers.shared().handshakes;

  const auto restarted = std::chrono::steady_clock::now();
  ASSERT_EQ(servers.start(port), port);
  // What was sent before has perhaps run, and surely does not run again.
  for (Call& call : held) {
    const Result<Reply> result = call.get();
    ASSERT_FALSE(result);
    EXPECT_EQ(code_of(result), Code::reset) << text_of(result);
    EXPECT_TRUE(result.error().may_have_run());
  }
  EXPECT_EQ(servers.shared().held, kHeld);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(text_of(peer.unary("echo", "x", {.deadline = 1h}).get()), "x");
  EXPECT_EQ(servers.shared().runs, 40);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - restarted;
  EXPECT_GT(servers.shared().handshakes, before);
  EXPECT_LE(servers.shared().handshakes, before + kHandshakesAtOnce + seconds.count());
  EXPECT_EQ(doubter->doubts(), 0) << "its word was not that of the one before";
}

// What its peers believe its word by is the same in every process that has its signer file or its private key.
TEST_P(KilledServer, SpeaksForTheOneBefore) {
  ServerProcesses servers(server_identity(), data_port_);
  const std::uint16_t port = servers.start();
  const DatagramSocket stranger, another;
  const std::vector<std::byte> before = word_for(stranger);
  EXPECT_EQ(word_for(stranger), before);
  EXPECT_NE(word_for(another), before) << "each address is told something else";
  ASSERT_EQ(servers.start(port), port);
  EXPECT_EQ(word_for(stranger), before) << "the signer comes from the file, or from the private key";
}

TEST_P(KilledServer, IsFoundAgainByCallsThatCameMeanwhile) {
  ServerProcesses servers(server_identity(), data_port_);
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
