// How long memory for large messages stays with whom: a region's life, its renewal, the life of what was given ahead of
// need, and what becomes of both when others wait. In virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/large_testing.h"

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::frame_of;
using testing::Frames;
using testing::Net;
using testing::opening_of;
using testing::Puppet;
using testing::TestCall;
using transfer::IncomingTransfer;
using wire::FrameType;
using wire::Side;

std::string pattern(std::size_t bytes, std::uint64_t seed = 1) {
  Random random(seed);
  std::string text(bytes, 0);
  for (char& c : text) c = static_cast<char>(random.next());
  return text;
}

// A server and two clients.
class RegionLife : public ::testing::Test {
 protected:
  void connect(std::uint64_t request_bytes) {
    EngineConfig config = testing::test_config(true, 999);
    config.memory = &memory;
    config.limits.message_bytes = config.limits.large_request_bytes = config.limits.large_bytes_per_peer =
        request_bytes;
    server = net.add(config);
    for (int* client : {&one, &other}) {
      EngineConfig calling = testing::test_config(false, static_cast<std::uint16_t>(1'000 + (client == &one)));
      calling.memory = &memory;
      *client = net.add(calling);
    }
    net.serve_echo(server);
    net.serve(server, "take", [this](Engine& engine, IncomingTransfer& request, Instant now) {
      buffer::Landing* const landing = request.landing();
      if (landing == nullptr || !buffer::open_all(*landing)) {
        return engine.fail(request, Code::unauthenticated, "does not open", now);
      }
      taken.emplace_back(reinterpret_cast<const char*>(landing->body), landing->bytes);
      engine.reply(request, {}, as_bytes(std::string_view("taken")), now);
    });
    for (const int host : {one, other}) {
      TestCall call;
      net.call(host, server, call, "echo", "hello");
      ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
      ASSERT_FALSE(call.failed) << call.reply;
    }
    net.run_for(std::chrono::milliseconds(50));
  }
  void TearDown() override {
    net.run_for(std::chrono::hours(1));
    const Census census = net.engine(server).census();
    EXPECT_EQ(census.writers + census.arrivals + census.regions + census.regions_leaked, 0u);
    EXPECT_EQ(census.incoming + census.blocks + census.reassemblies + census.paths, 0u);
    EXPECT_EQ(census.large_bytes, 0u);
    EXPECT_EQ(memory.taken_bytes(), 0u);
  }
  buffer::Sealed* seal(std::string_view text) {
    crypto::KeyBytes key;
    net.entropy.fill(key);
    return buffer::seal(memory, as_bytes(text), key, buffer::thread_key());
  }
  void send(int from, TestCall& call, std::string_view text) {
    send(from, server, call, seal(text), std::chrono::seconds(120));
  }
  void send(int from, int to, TestCall& call, buffer::Sealed* payload, Duration deadline) {
    Engine& engine = net.engine(from);
    call.method = testing::method_id("take");
    call.peer = engine.connect(net.address(to)).value();
    call.deadline = net.now + deadline;
    call.is_large = true;
    call.block = transfer::load_cargo(engine.blocks(), payload, {.bytes = payload->bytes}, Pattern::unary, {});
    call.bytes = wire::kCargoBytes;
    engine.submit(call, net.now);
  }
  void expect_taken(int from, const std::string& text) {
    TestCall call;
    send(from, call, text);
    ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
    ASSERT_FALSE(taken.empty());
    EXPECT_TRUE(taken.back() == text);
  }
  const Counters& counters(int host) { return net.engine(host).events().counters; }
  Duration lifetime() { return net.core(server).regions.options().lifetime; }

  buffer::HeapMemory memory{std::uint64_t{1} << 32};
  Net net;
  int server = 0, one = 0, other = 0;
  std::vector<std::string> taken;
};

// Whoever writes little at a time, so that its region is never idle.
class Trickler {
 public:
  Trickler(Net& net, int host, int server) : net_(net), host_(host), server_(server), puppet_(net, host, server) {}

  bool open(wire::TransferId id, std::uint64_t bytes) {
    at_ = 0;
    region_ = 0;
    puppet_.listen();
    const wire::CargoFrame cargo{.body_bytes = bytes, .payload_bytes = bytes, .record_bytes = 61'440};
    puppet_.say(Frames().raw(testing::large_request(id, "take", opening_of(cargo))));
    net_.run_for(std::chrono::milliseconds(1));
    for (const auto& grant : testing::frames_in<wire::GrantFrame>(puppet_.listen(), FrameType::region_grant)) {
      if (grant.side == Side::request && grant.id.packed() == id.packed()) region_ = grant.region;
    }
    return region_ != 0;
  }
  // So many bytes every half second.
  void write_for(Duration duration, std::uint16_t bytes) {
    for (const Instant end = net_.now + duration; net_.now < end;) {
      const Datagram frame = frame_of(wire::SliceFrame{.region = region_, .offset = at_});
      net_.inject(server_, net_.address(host_), testing::seal_data(puppet_, frame, as_bytes(std::string(bytes, 'x'))));
      at_ = static_cast<std::uint16_t>(at_ + bytes);
      net_.turn(server_);
      net_.run_for(std::chrono::milliseconds(500));
      puppet_.listen();
      puppet_.say(Frames().ack(0, puppet_.largest_heard).ping());
    }
  }
  void cancel(wire::TransferId id) { puppet_.say(Frames().cancel(id, 0, wire::kCargoBytes)); }
  bool has_its_region() { return net_.core(server_).regions.find(region_) != nullptr; }
  std::uint32_t slot() const { return token::RegionId::unpack(region_).slot; }

 private:
  Net& net_;
  int host_, server_;
  Puppet puppet_;
  std::uint64_t region_ = 0;
  std::uint16_t at_ = 0;
};

TEST_F(RegionLife, WhoWritesATrickleLosesItsRegionToWhoWaits) {
  constexpr std::uint64_t kBytes = 1u << 20;
  connect(kBytes);
  Trickler trickler(net, other, server);
  const std::string text = pattern(kBytes, 5);
  // As long as nobody waits it may keep it; then not.
  ASSERT_TRUE(trickler.open({1, 1'001}, kBytes));
  const std::uint32_t slot = trickler.slot();
  trickler.write_for(lifetime() + std::chrono::seconds(1), 2'000);
  EXPECT_TRUE(trickler.has_its_region());
  TestCall call;
  send(one, call, text);
  trickler.write_for(lifetime() - std::chrono::seconds(2), 100);
  EXPECT_TRUE(trickler.has_its_region());
  EXPECT_EQ(call.completions, 0);
  trickler.write_for(std::chrono::seconds(2), 100);
  EXPECT_FALSE(trickler.has_its_region());
  EXPECT_EQ(call.completions, 1);
  EXPECT_FALSE(call.failed) << call.reply;
  trickler.cancel({1, 1'001});

  // The same slot, whose last owner wrote more: what that one had counts for nothing.
  ASSERT_TRUE(trickler.open({2, 1'001}, kBytes));
  EXPECT_EQ(trickler.slot(), slot);
  TestCall second;
  send(one, second, text);
  trickler.write_for(lifetime() + std::chrono::seconds(1), 100);
  EXPECT_FALSE(trickler.has_its_region());
  EXPECT_EQ(second.completions, 1);
  EXPECT_FALSE(second.failed) << second.reply;
  trickler.cancel({2, 1'001});
  EXPECT_EQ(counters(server).regions_revoked, 2u);
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_TRUE(taken[0] == text && taken[1] == text);
}

TEST_F(RegionLife, WhoIsSlowButNotATrickleKeepsItWhileOthersWait) {
  constexpr std::uint64_t kBytes = 200'000;
  connect(kBytes);
  Trickler trickler(net, other, server);
  ASSERT_TRUE(trickler.open({1, 1'001}, kBytes));
  TestCall call;
  send(one, call, pattern(kBytes, 5));
  trickler.write_for(2 * lifetime() + std::chrono::seconds(1), 700);  // a fifteenth of it in each life
  EXPECT_TRUE(trickler.has_its_region());
  EXPECT_EQ(call.completions, 0);
  trickler.cancel({1, 1'001});
  ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
  EXPECT_FALSE(call.failed) << call.reply;
}

// Memory was given ahead of need to one; then another wants all of it. At whatever moment that is, also when the first
// has begun to write into what is being taken back, both messages arrive, and neither waits for the other's silence.
TEST_F(RegionLife, TokensThatNobodyUsesAreTakenBackWhenSomebodyWaits) {
  constexpr std::uint64_t kBytes = 1u << 20;
  connect(kBytes);
  net.mtu = 1'472;
  const std::string little = pattern(60'000, 3), all = pattern(kBytes, 4);
  int refused = 0;
  for (int steps = 0; steps < 40; ++steps) {
    for (int i = 0; i < 3; ++i) expect_taken(one, little);
    net.run_for(std::chrono::milliseconds(10));
    ASSERT_GT(net.core(server).spare_tokens, 0u) << steps;
    const std::uint64_t revoked = counters(server).regions_revoked;
    const std::uint64_t writes_refused = counters(server).writes_refused;
    const std::size_t before = taken.size();
    const Instant begin = net.now;
    TestCall second, first;
    send(other, second, all);
    for (int i = 0; i < steps; ++i) net.step();
    const bool has_token = net.core(server).spare_tokens != 0;
    send(one, first, little);
    ASSERT_TRUE(net.run_until([&] { return first.completions != 0 && second.completions != 0; })) << steps;
    EXPECT_FALSE(first.failed) << steps << ": " << first.reply;
    EXPECT_FALSE(second.failed) << steps << ": " << second.reply;
    EXPECT_LT(net.now - begin, lifetime() / 4) << steps;  // no token had to expire
    EXPECT_GT(counters(server).regions_revoked + (has_token ? 1 : 0), revoked) << steps;
    refused += counters(server).writes_refused != writes_refused;
    ASSERT_EQ(taken.size(), before + 2);
    EXPECT_TRUE(taken[before] == little || taken[before] == all);
    EXPECT_TRUE(taken[before + 1] == little || taken[before + 1] == all);
    EXPECT_NE(taken[before].size(), taken[before + 1].size());
    taken.clear();
  }
  EXPECT_GT(refused, 0) << "no write was under way when its region went";
  EXPECT_GE(counters(server).regions_revoked, 30u);
}

// A token may be used for half of its life, and lives as long again at its receiver. Whenever it is used, or not any
// more, the message arrives; and nothing is left that keeps the paths open (see TearDown).
TEST_F(RegionLife, TokensAreUsedUntilHalfOfTheirLifeIsOverAndLeaveNothingBehind) {
  connect(std::uint64_t{64} << 20);
  const std::string little = pattern(60'000, 3);
  const Duration half = lifetime() / 2;
  for (int i = 0; i < 60; ++i) {
    net.mtu = i % 2 == 0 ? 65'507 : 1'472;
    expect_taken(i % 3 == 0 ? other : one, little);
    const std::uint64_t used = counters(one).tokens_used;
    // From 4.9 to 5.1 s. Small calls keep the path awake: one that sleeps forgets its tokens.
    const Duration wait = half + std::chrono::milliseconds(i * 200 / 59 - 100);
    const Instant begin = net.now;
    const bool is_awake = i % 4 != 3;
    net.run_for(std::chrono::milliseconds(30));
    for (Instant at = begin; is_awake && at < begin + wait - std::chrono::milliseconds(500);
         at = at + std::chrono::milliseconds(500)) {
      net.now = std::max(net.now, at);
      TestCall small;
      net.call(one, server, small, "echo", "awake");
      ASSERT_TRUE(net.run_until([&] { return small.completions != 0; }));
      net.run_for(std::chrono::milliseconds(30));
    }
    ASSERT_LT(net.now, begin + wait);
    net.now = begin + wait;
    if (i % 3 == 0) continue;
    TestCall call;
    send(one, call, little);
    ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
    const bool is_sure = is_awake && std::chrono::abs(wait - half) > std::chrono::milliseconds(10);
    EXPECT_TRUE(!is_sure || counters(one).tokens_used == used + (wait < half ? 1 : 0)) << i;
  }
  net.run_for(half);
}

// Near the worker, which writes all of it.
TEST(RegionMemory, IsWhereTheEngineWasToldItShouldBe) {
  struct Recording final : buffer::Memory {
    buffer::Piece take(std::size_t bytes, int numa_node) override {
      nodes.push_back(numa_node);
      return inner.take(bytes, numa_node);
    }
    void give_back(const buffer::Piece& piece) noexcept override { inner.give_back(piece); }
    buffer::HeapMemory inner{std::uint64_t{1} << 30};
    std::vector<int> nodes;
  } memory;
  for (const int node : {-1, 5}) {
    Net net;
    EngineConfig config = testing::test_config(true, 999);
    config.memory = &memory;
    config.numa_node = node;
    const int server = net.add(config), client = net.add(false);
    net.serve(server, "take",
              [](Engine& engine, IncomingTransfer& request, Instant now) { engine.reply(request, {}, {}, now); });
    const std::string text = pattern(60'000);
    buffer::HeapMemory own{std::uint64_t{1} << 30};
    TestCall call;
    call.method = testing::method_id("take");
    call.peer = net.engine(client).connect(net.address(server)).value();
    call.deadline = net.now + std::chrono::seconds(5);
    call.is_large = true;
    call.block = transfer::load_cargo(net.engine(client).blocks(),
                                      buffer::seal(own, as_bytes(text), crypto::KeyBytes{}, buffer::thread_key()),
                                      {.bytes = text.size()}, Pattern::unary, {});
    call.bytes = wire::kCargoBytes;
    memory.nodes.clear();
    net.engine(client).submit(call, net.now);
    ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    EXPECT_FALSE(call.failed) << call.reply;
    EXPECT_GE(memory.nodes.size(), 1u);
    EXPECT_EQ(std::count(memory.nodes.begin(), memory.nodes.end(), node), std::ssize(memory.nodes));
    net.run_for(std::chrono::hours(1));
  }
}

}  // namespace
}  // namespace weir::engine
