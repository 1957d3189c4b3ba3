// A network of endpoints for tests: seeded, in virtual time, without sockets.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "crypto/entropy.h"
#include "handshake/endpoint.h"
#include "handshake/identity_testing.h"

namespace weir::handshake::testing {

using namespace std::chrono_literals;

// Repeatable; for tests only.
class TestEntropy final : public crypto::Entropy {
 public:
  explicit TestEntropy(std::uint64_t seed) : random_(seed) {}
  void fill(MutableByteSpan out) override {
    for (std::byte& byte : out) byte = static_cast<std::byte>(random_.next());
  }

 private:
  Random random_;
};

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
inline std::string text_of(ByteSpan bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

inline const Address kClientAddress = Address::v4(0x0a000001, 7001);
inline const Address kServerAddress = Address::v4(0x0a000002, 7002);

// One authority for all tests of a process: making certificates is the slow part.
inline const Authority& test_authority() {
  static const Authority authority = make_authority();
  return authority;
}
inline std::shared_ptr<const Credentials> client_credentials() {
  static const auto credentials = make_credentials(test_authority(), {"client.example", "10.0.0.1"});
  return credentials;
}
inline std::shared_ptr<const Credentials> server_credentials() {
  static const auto credentials = make_credentials(test_authority(), {"server.example", "10.0.0.2"});
  return credentials;
}

inline Endpoint::Options client_options(crypto::Entropy& entropy) {
  Endpoint::Options options;
  options.credentials = client_credentials();
  options.offer = [](const CredentialId&) { return bytes_of("offer"); };
  options.wall_clock = [] { return kTestWallSeconds; };
  options.entropy = &entropy;
  return options;
}
inline Endpoint::Options server_options(crypto::Entropy& entropy) {
  Endpoint::Options options = client_options(entropy);
  options.credentials = server_credentials();
  options.accepts = true;
  options.answer = [](const Outcome&) -> Result<std::vector<std::byte>> { return bytes_of("answer"); };
  return options;
}

// Anything that speaks datagrams: an endpoint, or something hostile.
struct Node {
  virtual ~Node() = default;
  virtual void receive(MutableByteSpan datagram, const Address& from, Instant now) = 0;
  virtual void expire(Instant now) = 0;
  virtual Instant deadline() const = 0;
  virtual bool take(Address& to, ByteSpan& bytes, Instant now) = 0;
};

struct EndpointNode final : Node {
  explicit EndpointNode(Endpoint::Options options) : endpoint(std::move(options)) {}
  void receive(MutableByteSpan datagram, const Address& from, Instant now) override {
    endpoint.on_datagram(datagram, from, now);
  }
  void expire(Instant now) override { endpoint.on_timeout(now); }
  Instant deadline() const override { return endpoint.next_deadline(); }
  bool take(Address& to, ByteSpan& bytes, Instant now) override {
    while (!endpoint.take_datagram(to, bytes, now)) {
      if (!endpoint.answer_one(now)) return false;
    }
    return true;
  }

  std::vector<Outcome> outcomes() {
    std::vector<Outcome> all;
    while (auto outcome = endpoint.take_outcome()) all.push_back(std::move(*outcome));
    return all;
  }

  Endpoint endpoint;
};

struct Weather {
  double loss = 0;
  double duplication = 0;
  double truncation = 0;
  Duration delay = 100us;
  Duration jitter = 0ns;  // at most; larger than the spacing of datagrams it reorders them
};

class Network {
 public:
  explicit Network(std::uint64_t seed, Weather weather = {}) : random_(seed), weather_(weather) {}

  void add(const Address& address, Node& node) { nodes_[address] = &node; }
  void remove(const Address& address) { nodes_.erase(address); }
  Instant now() const { return now_; }
  std::size_t sent() const { return sent_; }

  // Sees every datagram as it is sent; false: it vanishes.
  std::function<bool(const Address& from, const Address& to, ByteSpan bytes)> watch;

  void inject(const Address& from, const Address& to, ByteSpan bytes) { carry(from, to, bytes); }

  // What the nodes have to say now.
  void flush() {
    const auto nodes = nodes_;
    for (const auto& [address, node] : nodes) {
      Address to;
      ByteSpan bytes;
      while (node->take(to, bytes, now_)) carry(address, to, bytes);
    }
  }

  // Until nothing is to be done, or `limit` of virtual time has passed.
  void run(Duration limit = 60s) {
    const Instant end = now_ + limit;
    for (;;) {
      flush();
      Instant next = in_flight_.empty() ? Instant::never() : in_flight_.begin()->first;
      for (const auto& [address, node] : nodes_) next = earliest(next, node->deadline());
      if (next > end || next.is_never()) break;
      now_ = std::max(now_, next);
      while (!in_flight_.empty() && in_flight_.begin()->first <= now_) {
        Packet packet = std::move(in_flight_.begin()->second);
        in_flight_.erase(in_flight_.begin());
        const auto found = nodes_.find(packet.to);
        if (found == nodes_.end()) continue;
        // An exact-size copy, so that a sanitizer sees a read one byte too far.
        std::vector<std::byte> exact(packet.bytes.begin(), packet.bytes.end());
        found->second->receive(exact, packet.from, now_);
      }
      for (const auto& [address, node] : nodes_) {
        if (node->deadline() <= now_) node->expire(now_);
      }
    }
  }

 private:
  struct Packet {
    Address from;
    Address to;
    std::vector<std::byte> bytes;
  };

  void carry(const Address& from, const Address& to, ByteSpan bytes) {
    ++sent_;
    if (watch && !watch(from, to, bytes)) return;
    const int copies = random_.chance(weather_.duplication) ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      if (random_.chance(weather_.loss)) continue;
      std::size_t size = bytes.size();
      if (random_.chance(weather_.truncation)) size = random_.below(size);
      const Duration late{
          static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(weather_.jitter.count()) + 1))};
      in_flight_.emplace(
          now_ + weather_.delay + late,
          Packet{from, to, std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size))});
    }
  }

  Random random_;
  Weather weather_;
  Instant now_{1'000'000'000};
  std::map<Address, Node*> nodes_;
  std::multimap<Instant, Packet> in_flight_;
  std::size_t sent_ = 0;
};

