// Memory of payloads that were moved into their calls: it goes back as soon as every peer that is alive has it.
#include <algorithm>
#include <atomic>
#include <future>
#include <optional>
#include <utility>
#include <vector>

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
using testing::server_config;

// A client whose buffers are all but used up by one payload of many pieces, and a server that takes no step unless it
// is told to.
struct ShortOfMemory {
  ShortOfMemory() {
    Config config = client_config(1);
    config.limits.buffer_bytes = 20 * kMiB;
    config.timeouts.silence = 60s;  // the slow one is not given up before its deadline, however busy this machine is
    client.emplace(open(config));
    for (Pool& server : servers) {
      EXPECT_TRUE(server.serve_inline("append", [this](InlineRequest& request) {
        EXPECT_TRUE(is_same(request.text(), text));
        ++runs;
        request.reply("appended");
      }));
      peers.push_back(client->peer(server.listen_address()));
    }
    peers.push_back(client->peer(slow.listen_address()));
    EXPECT_TRUE(slow.serve_inline("append", [this](InlineRequest& request) {
      EXPECT_TRUE(is_same(request.text(), text));
      ++slow_runs;
      request.reply("appended");
    }));
    std::atomic<bool> is_ready{false};
    peers.back().ready().then([&](Result<Reply>&& result) {
      EXPECT_TRUE(result);
      is_ready = true;
    });
    await([&] {
      slow.poll();
      return is_ready.load();
    });
  }
  Payload make() const {
    Buffer room = client->allocate(text.size(), {.piece_bytes = kMiB}).get().value();
    std::size_t at = 0;
    for (const auto& span : room.spans()) {
      std::copy_n(reinterpret_cast<const std::byte*>(text.data()) + at, span.size(), span.data());
      at += span.size();
    }
    return client->seal(std::move(room));
  }
  // On another thread: one that waits turns the loops that it has polled, and with them the slow server.
  BroadcastOutcome broadcast(Payload payload, std::chrono::nanoseconds deadline) {
    return std::async(std::launch::async,
                      [&] {
                        return client
                            ->broadcast(peers, "append", std::move(payload), {.quorum = 2, .deadline = deadline})
                            .get();
                      })
        .get();
  }
  // Whether so much of the client's memory for buffers is free.
  bool has(std::size_t bytes) const { return client->allocate(bytes, {.wait = false}).get().has_value(); }

  const std::string text = pattern(16 * kMiB);
  std::atomic<int> runs{0}, slow_runs{0};
  std::vector<Pool> servers = [] {
    std::vector<Pool> made;
    for (int i = 0; i < 2; ++i) made.push_back(open(server_config(1)));
    return made;
  }();
  Pool slow = open(server_config(0));
  std::optional<Pool> client;
  std::vector<Peer> peers;
};

TEST(Broadcast, RangesAreFreedAsSoonAsEveryLivePeerHasThem) {
  ShortOfMemory world;
  Payload payload = world.make();
  ASSERT_FALSE(world.has(8 * kMiB));
  EXPECT_TRUE(world.broadcast(std::move(payload), std::chrono::minutes(2)).reached());
  EXPECT_EQ(world.runs, 2);
  EXPECT_FALSE(world.has(8 * kMiB)) << "one of them has nothing yet";
  await([&] {
    world.slow.poll();
    return world.has(8 * kMiB);
  });
  EXPECT_EQ(world.slow_runs, 0) << "it has no more than a part of it";
  await([&] {
    world.slow.poll();
    return world.has(20 * kMiB - 100'000);
  });
  await([&] {
    world.slow.poll();
    return world.slow_runs == 1;
  });
}

TEST(Broadcast, AStuckPeerHoldsRangesUntilItTimesOutAndWhoWaitsGetsThemThen) {
  ShortOfMemory world;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(world.broadcast(world.make(), 3s).reached());
  EXPECT_FALSE(world.has(8 * kMiB));
  EXPECT_TRUE(
      std::async(std::launch::async, [&] { return world.client->allocate(16 * kMiB).get().has_value(); }).get());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 2900ms) << "the stuck one was given up before its time";
  EXPECT_EQ(world.slow_runs, 0);
}

TEST(Broadcast, WhoKeepsThePayloadKeepsAllOfIt) {
  ShortOfMemory world;
  const Payload payload = world.make();
  world.peers.pop_back();
  for (int i = 1; i <= 2; ++i) {
    EXPECT_TRUE(world.client->broadcast(world.peers, "append", payload).get().reached());
    EXPECT_EQ(world.runs, 2 * i);
    EXPECT_FALSE(world.has(8 * kMiB));
  }
}

TEST(Broadcast, APutFreesWhatIsAcknowledged) {
  ShortOfMemory world;
  std::string memory(world.text.size(), '\0');
  ASSERT_TRUE(world.servers[0].place("memory", Placement::memory(testing::bytes_of(memory))));
  struct Seen {
    const ShortOfMemory* world;
    bool freed = false;
  } seen{&world};
  const PutOptions options{.progress = {.function =
                                            [](void* context, std::uint64_t acknowledged, std::uint64_t bytes) {
                                              auto& to = *static_cast<Seen*>(context);
                                              if (acknowledged < bytes) to.freed |= to.world->has(8 * kMiB);
                                            },
                                        .context = &seen}};
  const auto report = world.peers[0].put("memory", world.make(), options).get();
  ASSERT_TRUE(report) << testing::error_of(report);
  EXPECT_TRUE(seen.freed);
  EXPECT_TRUE(is_same(memory, world.text));
}

}  // namespace
}  // namespace weir
