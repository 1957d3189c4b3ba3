// broadcast(): one payload, sealed once, to many.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "buffer/work.h"
#include "pool/bulk_testing.h"

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
using testing::server_config;

// Servers that answer with their number, or when they are told to.
struct Cluster {
  explicit Cluster(int servers_, int client_workers = 1) : client(open(client_config(client_workers))) {
    for (int i = 0; i < servers_; ++i) {
      servers.push_back(open(server_config(1)));
      EXPECT_TRUE(servers.back().serve("append", [this, i](Request request) {
        EXPECT_TRUE(is_same(request.text(), text));
        ++runs;
        return Reply{std::to_string(i), request.header_text()};
      }));
      // Odd ones wait to be told; the others answer once all of these have it.
      if (i % 2 == 0) {
        EXPECT_TRUE(servers.back().serve("hold", [this, i, odd = static_cast<std::size_t>(servers_ / 2)](Request) {
          await([&] { return ever_held >= odd; });
          return Reply{std::to_string(i)};
        }));
      } else {
        EXPECT_TRUE(servers.back().serve_inline("hold", [this](InlineRequest& request) {
          std::lock_guard lock(mutex);
          held.push_back(request.defer());
          ++ever_held;
        }));
      }
      EXPECT_TRUE(servers.back().serve("refuse", [i](Request) -> Result<Reply> {
        if (i % 2 == 0) return Reply{std::to_string(i)};
        return std::unexpected(Error(Code::application, "odd ones refuse"));
      }));
      peers.push_back(client.peer(servers.back().listen_address()));
    }
  }
  std::size_t holding() {
    std::lock_guard lock(mutex);
    return held.size();
  }
  void let_go() {
    std::lock_guard lock(mutex);
    for (Responder& responder : held) responder.reply("late");
    held.clear();
  }

  const std::string text = pattern(kMiB);
  std::atomic<int> runs{0};
  std::atomic<std::size_t> ever_held{0};
  std::mutex mutex;
  std::vector<Responder> held;
  std::vector<Pool> servers;
  Pool client;
  std::vector<Peer> peers;
};

TEST(Broadcast, ReachesAllAndIsSealedOnce) {
  Cluster cluster(6);
  const std::uint64_t before = buffer::work.sealed_bytes.load();
  const Payload payload = payload_of(cluster.client, cluster.text);
  const BroadcastOutcome outcome =
      cluster.client.broadcast(cluster.peers, "append", payload, {.priority = 1, .deadline = 20s, .header = "h"}).get();
  EXPECT_EQ(buffer::work.sealed_bytes.load() - before, kMiB);
  EXPECT_TRUE(outcome.reached());
  EXPECT_EQ(outcome.replies(), 6u);
  ASSERT_EQ(outcome.size(), 6u);
  for (std::size_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(outcome[i] && *outcome[i]) << i;
    EXPECT_EQ((*outcome[i])->text(), std::to_string(i));
    EXPECT_EQ((*outcome[i])->header_text(), "h");
  }
  EXPECT_EQ(cluster.runs, 6);
}

TEST(Broadcast, CompletesAtTheQuorumAndTheRestFinishAndReport) {
  Cluster cluster(5);
  const Payload payload = payload_of(cluster.client, cluster.text);
  struct Late {
    std::mutex mutex;
    std::vector<std::size_t> peers;
  } late;
  const StragglerReport report{.function =
                                   [](void* context, std::size_t peer, const Result<Reply>& result) {
                                     auto& to = *static_cast<Late*>(context);
                                     EXPECT_TRUE(result && result->text() == "late");
                                     std::lock_guard lock(to.mutex);
                                     to.peers.push_back(peer);
                                   },
                               .context = &late};
  const auto task = [&]() -> Task<int> {
    auto outcome = co_await cluster.client.broadcast(cluster.peers, "hold", payload, {.quorum = 3, .report = report});
    EXPECT_TRUE(outcome.reached());
    EXPECT_EQ(outcome.replies(), 3u);
    EXPECT_FALSE(outcome[1]);
    EXPECT_FALSE(outcome[3]);
    co_return 1;
  };
  EXPECT_EQ(cluster.client.run(task()), 1);
  await([&] { return cluster.holding() == 2; });
  cluster.let_go();
  await([&] {
    std::lock_guard lock(late.mutex);
    return late.peers.size() == 2;
  });
  std::lock_guard lock(late.mutex);
  EXPECT_EQ(late.peers[0] + late.peers[1], 4u);
}

