// Whoever records everything that two pools say to each other can repeat it as often as he likes: nothing runs again,
// and nobody is disturbed.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "pool/identity_testing.h"

namespace weir {
namespace {

using namespace std::chrono_literals;
using testing::await;
using testing::DatagramSocket;
using testing::identity_client;
using testing::identity_server;
using testing::open;
using testing::TestAuthority;
using testing::TestDirectory;
using testing::text_of;

// UDP ports of this process on 127.0.0.1: those of pools that listen there.
std::set<std::uint16_t> ports() {
  std::set<std::uint16_t> found;
  constexpr int kMostDescriptors = 1'024;
  for (int descriptor = 0; descriptor < kMostDescriptors; ++descriptor) {
    int type = 0;
    socklen_t size = sizeof(type);
    if (::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_DGRAM) continue;
    const Address local = DatagramSocket::local_of(descriptor);
    if (local == Address::v4(0x7f000001, local.port) && local.port != 0) found.insert(local.port);
  }
  return found;
}

// Stands between pools that listen and those who call them, for handshakes and for data: the same ports on another
// loopback address. Callers use that one, and so are told that the data is there, too. Remembers every datagram. One
// thread turns it.
class Recorder {
 public:
  struct Recorded {
    std::size_t door;  // index of doors_
    bool to_server;
    std::vector<std::byte> bytes;
  };

  explicit Recorder(const std::set<std::uint16_t>& server_ports) {
    for (const std::uint16_t port : server_ports) {
      listening_.push_back({DatagramSocket("127.0.0.2:" + std::to_string(port)), Address::v4(0x7f000001, port)});
    }
    thread_ = std::thread([this] {
      while (!is_over_) turn();
    });
  }
  ~Recorder() { stop(); }

  // From here on it only repeats.
  std::vector<Recorded> stop() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
    return recorded_;
  }

  // As it was: from the same sockets to the same ones.
  void replay(const Recorded& recorded) {
    const Door& door = doors_[recorded.door];
    if (recorded.to_server) {
      door.socket.send(recorded.bytes, listening_[door.listening].server);
    } else {
      listening_[door.listening].socket.send(recorded.bytes, door.client);
    }
  }
  // To somebody else.
  void replay_to(const Recorded& recorded, const Address& to) {
    const Door& door = doors_[recorded.door];
    (recorded.to_server ? door.socket : listening_[door.listening].socket).send(recorded.bytes, to);
  }
  // Goes on, without recording, while `recorded` is repeated through it.
  void turn() {
    std::vector<pollfd> descriptors;
    for (const auto& each : listening_) descriptors.push_back({each.socket.descriptor(), POLLIN, 0});
    for (const auto& each : doors_) descriptors.push_back({each.socket.descriptor(), POLLIN, 0});
    ::poll(descriptors.data(), descriptors.size(), 1);
    std::vector<std::byte> bytes;
    Address from;
    for (std::size_t i = 0; i < listening_.size(); ++i) {
      while (listening_[i].socket.receive(bytes, from)) {
        const std::size_t door = door_of(i, from);
        doors_[door].socket.send(bytes, listening_[i].server);
        note(door, true, bytes);
      }
    }
    for (std::size_t door = 0; door < doors_.size(); ++door) {
      while (doors_[door].socket.receive(bytes, from)) {
        listening_[doors_[door].listening].socket.send(bytes, doors_[door].client);
        note(door, false, bytes);
      }
    }
  }
  bool is_recording = true;

 private:
  struct Listening {
    DatagramSocket socket;
    Address server;
  };
  struct Door {  // of one client's port to one of the server's
    DatagramSocket socket;
    std::size_t listening;
    Address client;
  };

  std::size_t door_of(std::size_t listening, const Address& client) {
    const auto [at, is_new] = by_client_.try_emplace({listening, client}, doors_.size());
    if (is_new) doors_.push_back({DatagramSocket(), listening, client});
    return at->second;
  }
  void note(std::size_t door, bool to_server, const std::vector<std::byte>& bytes) {
    if (is_recording) recorded_.push_back({door, to_server, bytes});
  }

  std::vector<Listening> listening_;
  std::vector<Door> doors_;
  std::map<std::pair<std::size_t, Address>, std::size_t> by_client_;
  std::vector<Recorded> recorded_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

// One of two pools that call each other.
struct Side {
  void serve(const Identity& identity, const std::string& listen) {
    Config config = identity_server(identity);
    config.listen = listen;
    pool.emplace(open(config));
    ASSERT_TRUE(pool->serve_inline("run", [this](InlineRequest& request) {
      ++runs;
      request.reply("ran");
    }));
  }
  std::string address_behind_recorder() const {
    const std::string address = pool->listen_address();
    return "127.0.0.2" + address.substr(address.find(':'));
  }

  std::atomic<int> runs{0};
  std::optional<Pool> pool;
  std::optional<Peer> other;  // through the recorder
};

class RecordedConversation : public ::testing::Test {
 protected:
  static constexpr int kCalls = 300;

