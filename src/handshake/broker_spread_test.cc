#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <vector>

#include "handshake/broker.h"
#include "handshake/endpoint_testing.h"

namespace weir::handshake {
namespace {

using testing::Network;
using testing::TestEntropy;
using namespace std::chrono_literals;

struct BrokerNode final : testing::Node {
  explicit BrokerNode(Broker::Options options) : broker(std::move(options)) {}
  void receive(MutableByteSpan datagram, const Address& from, Instant now) override {
    broker.on_datagram(datagram, from, now);
  }
  void expire(Instant now) override { broker.on_timeout(now); }
  Instant deadline() const override { return broker.next_deadline(); }
  bool take(Address& to, ByteSpan& bytes, Instant now) override {
    while (!broker.take_datagram(to, bytes, now)) {
      if (!broker.answer_one(now)) return false;
    }
    return true;
  }

  Broker broker;
};

Broker::Options options_of(crypto::Entropy& entropy, std::shared_ptr<const Credentials> credentials,
                           std::size_t workers) {
  Broker::Options options{.credentials = std::move(credentials),
                          .wall_clock = [] { return testing::kTestWallSeconds; },
                          .entropy = &entropy};
  entropy.fill(options.self.incarnation);
  for (std::uint16_t i = 0; i < workers; ++i) {
    options.self.workers.push_back({.worker = i, .port = static_cast<std::uint16_t>(5'000 + i)});
  }
  return options;
}

// A pool says hello to the first worker that it is told of (peer::HelloBudget::choose).
TEST(Broker, CallersAreSpreadEvenlyOverAllWorkersOfTheirPeer) {
  constexpr std::size_t kWorkers = 20, kCallers = 60;
  TestEntropy entropy(1);
  Network network(1);
  Broker::Options accepting = options_of(entropy, testing::server_credentials(), kWorkers);
  accepting.accepts = true;
  BrokerNode server(std::move(accepting));
  network.add(testing::kServerAddress, server);
  std::deque<BrokerNode> callers;
  std::map<int, int> taken;
  for (std::uint32_t i = 0; i < kCallers; ++i) {
    BrokerNode& caller = callers.emplace_back(options_of(entropy, testing::client_credentials(), 1));
    const Address address = Address::v4(0x0a000100 + i, 7'000);
    network.add(address, caller);
    caller.broker.want(testing::kServerAddress, "", network.now());
    network.run(1s);
    Broker::News news;
    ASSERT_TRUE(caller.broker.take_news(news));
    ASSERT_FALSE(news.failure) << news.failure->message();
    EXPECT_EQ(news.credential.worker_count, kWorkers);
    ++taken[news.credential.data_addresses().front().worker];
    network.remove(address);
  }
  EXPECT_EQ(taken.size(), kWorkers);
  for (const auto& [worker, times] : taken) EXPECT_EQ(times, kCallers / kWorkers) << worker;
}

}  // namespace
}  // namespace weir::handshake
