// Several engines at one port, of which the kernel picks one by the addresses of a datagram (docs/protocol.md, rule
// P-14).
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/engine_access.h"
#include "engine/engine_testing.h"
#include "engine/vouched_sources.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::TestCall;
using testing::TestEntropy;

// A client, and engines of one process at one address. `picked` is who receives what the client sends.
class Group : public Siblings {
 public:
  explicit Group(std::uint32_t workers) : random_(7) {
    EngineConfig config = testing::test_config(true, 2222);
    config.workers_at_port = workers;
    config.siblings = this;
    entropy.fill(config.incarnation);
    entropy.fill(config.cookie);
    for (std::uint32_t i = 0; i < workers; ++i) {
      config.worker = static_cast<std::uint16_t>(i);
      servers.push_back(std::make_unique<Engine>(config, entropy, nullptr, random_.next(), now));
      forwarded_.emplace_back();
      (void)servers.back()->serve(kMethod, "echo", {.run = &run, .context = this});
    }
    client = std::make_unique<Engine>(testing::test_config(false, 1111), entropy, nullptr, random_.next(), now);
    peer = client->connect(kServer).value();
  }

  bool forward(std::uint32_t worker, ByteSpan datagram, const Address& from, std::uint8_t, Standing standing) override {
    const std::size_t room = standing == Standing::member ? kRoom : kRoom / 4;
    if (worker >= servers.size() || forwarded_[worker].size() >= room) return false;
    forwarded_[worker].push_back({{datagram.begin(), datagram.end()}, from});
    return true;
  }

  VouchedSources& vouched() override { return vouched_; }

  // Datagrams of nobody, for that worker and path, at the one that receives them now.
  void flood(std::uint32_t worker, int datagrams) {
    for (int i = 0; i < datagrams; ++i) {
      std::vector<std::byte> sealed(64);
      const PathNumbers numbers(16, static_cast<std::uint32_t>(servers.size()), worker);
      wire::encode({.type = wire::PacketType::sealed, .path = numbers.make({0, 1})}, sealed.data());
      servers[picked]->on_datagram(sealed, Address::v4(0x0a0000ff, static_cast<std::uint16_t>(i)), 0, nullptr, now);
    }
  }

  void call(TestCall& call) {
    call.method = kMethod;
    call.peer = peer;
    call.deadline = now + std::chrono::seconds(2);
    call.bytes = 1;
    client->submit(call, now);
  }

  bool run_until(auto&& done) {
    for (int i = 0; i < 100'000; ++i) {
      if (done()) return true;
      step();
    }
    return done();
  }

  void step() {
    turn(*client, nullptr);
    for (std::size_t i = 0; i < servers.size(); ++i) turn(*servers[i], &forwarded_[i]);
    Instant next = client->next_deadline();
    for (const auto& server : servers) next = earliest(next, server->next_deadline());
    if (client->has_work() || !to_client_.empty() || !to_server_.empty()) next = now;
    for (std::size_t i = 0; i < servers.size(); ++i) {
      if (servers[i]->has_work() || !forwarded_[i].empty()) next = now;
    }
    now = std::max(now + std::chrono::microseconds(10), earliest(next, now + std::chrono::microseconds(100)));
  }

  Counters counters() const {
    Counters sum;
    for (const auto& server : servers) sum += server->events().counters;
    return sum;
  }