  void SetUp() override {
    server.serve(server_identity(), "127.0.0.1:0");
    client.serve(client_identity(), "127.0.0.1:0");
    recorder.emplace(ports());
    client.other.emplace(client.pool->peer(server.address_behind_recorder(), {.name = "server.test"}));
    server.other.emplace(server.pool->peer(client.address_behind_recorder(), {.name = "client.test"}));
    std::vector<Call> calls;
    for (int i = 0; i < kCalls; ++i) {
      for (const Side* each : {&client, &server}) {
        calls.push_back(each->other->unary("run", "x"));
        if (i % 10 == 0) calls.push_back(each->other->unary("run", std::string(5'000, 'x')));
      }
    }
    for (Call& call : calls) EXPECT_EQ(text_of(call.get()), "ran");
    recorded = recorder->stop();
    EXPECT_EQ(runs(), (Runs{kCalls + kCalls / 10, kCalls + kCalls / 10}));
    EXPECT_GE(std::ranges::count_if(recorded, [](const auto& each) { return each.to_server; }), 10);
    EXPECT_GE(std::ranges::count_if(recorded, [](const auto& each) { return !each.to_server; }), 10);
    recorder->is_recording = false;
  }
  Identity server_identity() const {
    return authority.identity({"server.test"}).signer_file(directory.path("server.signer"));
  }
  Identity client_identity() const {
    return authority.identity({"client.test"}).signer_file(directory.path("client.signer"));
  }
  // At the server and at the client.
  using Runs = std::pair<int, int>;
  Runs runs() const { return {server.runs, client.runs}; }

  // Honest calls get through meanwhile, and only they run.
  void expect_calls_go_on() {
    const Runs before = runs();
    int answered = 0;
    constexpr int kHonest = 20;
    std::vector<Call> calls;
    for (int i = 0; i < kHonest; ++i) {
      for (const Side* each : {&client, &server}) calls.push_back(each->other->unary("run", "x"));
    }
    std::atomic<bool> is_over{false};
    std::thread relay([&] {
      while (!is_over) recorder->turn();
    });
    for (Call& call : calls) answered += text_of(call.get()) == "ran";
    is_over = true;
    relay.join();
    EXPECT_EQ(answered, 2 * kHonest);
    EXPECT_EQ(runs(), (Runs{before.first + kHonest, before.second + kHonest}));
  }
  // After one of them was restarted: past the recorder, by pools that have not met.
  void expect_newcomers_served() {
    const Runs before = runs();
    Pool newcomer = open(identity_client(authority.identity({"newcomer.test"})));
    for (const auto& [side, name] : {std::pair{&server, "server.test"}, std::pair{&client, "client.test"}}) {
      const Peer peer = newcomer.peer(side->pool->listen_address(), {.name = name});
      EXPECT_EQ(text_of(peer.unary("run", "x").get()), "ran");
    }
    EXPECT_EQ(runs(), (Runs{before.first + 1, before.second + 1}));
  }
  std::vector<Recorder::Recorded> shuffled(unsigned seed) const {
    std::vector<Recorder::Recorded> all = recorded;
    std::shuffle(all.begin(), all.end(), std::mt19937(seed));
    return all;
  }
  // As it was, and to every port that there is now.
  void replay_everywhere(const std::vector<Recorder::Recorded>& all) {
    const std::set<std::uint16_t> everywhere = ports();
    for (const auto& each : all) {
      recorder->replay(each);
      for (const std::uint16_t port : everywhere) recorder->replay_to(each, Address::v4(0x7f000001, port));
    }
  }
  // A pool has taken everything that was sent to it before a call through the same sockets is answered; but the
  // handshaker's socket is another.
  static void let_them_read() { std::this_thread::sleep_for(50ms); }

  TestAuthority authority;
  TestDirectory directory;
  Side server, client;
  std::optional<Recorder> recorder;
  std::vector<Recorder::Recorded> recorded;
};

TEST_F(RecordedConversation, RunsNothingWhileBothLive) {
  const Runs before = runs();
  for (const auto& each : recorded) recorder->replay(each);
  let_them_read();
  EXPECT_EQ(runs(), before);
  expect_calls_go_on();
}

TEST_F(RecordedConversation, RunsNothingInAnyOrder) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const Runs before = runs();
    for (const auto& each : shuffled(seed)) recorder->replay(each);
    let_them_read();
    EXPECT_EQ(runs(), before);
    expect_calls_go_on();
  }
}

TEST_F(RecordedConversation, IsNotTakenFromAnybodyElseEither) {
  DatagramSocket stranger;
  const Runs before = runs();
  for (const auto& each : recorded) {
    for (const std::uint16_t port : ports()) {
      if (port != stranger.local().port) stranger.send(each.bytes, Address::v4(0x7f000001, port));
    }
  }
  let_them_read();
  EXPECT_EQ(runs(), before);
  expect_calls_go_on();
}

TEST_F(RecordedConversation, RunsNothingAtARestartedServer) {
  const std::string address = server.pool->listen_address();
  static_cast<void>(server.pool->close(100ms));  // what is in the recorder stays there
  server.other.reset();
  server.pool.reset();
  server.serve(server_identity(), address);
  const Runs before = runs();
  for (int round = 0; round < 2; ++round) {
    replay_everywhere(round == 0 ? recorded : shuffled(9));
    let_them_read();
    EXPECT_EQ(runs(), before);
  }
  expect_newcomers_served();
}

TEST_F(RecordedConversation, RunsNothingAtOrForARestartedClient) {
  const std::string address = client.pool->listen_address();
  static_cast<void>(client.pool->close(100ms));
  client.other.reset();
  client.pool.reset();
  client.serve(client_identity(), address);
  const Runs before = runs();
  for (int round = 0; round < 2; ++round) {
    replay_everywhere(round == 0 ? recorded : shuffled(11));
    let_them_read();
    EXPECT_EQ(runs(), before);
  }
  expect_newcomers_served();
}

}  // namespace
}  // namespace weir