TEST(Broadcast, StragglersAreCancelledIfAskedFor) {
  for (const int client_workers : {1, 0}) {
    Cluster cluster(5, client_workers);
    const Payload payload = payload_of(cluster.client, cluster.text);
    const BroadcastOutcome outcome =
        cluster.client
            .broadcast(cluster.peers, "hold", payload,
                       {.quorum = 3,
                        .stragglers = Stragglers::cancel,
                        .report = {.function = [](void*, std::size_t, const Result<Reply>&) { ADD_FAILURE(); }}})
            .get();
    EXPECT_TRUE(outcome.reached());
    ASSERT_EQ(cluster.holding(), 2u);
    await([&] {
      if (client_workers == 0) cluster.client.poll();
      std::lock_guard lock(cluster.mutex);
      return cluster.held[0].cancelled() && cluster.held[1].cancelled();
    });
    EXPECT_EQ(payload.sealed()->references.load(), 1u) << "nobody holds the payload any more";
    cluster.let_go();
  }
}

TEST(Broadcast, SaysSoWhenTheQuorumCannotBeReached) {
  Cluster cluster(5);
  const Payload payload = payload_of(cluster.client, cluster.text);
  const BroadcastOutcome outcome = cluster.client.broadcast(cluster.peers, "refuse", payload, {.quorum = 4}).get();
  EXPECT_FALSE(outcome.reached());
  ASSERT_TRUE(outcome.error());
  EXPECT_EQ(outcome.error()->message(), "odd ones refuse") << "what a peer said";
  std::size_t failures = 0;
  for (const auto& result : outcome.results()) failures += result && !*result;
  EXPECT_EQ(failures, 2u);
  const BroadcastOutcome half = cluster.client.broadcast(cluster.peers, "refuse", payload, {.quorum = 3}).get();
  EXPECT_TRUE(half.reached());
  EXPECT_FALSE(half.error());
  const BroadcastOutcome never = cluster.client.broadcast(cluster.peers, "append", payload, {.quorum = 6}).get();
  EXPECT_FALSE(never.reached());
  EXPECT_EQ(never[0]->error().code(), Code::invalid_argument);
  ASSERT_TRUE(never.error());
  EXPECT_EQ(never.error()->to_string(), "invalid_argument: the quorum (6) is larger than the number of peers (5)");
  EXPECT_EQ(cluster.runs, 0);
  const BroadcastOutcome nobody = cluster.client.broadcast({}, "append", payload).get();
  EXPECT_TRUE(nobody.reached());
  EXPECT_FALSE(nobody.error());
  const BroadcastOutcome some_of_none = cluster.client.broadcast({}, "append", payload, {.quorum = 1}).get();
  EXPECT_FALSE(some_of_none.reached());
  ASSERT_TRUE(some_of_none.error());
  EXPECT_EQ(some_of_none.error()->code(), Code::invalid_argument);
}

TEST(Broadcast, WhoeverEndsAfterAFailedBroadcastIsReported) {
  Cluster cluster(5);
  std::vector<Peer> peers{cluster.client.peer("no address")};
  peers.insert(peers.end(), cluster.peers.begin(), cluster.peers.end());
  const Payload payload = payload_of(cluster.client, cluster.text);
  std::atomic<int> late{0};
  const BroadcastOutcome outcome =
      cluster.client
          .broadcast(peers, "hold", payload,
                     {.report = {.function = [](void* context, std::size_t,
                                                const Result<Reply>&) { ++*static_cast<std::atomic<int>*>(context); },
                                 .context = &late}})
          .get();
  EXPECT_FALSE(outcome.reached()) << "one of them has no address";
  std::size_t ended = 0;
  for (const auto& result : outcome.results()) ended += result.has_value();
  await([&] { return cluster.holding() == 2; });
  cluster.let_go();
  await([&] { return late + ended == 6; });
}

TEST(Broadcast, ADeadPeerHoldsThePayloadNoLongerThanItsDeadline) {
  Cluster cluster(3);
  {
    const Pool gone = open(server_config(1));
    cluster.peers.push_back(cluster.client.peer(gone.listen_address()));
  }
  cluster.peers.push_back(cluster.client.peer("no address"));
  const Payload payload = payload_of(cluster.client, cluster.text);
  const BroadcastOutcome outcome =
      cluster.client.broadcast(cluster.peers, "append", payload, {.quorum = 3, .deadline = 500ms}).get();
  EXPECT_TRUE(outcome.reached());
  ASSERT_TRUE(outcome[4]);
  EXPECT_EQ((*outcome[4]).error().code(), Code::invalid_argument);
  await([&] { return payload.sealed()->references.load() == 1; });
}

