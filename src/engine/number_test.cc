// Packet numbers and exchange sequences where their bits run over (docs/protocol.md, rules P-4, K-5, H-5): what would
// repeat a nonce, or take one packet for another.
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "crypto/nonce.h"
#include "engine/credential_testing.h"
#include "engine/hostile_testing.h"

namespace weir::engine {
namespace {

using testing::EngineAccess;
using testing::IdentityMode;
using testing::Net;
using testing::Pair;
using testing::TestCall;

Path& only_path(Engine& engine) {
  Path* found = nullptr;
  EngineAccess::core(engine).paths.for_each([&](Path& path) { found = &path; });
  return *found;
}

// As if both sides had sent all numbers below.
void move_numbers_on(Pair& pair, std::uint64_t next) {
  for (Engine* engine : {&pair.client(), &pair.server()}) {
    Path& path = only_path(*engine);
    ASSERT_EQ(path.loss.eliciting_in_flight(), 0u);
    std::destroy_at(&path.loss);
    std::construct_at(&path.loss, EngineAccess::core(*engine).random);
    path.next_number = next;
    path.key_first_number = next;
    path.replay.mark(next - 1, pair.now);
    path.received.insert(next - 1);
  }
}

class PacketNumbers : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(PacketNumbers, RunOnOverTheEdge) {
  auto client = testing::test_config(false, 1);
  auto server = testing::test_config(true, 2);
  // Packets that are overtaken by others of two keys later are rejected: not so many may overtake one here.
  client.rotate_packets = server.rotate_packets = 64;
  Pair pair(client, server);
  pair.serve_echo();
  const auto call = [&] {
    TestCall one;
    pair.call(one, "echo", "hello");
    ASSERT_TRUE(pair.run_until([&] { return one.completions != 0; }));
    ASSERT_FALSE(one.failed) << one.reply;
  };
  for (int i = 0; i < 20; ++i) call();
  pair.run_for(std::chrono::milliseconds(50));
  ASSERT_NO_FATAL_FAILURE(move_numbers_on(pair, GetParam() - 5));
  const std::uint64_t rejected = pair.server().events().counters.packets_rejected;
  // Packets of before and after the edge overtake each other.
  std::vector<Pair::InFlight> late;
  for (int i = 0; i < 40; ++i) {
    call();
    if (i == 2) pair.latency = std::chrono::microseconds(500);
    if (i == 6) pair.latency = std::chrono::microseconds(10);
  }
  EXPECT_EQ(pair.handled, 60);
  EXPECT_GT(only_path(pair.client()).next_number, GetParam());
  EXPECT_GT(only_path(pair.server()).next_number, GetParam());
  EXPECT_EQ(only_path(pair.server()).replay.largest() + 1, only_path(pair.client()).next_number);
  EXPECT_EQ(pair.server().events().counters.packets_rejected, rejected);
  EXPECT_EQ(pair.server().events().counters.handshakes_completed, 1u) << "all on one path";
}

INSTANTIATE_TEST_SUITE_P(Edges, PacketNumbers,
                         ::testing::Values(1ull << wire::kNumberBits, 3ull << wire::kNumberBits, 1ull << 32, 1ull << 40,
                                           1ull << 56));

TEST(PacketNumber, BeyondTheLastIsNotTaken) {
  Pair pair;
  pair.serve_echo();
  TestCall first;
  pair.call(first, "echo", "hello");
  ASSERT_TRUE(pair.run_until([&] { return first.completions != 0; }));
  pair.run_for(std::chrono::milliseconds(50));
  ASSERT_NO_FATAL_FAILURE(move_numbers_on(pair, peer::ReplayWindow::kLimit - 1));
  for (int i = 0; i < 2; ++i) {
    TestCall call;
    pair.call(call, "echo", "hello", {}, std::chrono::milliseconds(100));
    ASSERT_TRUE(pair.run_until([&] { return call.completions != 0; }));
  }
  EXPECT_EQ(pair.handled, 2) << "the last number is good, and the one after it never is";
  EXPECT_EQ(only_path(pair.server()).replay.largest(), peer::ReplayWindow::kLimit - 1);
}

class Sequences : public ::testing::TestWithParam<std::uint64_t> {};

TEST_P(Sequences, RunOnOverTheEdge) {
  constexpr int kClients = 12;
  Net net;
  const int server = net.add(true);
  net.serve_echo(server);
  net.core(server).next_sequence = GetParam() - kClients / 2;
  for (int i = 0; i < kClients; ++i) {
    const int client = net.add(false);
    TestCall call;
    net.call(client, server, call, "echo", "hello");
    ASSERT_TRUE(net.run_until([&] { return call.completions != 0; }));
    ASSERT_FALSE(call.failed) << call.reply;
  }
  EXPECT_EQ(net.core(server).next_sequence, GetParam() + kClients / 2);
  EXPECT_EQ(net.handled, kClients);
  EXPECT_EQ(net.engine(server).census().paths, static_cast<std::size_t>(kClients));
}

INSTANTIATE_TEST_SUITE_P(Edges, Sequences,
                         ::testing::Values(std::uint64_t{Core::kExchangeWindow}, 5ull * Core::kExchangeWindow,
                                           1ull << 32, 1ull << 48));

// The workers of a pool have one incarnation and one book.
TEST_F(IdentityMode, TwoWorkersOfOnePoolAnswerUnderOneCredential) {
  constexpr std::uint64_t kHellos = 100;
  const testing::Agreed agreed = agree(5);
  server_book.known[agreed.ours.id] = agreed.theirs;
  const auto aead = crypto::Aead::create(crypto::default_backend().backend);
  const crypto::Cmac mac(*aead, agreed.theirs.answer_key);
  std::set<std::array<std::byte, 32>> randoms;
  for (const std::uint16_t worker : {0, 1, 2}) {
    EngineConfig config = pair.configs[1];
    config.worker = worker;
    Engine engine(config, pair.entropy, nullptr, worker, pair.now);
    for (std::uint64_t i = 0; i < kHellos; ++i) {
      pair.now = pair.now + std::chrono::milliseconds(1);
      wire::Hello hello{.initiator = {.path = 7, .port = 1111}, .credential = agreed.ours.id};
      pair.entropy.fill(hello.initiator.random);
      std::byte datagram[wire::kHelloBytes];
      const std::size_t bytes = testing::sign_hello(*aead, agreed.theirs.hello_key, hello, datagram);
      engine.on_datagram({datagram, bytes}, pair.addresses[0], 0, nullptr, pair.now);
      std::vector<Train> trains;
      engine.collect(trains, pair.now);
      ASSERT_EQ(trains.size(), 1u);
      const auto decoded = wire::decode_hello_reply(trains[0].bytes);
      ASSERT_TRUE(decoded.has_value());
      EXPECT_EQ(decoded->reply.responder.worker, worker);
      EXPECT_EQ(decoded->reply.sequence, i + 1);
      ASSERT_TRUE(mac.verify(decoded->authenticated, decoded->tag));
      randoms.insert(decoded->reply.responder.random);
    }
  }
  EXPECT_EQ(randoms.size(), 3 * kHellos) << "each worker has a function of its own";
}

}  // namespace
}  // namespace weir::engine
