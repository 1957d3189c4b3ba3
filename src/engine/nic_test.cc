// Engines that share a NIC send no faster together than it drains, most urgent paths first, and nobody is left out.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/engine_access.h"
#include "engine/engine_testing.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::test_config;
using testing::TestCall;
using testing::TestEntropy;
using namespace std::chrono_literals;

constexpr std::uint64_t kRate = 125'000'000;  // 1 Gbit/s
constexpr std::uint64_t kMethod = 77;
constexpr Instant kStart{1'000'000'000};

// What has left one engine in one train.
struct Departure {
  Instant at;
  std::size_t engine;
  Address to;
  std::uint64_t bytes;  // with the headers below UDP's payload
  std::size_t datagrams;
  std::size_t largest;
};

// Any number of engines and the wires between them.
class Engines {
 public:
  Engine& add(bool accepts, const std::shared_ptr<schedule::NicShaper>& nic) {
    const auto number = static_cast<std::uint16_t>(engines_.size());
    EngineConfig config = test_config(accepts, static_cast<std::uint16_t>(1'000 + number));
    config.memory = &memory;
    config.datagram_bytes = 1'472;
    config.nic = nic;
    // In one network paths share a model of their link, and wait for each other there, too.
    addresses.push_back(Address::v4(0x0a000001u + (in_one_network ? 1u : 0x10000u) * number, config.port));
    engines_.push_back(std::make_unique<Engine>(config, entropy_, nullptr, number + 1, now));
    if (accepts) {
      Handler handler{.run =
                          [](void* context, transfer::IncomingTransfer& request, Instant at) {
                            auto& engine = *static_cast<Engine*>(context);
                            buffer::Landing* const landing = request.landing();
                            EXPECT_TRUE(landing == nullptr || buffer::open_all(*landing));
                            engine.reply(request, {}, {}, at);
                          },
                      .context = engines_.back().get()};
      EXPECT_TRUE(engines_.back()->serve(kMethod, "take", handler));
    }
    return *engines_.back();
  }

  void call(std::size_t from, std::size_t to, TestCall& call, std::size_t bytes, std::uint8_t priority = 3) {
    Engine& engine = *engines_[from];
    call.method = kMethod;
    call.peer = engine.connect(addresses[to]).value();
    call.deadline = now + 60s;
    call.priority = priority;
    call.bytes = static_cast<std::uint32_t>(bytes);
    if (bytes > 16'384) {
      crypto::KeyBytes key;
      entropy_.fill(key);
      const std::string text(bytes, 'x');
      call.is_large = true;
      call.block =
          transfer::load_cargo(engine.blocks(), buffer::seal(memory, weir::as_bytes(text), key, buffer::thread_key()),
                               {.bytes = bytes}, Pattern::unary, {});
      call.bytes = wire::kCargoBytes;
    } else if (bytes > TestCall::kInlineBytes) {
      call.block = engine.blocks().acquire(call.bytes);
    }
    engine.submit(call, now);
  }

  template <class Done>
  bool run_until(Done&& done, int most = 1'000'000) {
    for (; most != 0 && !done(); --most) step();
    return done();
  }
  void run_for(Duration duration) {
    const Instant end = now + duration;
    run_until([&] { return now >= end; });
  }
  void step() {
    for (std::size_t i = 0; i < engines_.size(); ++i) turn(i);
    Instant next = wire_.empty() ? now + 1s : wire_.front().at;
    for (const auto& engine : engines_) next = earliest(next, engine->has_work() ? now : engine->next_deadline());
    turns_at_once = next > now ? 0 : turns_at_once + 1;
    ASSERT_LT(turns_at_once, 1'000) << "some engine spins";
    now = std::max(now, next);
  }

  // The largest excess over the rate in any interval, of packets that elicit acknowledgements.
  std::int64_t largest_burst(std::initializer_list<std::size_t> of, std::uint64_t rate) const {
    std::int64_t total = 0, least = 0, largest = 0;
    for (const Departure& each : departures) {
      if (std::ranges::find(of, each.engine) == of.end() || each.largest <= kSmallPacket) continue;
      const auto drained =
          static_cast<std::int64_t>(static_cast<unsigned __int128>((each.at - kStart).count()) * rate / 1'000'000'000u);
      least = std::min(least, total - drained);
      total += static_cast<std::int64_t>(each.bytes);
      largest = std::max(largest, total - drained - least);
    }
    return largest;
  }

  static constexpr std::size_t kSmallPacket = 100;  // acknowledgements

  bool in_one_network = false;
  Instant now = kStart;
  Duration latency = 20us;
  buffer::HeapMemory memory{std::uint64_t{1} << 34};
  std::vector<Address> addresses;
  std::vector<Departure> departures;
  int turns_at_once = 0;

 private:
  struct InFlight {
    Instant at;
    std::size_t to;
    Address from;
    std::vector<std::byte> bytes;
  };

  void turn(std::size_t number) {
    Engine& engine = *engines_[number];
    std::deque<InFlight> mine;
    std::erase_if(wire_, [&](InFlight& each) {
      if (each.to != number || each.at > now) return false;
      mine.push_back(std::move(each));
      return true;
    });
    engine.on_timeout(now);
    for (InFlight& each : mine) engine.on_datagram(each.bytes, each.from, 0, nullptr, now);
    engine.deliver(now);
    if (!engine.has_work()) return;  // as a worker does: no turn of sending without work
    std::vector<Train> trains;
    engine.collect(trains, now);
    for (const Train& train : trains) {
      Departure departure{.at = now, .engine = number, .to = train.to};
      const auto send = [&](std::vector<std::byte> bytes) {
        departure.bytes += bytes.size() + NicTurns::header_bytes(true);
        departure.largest = std::max(departure.largest, bytes.size());
        ++departure.datagrams;
        const auto to = std::ranges::find(addresses, train.to) - addresses.begin();
        wire_.push_back({now + latency, static_cast<std::size_t>(to), addresses[number], std::move(bytes)});
      };
      for (std::size_t at = 0; at < train.bytes.size(); at += train.segment_size) {
        const auto part = train.bytes.subspan(at, std::min<std::size_t>(train.segment_size, train.bytes.size() - at));
        send({part.begin(), part.end()});
      }
      for (const Segment& gathered : train.segments) {
        std::vector<std::byte> both(gathered.head.begin(), gathered.head.end());
        both.insert(both.end(), gathered.body.begin(), gathered.body.end());
        send(std::move(both));
      }
      departures.push_back(departure);
    }
    engine.deliver(now);
  }

  TestEntropy entropy_{1};
  std::vector<std::unique_ptr<Engine>> engines_;
  std::deque<InFlight> wire_;
};

std::shared_ptr<schedule::NicShaper> make_nic(std::uint64_t rate) {
  return std::make_shared<schedule::NicShaper>(rate, kStart);
}

bool are_done(const std::vector<TestCall>& calls) {
  return std::ranges::all_of(calls, [](const TestCall& call) { return call.completions == 1; });
}

TEST(Nic, EnginesThatShareOneSendNoFasterThanItDrains) {
  Engines engines;
  const auto nic = make_nic(kRate);
  Engine& one = engines.add(false, nic);
  Engine& other = engines.add(false, nic);
  for (int i = 0; i < 4; ++i) engines.add(true, nullptr);
  std::vector<TestCall> calls(4);
  for (std::size_t i = 0; i < 4; ++i) engines.call(i % 2, 2 + i, calls[i], 4u << 20);
  ASSERT_TRUE(engines.run_until(
      [&] { return std::ranges::any_of(calls, [](const TestCall& call) { return call.completions == 1; }); }));
  std::uint64_t sent[2] = {};
  std::size_t datagrams = 0;
  for (const Departure& each : engines.departures) {
    if (each.engine < 2) sent[each.engine] += each.bytes;
    if (each.engine < 2) datagrams = std::max(datagrams, each.datagrams);
  }
  EXPECT_NEAR(static_cast<double>(sent[0]) / static_cast<double>(sent[0] + sent[1]), 0.5, 0.05);
  const double seconds = std::chrono::duration<double>(engines.now - kStart).count();
  EXPECT_GE(static_cast<double>(sent[0] + sent[1]), 0.95 * kRate * seconds) << "the NIC is used";
  ASSERT_TRUE(engines.run_until([&] { return are_done(calls); }));
  for (const TestCall& call : calls) EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_LE(engines.largest_burst({0, 1}, kRate), static_cast<std::int64_t>(nic->depth()) + 2);
  EXPECT_GE(datagrams, 8u) << "in trains";
  for (Engine* engine : {&one, &other}) {
    EXPECT_GT(engine->events().counters.nic_waits, 0u);
    EXPECT_GT(engine->events().counters.nic_wait_ns, 0.8 * 1e9 * seconds);
    EXPECT_EQ(engine->events().counters.packets_lost, 0u);
  }
}

TEST(Nic, OneWithoutARateIsNotWaitedFor) {
  Engines engines;
  Engine& one = engines.add(false, nullptr);
  engines.add(true, nullptr);
  std::vector<TestCall> calls(1);
  engines.call(0, 1, calls[0], 4u << 20);
  ASSERT_TRUE(engines.run_until([&] { return are_done(calls); }));
  EXPECT_GT(engines.largest_burst({0}, kRate), 100'000);
  EXPECT_EQ(one.events().counters.nic_waits, 0u);
  EXPECT_EQ(one.events().counters.nic_wait_ns, 0u);
}

// One packet is more than the bucket holds.
TEST(Nic, ASlowOneSendsPacketByPacket) {
  constexpr std::uint64_t kSlow = 1'250'000;  // 10 Mbit/s
  Engines engines;
  engines.add(false, make_nic(kSlow));
  for (int i = 0; i < 3; ++i) engines.add(true, nullptr);
  std::vector<TestCall> calls(30);
  for (std::size_t i = 0; i < calls.size(); ++i) engines.call(0, 1 + i % 3, calls[i], 4'000);
  ASSERT_TRUE(engines.run_until([&] { return are_done(calls); }));
  for (const TestCall& call : calls) EXPECT_FALSE(call.failed) << call.reply;
  EXPECT_LE(engines.largest_burst({0}, kSlow), 1'472 + 66 + 2);
  const double ideal = 30 * 4'200.0 / kSlow;
  EXPECT_LE(std::chrono::duration<double>(engines.now - kStart).count(), 1.3 * ideal);
}

TEST(Nic, TheMostUrgentPathGoesFirst) {
  constexpr std::uint64_t kSlow = 12'500'000;  // 100 Mbit/s
  Engines engines;
  const auto nic = make_nic(kSlow);
  engines.add(false, nic);
  for (int i = 0; i < 9; ++i) engines.add(true, nullptr);
  for (std::size_t i = 1; i <= 9; ++i) {  // the MTU is found, so that paths differ in nothing
    std::vector<TestCall> first(1);
    engines.call(0, i, first[0], 4'000);
    ASSERT_TRUE(engines.run_until([&] { return are_done(first); }));
  }
  engines.run_for(100ms);
  std::vector<TestCall> bulk(8);
  for (std::size_t i = 0; i < 8; ++i) engines.call(0, 1 + i, bulk[i], 1u << 20, 7);
  engines.run_for(50ms);
  std::vector<std::uint64_t> before;
  for (int i = 0; i < 20; ++i) {
    engines.run_for(3ms);
    engines.departures.clear();
    std::vector<TestCall> urgent(1);
    engines.call(0, 9, urgent[0], 100, 0);
    ASSERT_TRUE(engines.run_until([&] { return are_done(urgent); }));
    std::uint64_t bytes = 0;
    for (const Departure& each : engines.departures) {
      if (each.to == engines.addresses[9]) break;
      if (each.engine == 0) bytes += each.bytes;
    }
    before.push_back(bytes);
  }
  EXPECT_LE(std::ranges::max(before), 2 * (1'472 + 66)) << "what was sent before each urgent call, at most";
  ASSERT_TRUE(engines.run_until([&] { return are_done(bulk); }));
}

// Eight paths of one level: after any time they have sent alike.
class NicTurnsOfPaths : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Networks, NicTurnsOfPaths, ::testing::Values(false, true),
                         [](const auto& each) { return each.param ? "OneNetwork" : "ManyNetworks"; });

TEST_P(NicTurnsOfPaths, AreAlike) {
  Engines engines;
  engines.in_one_network = GetParam();
  engines.add(false, make_nic(kRate / 10));
  for (int i = 0; i < 8; ++i) engines.add(true, nullptr);
  std::vector<TestCall> calls(8);
  for (std::size_t i = 0; i < 8; ++i) engines.call(0, 1 + i, calls[i], 1u << 20);
  engines.run_for(300ms);
  std::vector<std::uint64_t> sent(9);
  for (const Departure& each : engines.departures) {
    const auto to = std::ranges::find(engines.addresses, each.to) - engines.addresses.begin();
    sent[static_cast<std::size_t>(to)] += each.engine == 0 ? each.bytes : 0;
  }
  const auto [least, most] = std::minmax_element(sent.begin() + 1, sent.end());
  EXPECT_GT(*least, 300'000u);
  EXPECT_LE(*most - *least, 40'000u);
  ASSERT_TRUE(engines.run_until([&] { return are_done(calls); }));
}

TEST(Nic, AcknowledgementsDoNotWait) {
  Engines engines;
  const auto nic = make_nic(kRate / 100);
  engines.add(false, nullptr);
  engines.add(true, nic);
  std::vector<TestCall> first(1);
  engines.call(0, 1, first[0], 100);
  ASSERT_TRUE(engines.run_until([&] { return are_done(first); }));
  engines.run_for(100ms);
  schedule::NicSender busy(nic);
  busy.charge(1u << 20, engines.now);  // somebody else keeps the NIC busy
  const std::uint64_t owed = nic->owed(engines.now);
  ASSERT_GT(owed, 10'000u);
  engines.departures.clear();
  TestCall call;
  engines.call(0, 1, call, 100);
  const Instant sent_at = engines.now;
  ASSERT_TRUE(engines.run_until(
      [&] { return std::ranges::any_of(engines.departures, [](const Departure& each) { return each.engine == 1; }); }));
  EXPECT_LE(engines.now - sent_at, 3ms) << "the acknowledgement";
  EXPECT_EQ(call.completions, 0) << "the reply waits";
  EXPECT_GT(nic->owed(sent_at), owed) << "it is counted all the same";
  ASSERT_TRUE(engines.run_until([&] { return call.completions == 1; }));
  EXPECT_GE(engines.now - sent_at, 9ms);
  EXPECT_FALSE(call.failed);
}

TEST(Nic, PathsMayEndWhileTheyWait) {
  Engines engines;
  const auto nic = make_nic(kRate / 100);
  Engine& client = engines.add(false, nic);
  for (int i = 0; i < 8; ++i) engines.add(true, nullptr);
  std::vector<TestCall> calls(8);
  for (std::size_t i = 0; i < 8; ++i) engines.call(0, 1 + i, calls[i], 1u << 20);
  engines.run_for(50ms);
  Core& core = EngineAccess::core(client);
  ASSERT_GT(core.nic->size(), 4u);
  client.close(engines.now);
  engines.run_for(10ms);
  EXPECT_TRUE(are_done(calls));
  EXPECT_EQ(core.nic->size(), 0u);
  EXPECT_EQ(client.census().timers, 0u);
  schedule::NicSender other(nic);
  EXPECT_TRUE(other.claim(1'000, engines.now + 100ms)) << "nothing is claimed any more, and nobody in line";
  other.settle(0, engines.now);
}

}  // namespace
}  // namespace weir::engine
