// Visitors that wait until the application has said whether they may call (I-17).
#include <gtest/gtest.h>

#include <memory>

#include "handshake/endpoint_testing.h"
#include "handshake/raw_peer_testing.h"

namespace weir::handshake::testing {
namespace {

// Takes everything in and sends everything, but decides only when it is told to.
struct Undecided final : Node {
  explicit Undecided(crypto::Entropy& entropy)
      : endpoint([&] {
          Endpoint::Options options = server_options(entropy);
          options.answer = [this](const Outcome&) -> Result<std::vector<std::byte>> {
            ++asked;
            return bytes_of("answer");
          };
          return options;
        }()) {}
  void receive(MutableByteSpan datagram, const Address& from, Instant now) override {
    endpoint.on_datagram(datagram, from, now);
  }
  void expire(Instant now) override { endpoint.on_timeout(now); }
  Instant deadline() const override { return endpoint.next_deadline(); }
  bool take(Address& to, ByteSpan& bytes, Instant now) override { return endpoint.take_datagram(to, bytes, now); }

  int asked = 0;
  Endpoint endpoint;
};

struct EndpointQuestion : ::testing::Test {
  EndpointQuestion() { pair.network.add(kServerAddress, server); }
  void connect(std::uint64_t tag) { ASSERT_TRUE(pair.connect(tag)); }

  Pair pair;
  TestEntropy entropy{99};
  Undecided server{entropy};
};

TEST_F(EndpointQuestion, OfVisitorsThatHaveGoneNothingIsKept) {
  for (std::uint64_t tag = 1; tag <= 20; ++tag) {
    connect(tag);
    pair.network.run(10ms);
    ASSERT_TRUE(server.endpoint.has_question());
    pair.client->endpoint.abandon(tag, pair.network.now());
    pair.network.run(10ms);
    ASSERT_FALSE(server.endpoint.has_question());
  }
  EXPECT_FALSE(server.endpoint.answer_one(pair.network.now()));
  EXPECT_EQ(server.asked, 0);
}

TEST_F(EndpointQuestion, FurtherVisitorsFromTheAddressAreDroppedUntilAllThatWaitThereHaveAnswers) {
  connect(1);
  connect(2);
  pair.network.run(10ms);
  EXPECT_EQ(server.endpoint.stats().accepted, 2u);
  connect(3);
  pair.network.run(10ms);
  EXPECT_EQ(server.endpoint.stats().dropped_asking, 1u);
  EXPECT_TRUE(server.endpoint.answer_one(pair.network.now()));
  pair.network.run(10ms);
  connect(4);
  pair.network.run(10ms);
  EXPECT_EQ(server.endpoint.stats().dropped_asking, 2u) << "one still waits";
  EXPECT_TRUE(server.endpoint.answer_one(pair.network.now()));
  pair.network.run(10ms);
  EXPECT_EQ(server.endpoint.stats().accepted, 2u);
  for (std::uint64_t accepted : {3u, 4u}) {  // those that were dropped say it again, and are let in one by one
    pair.network.run(200ms);
    EXPECT_EQ(server.endpoint.stats().accepted, accepted);
    EXPECT_TRUE(server.endpoint.answer_one(pair.network.now()));
  }
}

TEST_F(EndpointQuestion, NobodyIsAskedAboutAVisitorThatListensNoMore) {
  RawPeer visitor({.credentials = client_credentials(),
                   .words = {std::byte{1}, std::byte{0}, std::byte{'x'}},
                   .stops_listening = true},
                  kServerAddress, pair.network.now());
  pair.network.add(stranger(1), visitor);
  pair.network.run(50ms);
  EXPECT_EQ(server.endpoint.stats().accepted, 1u);
  EXPECT_FALSE(server.endpoint.has_question());
  EXPECT_EQ(server.endpoint.stats().connections, 0u);
}

}  // namespace
}  // namespace weir::handshake::testing
