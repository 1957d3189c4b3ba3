// Control keys over the life of a path: rotation, retirement (rules K-7, K-8, K-10), and what an idle path keeps.
#include "engine/path_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <string>

#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::Datagram;
using testing::Frames;
using testing::Net;
using testing::Pair;
using testing::Puppet;
using testing::TestCall;
using Which = PathKeys::Which;

// Two sides of one path, without a path.
class PathKeysTest : public ::testing::Test {
 protected:
  struct Packet {
    std::uint8_t key_low;
    std::uint64_t number;
    std::byte text[4];
    std::byte tag[crypto::kTagBytes];
  };

  void SetUp() override {
    crypto::forget_recorded_nonces();
    const crypto::KeyNames there{.from_initiator = true, .sender_worker = 1, .sender_port = 2};
    sender.install(*aead, secret, there);
    receiver.install(*aead, secret, there.reversed());
  }
  Packet seal() {
    Packet packet{.key_low = static_cast<std::uint8_t>(sender.send_id() & ((1u << wire::kKeyIdBits) - 1)),
                  .number = next_number++};
    sender.send_key().seal(crypto::make_nonce(0, packet.number), {}, packet.text, packet.tag);
    return packet;
  }
  bool open(Packet packet) {
    const Which which = receiver.recognise(packet.key_low);
    if (which == Which::unknown) return false;
    if (!receiver.receive_key(which, *scratch).open(crypto::make_nonce(0, packet.number), {}, packet.text, packet.tag))
      return false;
    receiver.on_opened(which);
    return true;
  }
  void rotate() {
    sender.rotate();
    ASSERT_TRUE(open(seal()));
  }
  bool retire(const wire::RetireFrame& frame) { return receiver.on_retired(frame, *scratch); }
  wire::RetireFrame retirement() { return sender.retirement(*scratch); }

  std::unique_ptr<crypto::Aead> aead = crypto::Aead::create(crypto::default_backend().backend);
  std::unique_ptr<crypto::AeadKey> scratch = aead->make_key(crypto::KeyBytes{});
  crypto::Secret secret;
  PathKeys sender, receiver;
  std::uint64_t next_number = 0;
};