  static constexpr std::uint64_t kMethod = 4'711;
  static constexpr std::size_t kRoom = 16;
  const Address kServer = Address::v4(0x0a000002, 2222);
  Address client_address = Address::v4(0x0a000001, 1111);
  std::size_t picked = 0;
  int handled = 0;
  Instant now{1'000'000'000};
  TestEntropy entropy{3};
  std::vector<std::unique_ptr<Engine>> servers;
  std::unique_ptr<Engine> client;
  std::uint32_t peer = 0;

 private:
  struct Datagram {
    std::vector<std::byte> bytes;
    Address from;
  };

  static void run(void* context, transfer::IncomingTransfer& request, Instant now) {
    auto& group = *static_cast<Group*>(context);
    ++group.handled;
    for (const auto& server : group.servers) {
      bool is_here = false;
      EngineAccess::core(*server).incoming.for_each([&](auto& each) { is_here |= &each == &request; });
      if (is_here) server->reply(request, {}, {}, now);
    }
  }

  void turn(Engine& engine, std::deque<Datagram>* forwarded) {
    std::deque<Datagram> taken;  // until what they carry was delivered
    std::deque<Datagram>& arrived = forwarded == nullptr ? to_client_ : to_server_;
    if (forwarded == nullptr || &engine == servers[picked].get()) taken.swap(arrived);
    const std::size_t from_wire = taken.size();
    if (forwarded != nullptr) {
      for (; !forwarded->empty(); forwarded->pop_front()) taken.push_back(std::move(forwarded->front()));
    }
    for (std::size_t i = 0; i < taken.size(); ++i) {
      if (i < from_wire) {
        engine.on_datagram(taken[i].bytes, taken[i].from, 0, nullptr, now);
      } else {
        engine.on_forwarded(taken[i].bytes, taken[i].from, 0, now);
      }
    }
    engine.on_timeout(now);
    engine.deliver(now);
    std::vector<Train> trains;
    engine.collect(trains, now);
    for (const Train& train : trains) {
      for (std::size_t at = 0; at < train.bytes.size(); at += train.segment_size) {
        const MutableByteSpan one =
            train.bytes.subspan(at, std::min<std::size_t>(train.segment_size, train.bytes.size() - at));
        if (train.to == kServer) to_server_.push_back({{one.begin(), one.end()}, client_address});
        if (train.to == client_address) to_client_.push_back({{one.begin(), one.end()}, kServer});
      }
    }
    engine.deliver(now);
  }

  VouchedSources vouched_{5};
  Random random_;
  std::deque<Datagram> to_client_, to_server_;
  std::vector<std::deque<Datagram>> forwarded_;
};

TEST(Forwarding, AFirstPacketThatReachesAnotherWorkerThanItsHelloMakesThePathAtTheRightOne) {
  Group group(2);
  TestCall call;
  group.call(call);
  // The hello is answered by worker 0; then the kernel knows of a second socket, and picks that.
  ASSERT_TRUE(group.run_until([&] { return group.servers[0]->events().counters.packets_sent != 0; }));
  group.picked = 1;
  const Instant begin = group.now;
  ASSERT_TRUE(group.run_until([&] { return call.completions == 1; }));
  EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_LT(group.now - begin, std::chrono::milliseconds(5));
  EXPECT_EQ(group.servers[0]->census().paths, 1u);
  EXPECT_EQ(group.servers[1]->census().paths, 0u);
  EXPECT_GT(group.servers[1]->events().counters.datagrams_forwarded, 0u);
}

TEST(Forwarding, APathIsServedByItsWorkerWhoeverReceivesItsPackets) {
  Group group(4);
  group.picked = 2;
  TestCall first;
  group.call(first);
  ASSERT_TRUE(group.run_until([&] { return first.completions == 1; }));
  for (std::size_t i = 0; i < 8; ++i) {
    // A NAT gave the caller another port, and the kernel another socket.
    group.client_address.port = static_cast<std::uint16_t>(3'000 + i);
    group.picked = i % 4;
    TestCall call;
    group.call(call);
    ASSERT_TRUE(group.run_until([&] { return call.completions == 1; }));
    EXPECT_FALSE(call.failed) << call.reply;
    for (int step = 0; step < 200; ++step) group.step();
  }
  EXPECT_EQ(group.handled, 9);
  EXPECT_EQ(group.servers[2]->census().paths, 1u);
  EXPECT_EQ(group.servers[2]->events().counters.addresses_changed, 8u);
  const Counters counters = group.counters();
  EXPECT_GT(counters.datagrams_forwarded, 0u);
  EXPECT_EQ(counters.handshakes_completed, 1u);
}

// Probes that go unanswered make a caller say hello once more. Whichever worker answers, it is the same process.
TEST(Forwarding, AHelloThatAnotherWorkerAnswersIsNoRestart) {
  Group group(2);
  TestCall first;
  group.call(first);
  ASSERT_TRUE(group.run_until([&] { return first.completions == 1; }));
  Core& core = EngineAccess::core(*group.client);
  group.picked = 1;
  core.start_hello(*core.peers.at(group.peer), group.now);
  TestCall second;
  group.call(second);
  ASSERT_TRUE(group.run_until([&] { return second.completions == 1; }));
  EXPECT_FALSE(second.failed) << second.reply;
  for (int step = 0; step < 200; ++step) group.step();
  EXPECT_EQ(group.servers[0]->census().paths, 1u);
  EXPECT_EQ(group.servers[1]->census().paths, 0u);
}

TEST(Forwarding, StrangersHaveOnlySoManyDatagramsForwardedAndNoneTwice) {
  Group group(4);
  // Sealed packets of nobody, for paths of every worker and of workers that there are not.
  std::vector<std::byte> datagram(64);
  const std::uint64_t sent = 4'000;
  for (std::uint64_t i = 0; i < sent; ++i) {
    wire::encode({.type = wire::PacketType::sealed, .path = static_cast<std::uint32_t>(i * 0x9e3779b1u)},
                 datagram.data());
    std::vector<std::byte> copy = datagram;
    group.servers[0]->on_datagram(copy, group.client_address, 0, nullptr, group.now);
  }
  Counters counters = group.servers[0]->events().counters;
  EXPECT_LE(counters.datagrams_forwarded, std::uint64_t{Core::kStrangerForwardsPerMillisecond});
  EXPECT_LE(counters.datagrams_forwarded, 3 * Group::kRoom);
  EXPECT_GT(counters.forwards_dropped, sent / 2);
  for (int step = 0; step < 10; ++step) group.step();
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(group.servers[i]->events().counters.datagrams_forwarded, 0u) << "forwarded twice";
  }
  EXPECT_EQ(group.counters().packets_received, sent);
}

// Before each step strangers send as much as one worker forwards in a millisecond, in front of what members sent.
TEST(Forwarding, AFloodOfStrangersKeepsNoMemberFromOpeningAPath) {
  Group group(2);
  TestCall call;
  group.call(call);
  ASSERT_TRUE(group.run_until([&] { return group.servers[0]->events().counters.packets_sent != 0; }));
  group.picked = 1;
  const Instant begin = group.now;
  ASSERT_TRUE(group.run_until([&] {
    group.flood(0, 200);
    return call.completions == 1 || group.now - begin > std::chrono::milliseconds(5);
  }));
  EXPECT_EQ(call.completions, 1);
  EXPECT_FALSE(call.failed) << call.reply;
}

TEST(Forwarding, AFloodOfStrangersKeepsNoMemberFromBeingServed) {
  Group group(2);
  TestCall first;
  group.call(first);
  ASSERT_TRUE(group.run_until([&] { return first.completions == 1; }));
  group.client_address.port = 3'000;
  group.picked = 1;
  TestCall second;  // the other worker learns of this address
  group.call(second);
  ASSERT_TRUE(group.run_until([&] { return second.completions == 1; }));
  for (int i = 0; i < 20; ++i) {
    TestCall call;
    group.call(call);
    const Instant begin = group.now;
    ASSERT_TRUE(group.run_until([&] {
      group.flood(0, 200);
      return call.completions == 1 || group.now - begin > std::chrono::milliseconds(2);
    }));
    ASSERT_EQ(call.completions, 1);
    EXPECT_FALSE(call.failed) << call.reply;
  }
}

TEST(VouchedSources, KnowsPathAndAddressTogether) {
  VouchedSources vouched(7);
  const Address from = Address::v4(0x0a000001, 1111);
  EXPECT_FALSE(vouched.contains(3, from));
  vouched.add(3, from);
  EXPECT_TRUE(vouched.contains(3, from));
  EXPECT_FALSE(vouched.contains(4, from));
  EXPECT_FALSE(vouched.contains(3, Address::v4(0x0a000001, 1112)));
  EXPECT_FALSE(vouched.contains(3, Address::v4(0x0a000002, 1111)));
  // There may be many; none is taken for another.
  for (std::uint32_t i = 0; i < 10'000; ++i) vouched.add(i, from);
  EXPECT_TRUE(vouched.contains(9'999, from));
  for (std::uint32_t i = 10'000; i < 20'000; ++i) EXPECT_FALSE(vouched.contains(i, from));
}

// A caller can send from as many addresses as it likes.
TEST(VouchedSources, HoldsOneAddressForEachPath) {
  VouchedSources vouched(7);
  const auto address = [](std::uint32_t i) { return Address::v4(0x0a000000 + i, 1111); };
  for (std::uint32_t path = 0; path < 300; ++path) vouched.add(path, address(path));
  const auto known = [&] {
    int count = 0;
    for (std::uint32_t path = 0; path < 300; ++path) count += vouched.contains(path, address(path));
    return count;
  };
  const int before = known();
  EXPECT_GT(before, 250);
  ASSERT_TRUE(vouched.contains(299, address(299)));
  for (std::uint32_t i = 1'000; i < 20'000; ++i) vouched.add(299, address(i));
  EXPECT_EQ(known(), before - 1);
  EXPECT_TRUE(vouched.contains(299, address(19'999)));
  EXPECT_FALSE(vouched.contains(299, address(19'998)));
}

// Path numbers that say the same of everybody but the worker, and none that names no path.
TEST(PathNumbers, NameTheWorkerTheIndexAndAGeneration) {
  for (const std::uint32_t workers : {1u, 2u, 3u, 4u, 1024u}) {
    for (const std::uint32_t paths : {1u, 64u, 16u * 1024, 1u << 20}) {
      const std::uint32_t worker = workers - 1;
      const PathNumbers numbers(paths, workers, worker);
      std::set<std::uint32_t> given;
      for (std::uint64_t generation = 1; generation < 7; generation += 2) {
        for (const std::uint32_t index : {0u, paths / 2, paths - 1}) {
          const std::uint32_t number = numbers.make({index, generation});
          EXPECT_TRUE(numbers.is_own(number));
          EXPECT_EQ(numbers.worker_of(number), worker);
          EXPECT_EQ(numbers.index_of(number), index);
          EXPECT_NE(number, kNoPath);
          given.insert(number);
        }
      }
      EXPECT_GE(given.size(), 3u);
    }
  }
}

TEST(PathNumbers, OfOnesAloneAreNeverGiven) {
  const PathNumbers numbers(1u << 20, 1024, 1023);
  for (std::uint64_t generation = 0; generation < 64; ++generation) {
    EXPECT_NE(numbers.make({(1u << 20) - 1, generation}), kNoPath);
  }
}

}  // namespace
}  // namespace weir::engine
