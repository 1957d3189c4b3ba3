// Brokers for tests, on the network of endpoint_testing.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "handshake/broker.h"
#include "handshake/endpoint_testing.h"

namespace weir::handshake::testing {

// One pool's broker. Everybody accepts, and proves the address that it is at, unless `change` has it otherwise.
struct BrokerNode final : Node {
  using Change = std::function<void(Broker::Options&)>;

  explicit BrokerNode(const Address& address, std::uint64_t seed, std::size_t max_running = 64,
                      const crypto::KeyBytes& signer = {}, const Change& change = {})
      : at(address), entropy(seed) {
    Broker::Options options;
    options.credentials = make_credentials(test_authority(), {ip_of(address)});
    options.accepts = true;
    options.self.workers = {{.port = 9000}};
    entropy.fill(options.self.incarnation);
    options.wall_clock = [] { return kTestWallSeconds; };
    options.entropy = &entropy;
    options.signer = signer;
    options.seed = seed;
    options.plan.max_running = max_running;
    options.plan.longest_backoff = 2s;
    if (change) change(options);
    broker = std::make_unique<Broker>(std::move(options));
  }
  void receive(MutableByteSpan datagram, const Address& from, Instant now) override {
    broker->on_datagram(datagram, from, now);
  }
  void expire(Instant now) override { broker->on_timeout(now); }
  Instant deadline() const override { return broker->next_deadline(); }
  bool take(Address& to, ByteSpan& bytes, Instant now) override {
    while (!broker->take_datagram(to, bytes, now)) {
      if (!broker->answer_one(now)) return false;
    }
    return true;
  }

  std::vector<Broker::News> news() {
    std::vector<Broker::News> all;
    Broker::News one;
    while (broker->take_news(one)) all.push_back(one);
    return all;
  }

  static std::string ip_of(const Address& address) {
    const std::string text = address.to_string();
    return text.substr(0, text.rfind(':'));
  }

  Address at;
  TestEntropy entropy;
  std::unique_ptr<Broker> broker;
};

// Nobody: makes time pass on a network where nothing else happens.
struct Alarm final : Node {
  void receive(MutableByteSpan, const Address&, Instant) override {}
  void expire(Instant) override { at = Instant::never(); }
  Instant deadline() const override { return at; }
  bool take(Address&, ByteSpan&, Instant) override { return false; }

  void pass(Network& network, Duration time) {
    at = network.now() + time;
    network.run(time);
  }

  Instant at = Instant::never();
};

}  // namespace weir::handshake::testing