TEST(Rotation, IsRareUnlessTheBuildLooksForMistakes) {
#ifdef WEIR_CHECK_NONCES
  EXPECT_EQ(EngineConfig{}.rotate_packets, 4'096u);
#else
  EXPECT_EQ(EngineConfig{}.rotate_packets, 1u << 22);
#endif
}

TEST_F(PathKeysTest, ALatePacketOpensUnderThePreviousKeyUntilThatIsRetired) {
  const Packet late = seal(), later = seal();
  rotate();
  EXPECT_TRUE(open(late));
  ASSERT_TRUE(retire(retirement()));
  EXPECT_EQ(receiver.recognise(0), Which::unknown);
  EXPECT_FALSE(open(later));
  EXPECT_TRUE(open(seal()));
}

TEST_F(PathKeysTest, WithoutARetirementThePreviousKeyGoesWithTheNextRotation) {
  const Packet late = seal();
  rotate();
  rotate();
  EXPECT_FALSE(open(late));
}

TEST_F(PathKeysTest, ARetirementIsTheSameEachTimeItIsSent) {
  rotate();
  const wire::RetireFrame first = retirement();
  const wire::RetireFrame second = retirement();  // builds that check nonces would stop at a second MAC
  EXPECT_EQ(first.key_id, 1u);
  EXPECT_EQ(first.key_id, second.key_id);
  EXPECT_EQ(first.mac, second.mac);
  rotate();
  EXPECT_EQ(retirement().key_id, 2u);
  EXPECT_NE(retirement().mac, first.mac);
}

TEST_F(PathKeysTest, ARepeatedOrLateRetirementChangesNothing) {
  rotate();
  const wire::RetireFrame first = retirement();
  ASSERT_TRUE(retire(first));
  EXPECT_TRUE(retire(first));
  const Packet late = seal();
  rotate();
  EXPECT_TRUE(retire(first));  // it speaks of key 0; key 1 stays
  EXPECT_TRUE(open(late));
  ASSERT_TRUE(retire(retirement()));
  EXPECT_TRUE(retire(first));
  EXPECT_FALSE(open(late));  // the floor only rises
}

TEST_F(PathKeysTest, ARetirementWithAnyByteChangedIsRefusedAndChangesNothing) {
  const Packet late = seal();
  rotate();
  const wire::RetireFrame good = retirement();
  for (std::size_t i = 0; i < good.mac.size(); ++i) {
    wire::RetireFrame bad = good;
    bad.mac[i] ^= std::byte{0x10};
    EXPECT_FALSE(retire(bad)) << i;
  }
  EXPECT_TRUE(open(late));
  EXPECT_TRUE(retire(good));
}

TEST_F(PathKeysTest, ARetirementThatNamesAKeyNobodyHasSeenIsRefused) {
  sender.rotate();
  EXPECT_FALSE(retire(retirement()));
  EXPECT_TRUE(open(seal()));
  EXPECT_TRUE(retire(retirement()));
  EXPECT_FALSE(retire({.key_id = 2, .mac = retirement().mac}));
  EXPECT_FALSE(retire({.key_id = ~0u}));
}

TEST_F(PathKeysTest, ARetirementOfTheOtherDirectionIsRefused) {
  receiver.rotate();
  const wire::RetireFrame reflected = receiver.retirement(*scratch);
  rotate();
  ASSERT_EQ(reflected.key_id, 1u);
  EXPECT_FALSE(retire(reflected));
}

TEST_F(PathKeysTest, GoesOnOverManyRotationsWhetherRetiredOrNot) {
  for (std::uint32_t i = 1; i <= 200; ++i) {
    const Packet late = seal();
    rotate();
    ASSERT_EQ(sender.send_id(), i);
    if (i % 3 != 0) {
      ASSERT_TRUE(retire(retirement()));
    }
    EXPECT_EQ(open(late), i % 3 == 0);
    EXPECT_TRUE(open(seal()));
  }
}

TEST_F(PathKeysTest, OnlyAPacketThatAuthenticatedMakesSchedules) {
  Packet forged = seal();
  forged.tag[3] ^= std::byte{1};
  EXPECT_FALSE(open(forged));
  EXPECT_FALSE(receiver.has_schedules());
  EXPECT_TRUE(open(seal()));
  EXPECT_TRUE(receiver.has_schedules());
  receiver.drop_schedules();
  sender.rotate();
  forged = seal();
  forged.tag[3] ^= std::byte{1};
  EXPECT_FALSE(open(forged));
  EXPECT_FALSE(receiver.has_schedules());
  EXPECT_EQ(receiver.recognise(1), Which::next);
  EXPECT_TRUE(open(seal()));
  EXPECT_TRUE(receiver.has_schedules());
  EXPECT_EQ(receiver.recognise(1), Which::current);
}

// ---- on the wire ----

bool has_previous_key(const Path& path) {
  for (std::uint8_t low = 0; low < 1u << wire::kKeyIdBits; ++low) {
    if (path.keys.recognise(low) == Which::previous) return true;
  }
  return false;
}

TEST(Retirement, FollowsARotationAndLeavesNoPreviousKey) {
  Net net;
  auto client_config = testing::test_config(false, 1);
  auto server_config = testing::test_config(true, 2);
  client_config.rotate_packets = server_config.rotate_packets = 8;
  const int client = net.add(client_config);
  const int server = net.add(server_config);
  net.serve_echo(server);
  int retired = 0;
  for (int i = 0; i < 200; ++i) {
    TestCall call;
    net.call(client, server, call, "echo", "hello");
    ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    ASSERT_FALSE(call.failed) << call.reply;
    if (i % 20 != 19) continue;
    net.run_for(std::chrono::milliseconds(100));
    for (const auto& [from, to] : {std::pair{client, server}, {server, client}}) {
      EXPECT_GT(net.engine(from).events().counters.key_rotations, 0u);
      EXPECT_FALSE(net.engine(from).has_work());  // it comes to rest: retiring a key does not use up the next
      // If all that was sent under the new key elicits nothing, the sender does not know yet that it arrived.
      if (!net.core(from).paths.at(0)->key_confirmed) continue;
      EXPECT_FALSE(has_previous_key(*net.core(to).paths.at(0)));
      ++retired;
    }
  }
  EXPECT_GT(retired, 5);
}

// Late packets meet a key that is gone; what was in them comes again under the new one.
TEST(Retirement, LosesNoCallUnderLossAndReordering) {
  constexpr std::size_t kCalls = 400, kOutstanding = 16;
  std::uint64_t rejected = 0;
  for (const std::uint64_t seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    SCOPED_TRACE(seed);
    auto client = testing::test_config(false, 1);
    auto server = testing::test_config(true, 2);
    client.rotate_packets = server.rotate_packets = 4 + seed;
    client.datagram_bytes = server.datagram_bytes = 1'472;
    std::deque<TestCall> calls;
    Pair pair(client, server, seed);
    pair.loss = 0.05;
    pair.serve_echo();
    Random jitter(seed);
    std::size_t done = 0;
    for (int step = 0; step < 200'000 && done < kCalls; ++step) {
      done = static_cast<std::size_t>(
          std::count_if(calls.begin(), calls.end(), [](const TestCall& call) { return call.completions != 0; }));
      for (; calls.size() < kCalls && calls.size() - done < kOutstanding;) {
        pair.call(calls.emplace_back(), "echo", std::string(jitter.below(4'000), 'x'), {}, std::chrono::minutes(1));
      }
      // One train overtakes another; some come a few round trips late.
      pair.latency = std::chrono::microseconds(10 + jitter.below(jitter.chance(0.3) ? 3'000 : 30));
      pair.step();
    }
    for (const TestCall& call : calls) {
      ASSERT_EQ(call.completions, 1);
      ASSERT_FALSE(call.failed) << call.reply;
    }
    EXPECT_EQ(pair.handled, static_cast<int>(kCalls));
    for (Engine* engine : {&pair.client(), &pair.server()}) {
      EXPECT_GT(engine->events().counters.key_rotations, 5u);
      rejected += engine->events().counters.packets_rejected;  // for their keys: nothing else is wrong with any
    }
  }
  EXPECT_GT(rejected, 20u);
}

// Notes how much was under way whenever a key was turned.
struct Rotations final : Subscriber {
  void on(const event::KeyRotated&) override {
    if (busy()) ++while_busy;
  }
  std::function<bool()> busy;
  int while_busy = 0;
};

// By packets and by bytes, each alone.
TEST(Retirement, LosesNoneOfThousandsOfCallsInFlight) {
  constexpr std::size_t kCalls = 4'000;
  for (const bool by_bytes : {false, true}) {
    SCOPED_TRACE(by_bytes);
    auto client = testing::test_config(false, 1);
    auto server = testing::test_config(true, 2);
    for (EngineConfig* config : {&client, &server}) {
      config->datagram_bytes = 1'472;
      config->rotate_packets = by_bytes ? 1u << 22 : 8;
      config->rotate_bytes = by_bytes ? 16 * 1024 : std::uint64_t{1} << 36;
    }
    std::deque<TestCall> calls;
    Rotations rotations[2];
    Pair pair(client, server);
    for (Rotations& one : rotations) one.busy = [&] { return pair.client().census().calls_sent > kCalls / 2; };
    for (const int side : {0, 1}) {
      pair.subscribers[side] = &rotations[side];
      pair.start(side);
    }
    pair.loss = 0.02;
    std::vector<transfer::IncomingTransfer*> held;
    std::size_t run = 0;
    const std::string body(500, 'x');
    const auto answer = [&](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      engine.reply(request, {}, as_bytes(body), at);
    };
    bool answers = false;
    pair.serve("hold", [&](Engine& engine, transfer::IncomingTransfer& request, Instant at) {
      ++run;
      if (answers) return answer(engine, request, at);
      held.push_back(&request);
    });
    for (std::size_t i = 0; i < kCalls; ++i) {
      pair.call(calls.emplace_back(), "hold", body, {}, std::chrono::minutes(5));
    }
    ASSERT_TRUE(pair.run_until([&] { return held.size() > kCalls / 4 * 3; }));  // all at once is more than its credit
    answers = true;
    for (transfer::IncomingTransfer* request : held) answer(pair.server(), *request, pair.now);
    ASSERT_TRUE(pair.run_until([&] {
      return std::all_of(calls.begin(), calls.end(), [](const TestCall& call) { return call.completions != 0; });
    }));
    for (const TestCall& call : calls) {
      ASSERT_EQ(call.completions, 1);
      ASSERT_FALSE(call.failed) << call.reply;
    }
    EXPECT_EQ(run, kCalls);
    EXPECT_GT(rotations[0].while_busy, 3);
    EXPECT_GT(rotations[1].while_busy, 3);
  }
}

TEST(Retirement, IsNotDueBeforeSoManyPacketsOrBytes) {
  for (const bool often : {false, true}) {
    auto client = testing::test_config(false, 1);
    client.rotate_packets = 1u << 22;
    client.rotate_bytes = often ? 4'000 : 40'000'000;
    Pair pair(client, testing::test_config(true, 2));
    pair.serve_echo();
    for (int i = 0; i < 300; ++i) {
      TestCall call;
      pair.call(call, "echo", "hello");
      ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
      ASSERT_FALSE(call.failed) << call.reply;
    }
    const Counters& counters = pair.client().events().counters;
    EXPECT_LE(counters.key_rotations, counters.bytes_sent / client.rotate_bytes);
    EXPECT_EQ(counters.key_rotations > 3, often);
  }
}

class HostileRetirement : public ::testing::Test {
 protected:
  void SetUp() override {
    client = net.add(false);
    server = net.add(true);
    net.serve_echo(server);
    TestCall call;
    net.call(client, server, call, "echo", "hello");
    ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    net.run_for(std::chrono::milliseconds(50));
    puppet = std::make_unique<Puppet>(net, client, server);
  }
  Frames frame(const wire::RetireFrame& retirement) {
    std::byte bytes[wire::kRetireFrameBytes];
    wire::encode(retirement, bytes);
    return Frames().raw(bytes);
  }
  wire::RetireFrame retirement() { return puppet->path().keys.retirement(*net.core(client).scratch_key); }

  Net net;
  int client = 0, server = 0;
  std::unique_ptr<Puppet> puppet;
};

TEST_F(HostileRetirement, IsTakenAndAcknowledgedIfItIsTrue) {
  puppet->path().keys.rotate();
  puppet->say(frame(retirement()));
  ASSERT_NE(puppet->victims_path(), nullptr);
  EXPECT_FALSE(has_previous_key(*puppet->victims_path()));
  puppet->say(frame(retirement()));  // twice is as good as once
  net.run_for(std::chrono::milliseconds(2));
  ASSERT_NE(puppet->victims_path(), nullptr);
  bool acknowledged = false;
  for (const Datagram& heard : puppet->listen())
    acknowledged |= heard[0] == static_cast<std::byte>(wire::FrameType::ack);
  EXPECT_TRUE(acknowledged);
}

TEST_F(HostileRetirement, EndsThePathIfItsMacIsForged) {
  puppet->path().keys.rotate();
  wire::RetireFrame forged = retirement();
  forged.mac[0] ^= std::byte{1};
  puppet->say(frame(forged));
  EXPECT_EQ(puppet->victims_path(), nullptr);
  EXPECT_TRUE(puppet->was_thrown_out());
}

TEST_F(HostileRetirement, EndsThePathIfItNamesAKeyThatWasNotUsedYet) {
  puppet->say(frame({.key_id = 1}));
  EXPECT_EQ(puppet->victims_path(), nullptr);
  EXPECT_TRUE(puppet->was_thrown_out());
}

TEST_F(HostileRetirement, EndsThePathIfItIsCutShort) {
  std::byte bytes[wire::kRetireFrameBytes];
  wire::encode(wire::RetireFrame{}, bytes);
  puppet->say(Frames().raw({bytes, wire::kRetireFrameBytes - 1}));
  EXPECT_EQ(puppet->victims_path(), nullptr);
}

}  // namespace
}  // namespace weir::engine