// A socket that is there and whose owner never reads it.
class DeafSocket {
 public:
  DeafSocket() : socket_(::socket(AF_INET, SOCK_DGRAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    socklen_t length = sizeof address;
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  DeafSocket(const DeafSocket&) = delete;
  DeafSocket& operator=(const DeafSocket&) = delete;
  ~DeafSocket() { ::close(socket_); }
  const std::string& address() const { return address_; }

 private:
  int socket_;
  std::string address_;
};

// One peer says nothing at all, one is there and never has memory. The others are served meanwhile; these two time out,
// and only then is the payload nobody's any more.
TEST(Broadcast, ASilentAndAStuckPeerHoldThePayloadUntilTheyTimeOut) {
  Cluster cluster(3);
  const DeafSocket deaf;
  cluster.peers.push_back(cluster.client.peer(deaf.address()));
  Config full = server_config(1);
  full.limits.message_bytes = full.limits.large_request_bytes = full.limits.large_bytes_per_peer = kMiB;
  Pool stuck = open(full);
  std::optional<Request> kept;  // and with it all memory for large requests
  ASSERT_TRUE(stuck.serve("keep", [&](Request request) {
    kept.emplace(std::move(request));
    return Reply{"kept"};
  }));
  std::atomic<int> ran{0};
  ASSERT_TRUE(stuck.serve("append", [&](Request) {
    ++ran;
    return Reply{"at last"};
  }));
  cluster.peers.push_back(cluster.client.peer(stuck.listen_address()));
  ASSERT_EQ(testing::text_of(cluster.peers.back().unary("keep", cluster.text, {.deadline = 60s}).get()), "kept");

  struct Late {
    std::mutex mutex;
    std::vector<Code> codes;
  } late;
  const StragglerReport report{.function =
                                   [](void* context, std::size_t peer, const Result<Reply>& result) {
                                     auto& to = *static_cast<Late*>(context);
                                     EXPECT_GE(peer, 3u);
                                     std::lock_guard lock(to.mutex);
                                     to.codes.push_back(result ? Code{} : result.error().code());
                                   },
                               .context = &late};
  const Payload payload = payload_of(cluster.client, cluster.text);
  const auto begin = std::chrono::steady_clock::now();
  const BroadcastOutcome outcome =
      cluster.client.broadcast(cluster.peers, "append", payload, {.quorum = 3, .deadline = 6s, .report = report}).get();
  EXPECT_TRUE(outcome.reached());
  EXPECT_EQ(cluster.runs, 3);
  await([&] { return payload.sealed()->references.load() == 1; });
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, 5900ms) << "the stuck one was given up before its time";
  EXPECT_LT(took, 60s) << "something else ended them";
  await([&] {
    std::lock_guard lock(late.mutex);
    return late.codes.size() == 2;
  });
  for (const Code code : late.codes) EXPECT_TRUE(code == Code::timeout || code == Code::peer_failed) << name(code);
  EXPECT_EQ(ran, 0);
}

TEST(Broadcast, ADroppedOneIsCancelled) {
  Cluster cluster(3);
  const Payload payload = payload_of(cluster.client, cluster.text);
  {
    const auto wait = [&]() -> Task<void> {
      auto outcome = co_await cluster.client.broadcast(cluster.peers, "hold", payload);
      ADD_FAILURE() << "one of them never answers";
    };
    Task<void> dropped = wait();
    dropped.start();
    await([&] { return cluster.holding() == 1; });
  }
  await([&] {
    std::lock_guard lock(cluster.mutex);
    return cluster.held[0].cancelled();
  });
  cluster.let_go();
}

TEST(Broadcast, ClosingThePoolCompletesIt) {
  Cluster cluster(3);
  const Payload payload = payload_of(cluster.client, cluster.text);
  std::promise<bool> reached;
  std::thread waiter(
      [&] { reached.set_value(cluster.client.broadcast(cluster.peers, "hold", payload).get().reached()); });
  await([&] { return cluster.holding() == 1; });
  EXPECT_FALSE(cluster.client.close(0s));
  EXPECT_FALSE(reached.get_future().get());
  waiter.join();
  cluster.let_go();
}

TEST(Broadcast, ThePayloadGoesIntoIndependentCallsAtTheSameTime) {
  Cluster cluster(3);
  const Payload payload = payload_of(cluster.client, cluster.text);
  std::string memory(kMiB, '\0');
  ASSERT_TRUE(cluster.servers[0].place("memory", Placement::memory(testing::bytes_of(memory))));
  const std::uint64_t before = buffer::work.sealed_bytes.load();
  std::vector<Call> calls;
  for (int i = 0; i < 8; ++i) {
    const auto peer = static_cast<std::size_t>(i % 3);
    calls.push_back(
        cluster.peers[peer].unary("append", payload, {.priority = i, .deadline = std::chrono::seconds(10 + i)}));
  }
  Call late = cluster.peers[1].unary("hold", payload, {.priority = 0, .deadline = 50ms});
  const auto task = [&]() -> Task<int> {
    auto put = co_await cluster.peers[0].put("memory", payload, {.priority = 7});
    auto outcome = co_await cluster.client.broadcast(cluster.peers, "append", payload, {.priority = 2});
    co_return put&& outcome.reached();
  };
  EXPECT_EQ(cluster.client.run(task()), 1);
  for (Call& call : calls) EXPECT_TRUE(call.get());
  const Result<Reply> timed_out = late.get();
  ASSERT_FALSE(timed_out);
  EXPECT_EQ(timed_out.error().code(), Code::timeout);
  EXPECT_EQ(buffer::work.sealed_bytes.load(), before);
  cluster.let_go();
}

}  // namespace
}  // namespace weir