// A client and a server that trust each other, on one network.
struct Pair {
  explicit Pair(std::uint64_t seed = 1, Weather weather = {}) : Pair(seed, weather, [](auto&, auto&) {}) {}
  template <class Change>
  Pair(std::uint64_t seed, Weather weather, Change change)
      : client_entropy(2 * seed), server_entropy(2 * seed + 1), network(seed, weather) {
    auto ours = client_options(client_entropy);
    auto theirs = server_options(server_entropy);
    change(ours, theirs);
    client = std::make_unique<EndpointNode>(std::move(ours));
    server = std::make_unique<EndpointNode>(std::move(theirs));
    network.add(kClientAddress, *client);
    network.add(kServerAddress, *server);
  }

  Result<void> connect(std::uint64_t tag = 1, std::string name = "") {
    return client->endpoint.connect(tag, kServerAddress, std::move(name), network.now());
  }

  TestEntropy client_entropy;
  TestEntropy server_entropy;
  Network network;
  std::unique_ptr<EndpointNode> client;
  std::unique_ptr<EndpointNode> server;
};

// The first datagram of a client, to be sent from anywhere.
inline std::vector<std::byte> first_datagram(Pair& pair, std::uint64_t tag = 1) {
  WEIR_CHECK(pair.connect(tag), "a handshake begins");
  Address to;
  ByteSpan bytes;
  WEIR_CHECK(pair.client->endpoint.take_datagram(to, bytes, pair.network.now()), "it says something");
  return {bytes.begin(), bytes.end()};
}

inline Address stranger(std::uint32_t i) {
  return Address::v4(0x0b000000 + i, static_cast<std::uint16_t>(1000 + i % 50'000));
}

}  // namespace weir::handshake::testing
