// Floods of first datagrams, of garbage and of half-open handshakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "handshake/endpoint.h"
#include "handshake/endpoint_testing.h"

namespace weir::handshake::testing {
namespace {

TEST(EndpointUnderFlood, AFloodOfFirstDatagramsIsBoundedAndDoesNotStopAnHonestClient) {
  constexpr std::uint32_t kFlood = 10'000;
  Pair source(7);
  const std::vector<std::byte> first = first_datagram(source);
  Pair pair(1);
  std::map<Address, std::size_t> sent_to;
  pair.network.watch = [&](const Address& from, const Address& to, ByteSpan bytes) {
    if (from == kServerAddress) sent_to[to] += bytes.size();
    return true;
  };
  pair.network.run(1ms);
  const std::size_t heap_before = mallinfo2().uordblks;
  std::size_t heap_most = 0;
  std::size_t half_open_most = 0;
  for (std::uint32_t i = 0; i < kFlood; ++i) {
    auto copy = first;
    pair.server->endpoint.on_datagram(copy, stranger(i), pair.network.now());
    if (i % 16 == 0) pair.network.flush();
    half_open_most = std::max(half_open_most, pair.server->endpoint.stats().half_open);
    if (i % 1000 == 999) heap_most = std::max(heap_most, static_cast<std::size_t>(mallinfo2().uordblks));
  }
  const EndpointStats stats = pair.server->endpoint.stats();
  EXPECT_EQ(half_open_most, 64u);
  EXPECT_EQ(stats.accepted, 64u);
  EXPECT_EQ(stats.retries_sent, kFlood - 64);
  if (heap_most > 0) {  // not under a sanitizer
    EXPECT_LT(heap_most - heap_before, std::size_t{16} << 20);
  }

  // The honest one proves its address and gets through.
  ASSERT_TRUE(pair.connect());
  pair.network.run();
  const auto ours = pair.client->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  EXPECT_FALSE(ours[0].failure) << ours[0].failure->to_string();
  EXPECT_EQ(pair.server->endpoint.stats().retries_sent, kFlood - 64 + 1);

  // The others were nobody: no outcome, no state, and at most three times what they sent, retransmissions included.
  EXPECT_EQ(pair.server->outcomes().size(), 1u);
  EXPECT_EQ(pair.server->endpoint.stats().connections, 0u);
  EXPECT_EQ(pair.server->endpoint.stats().half_open, 0u);
  EXPECT_GT(sent_to[stranger(0)], 0u);
  for (const auto& [to, bytes] : sent_to) {
    if (to == kClientAddress) continue;
    EXPECT_LE(bytes, 3 * first.size()) << to.to_string();
  }
}

TEST(EndpointUnderFlood, ClientsThatProveTheirAddressAndStopMakeRoomForHonestOnes) {
  constexpr std::uint32_t kHalf = 40;
  Pair pair(1, {}, [](auto& ours, auto& theirs) {
    ours.max_outgoing = 2 * kHalf;
    theirs.retry_from = 0;
    theirs.max_incoming = kHalf / 2;
    theirs.max_per_source = kHalf;  // they stand for many hosts
  });
  // Each says its first two datagrams (the second with the proof) and then nothing.
  EndpointNode& half = *pair.client;
  std::size_t said = 0;
  pair.network.watch = [&](const Address& from, const Address&, ByteSpan) {
    return from != kClientAddress || ++said <= 2 * kHalf;
  };
  for (std::uint32_t i = 0; i < kHalf; ++i)
    ASSERT_TRUE(half.endpoint.connect(100 + i, kServerAddress, "", pair.network.now()));
  pair.network.run(300us);
  EXPECT_EQ(pair.server->endpoint.stats().connections, kHalf / 2);
  EXPECT_EQ(pair.server->endpoint.stats().dropped_full, kHalf / 2);
  EXPECT_EQ(pair.server->endpoint.stats().evicted, 0u);

  // Later, an honest one.
  const Address honest_address = Address::v4(0x0a000003, 7003);
  TestEntropy entropy(99);
  EndpointNode honest(client_options(entropy));
  pair.network.add(honest_address, honest);
  pair.network.run(600ms);
  ASSERT_TRUE(honest.endpoint.connect(1, kServerAddress, "", pair.network.now()));
  pair.network.run(100ms);
  const auto ours = honest.outcomes();
  ASSERT_EQ(ours.size(), 1u);
  EXPECT_FALSE(ours[0].failure) << ours[0].failure->to_string();
  EXPECT_EQ(pair.server->endpoint.stats().evicted, 1u);
}

// One host, as many ports as it likes: it proves its address each time, says nothing more, and comes again.
TEST(EndpointUnderFlood, AHostThatProvesItsAddressHasItsShareOfThePortAndNoMore) {
  constexpr std::uint32_t kPorts = 1200;
  constexpr std::size_t kMax = 256;
  Pair pair(1, {}, [](auto& ours, auto& theirs) {
    ours.max_outgoing = kPorts;
    theirs.max_incoming = kMax;
    theirs.retry_from = 0;
  });
  // Its datagrams leave from one address and many ports: every handshake has its own.
  TestEntropy entropy(5);
  std::vector<std::unique_ptr<EndpointNode>> ports;
  std::map<Address, std::size_t> said;
  pair.network.watch = [&](const Address& from, const Address&, ByteSpan) {
    return from == kServerAddress || from.ip == kClientAddress.ip || ++said[from] <= 2;
  };
  const std::uint32_t host = 0x0a000063;
  std::size_t most = 0;
  for (std::uint32_t i = 0; i < kPorts; ++i) {
    const Address port = Address::v4(host, static_cast<std::uint16_t>(10'000 + i));
    ports.push_back(std::make_unique<EndpointNode>(client_options(entropy)));
    pair.network.add(port, *ports.back());
    ASSERT_TRUE(ports.back()->endpoint.connect(1, kServerAddress, "", pair.network.now()));
    if (i % 100 == 99) pair.network.run(1ms);
    most = std::max(most, pair.server->endpoint.stats().connections);
  }
  EXPECT_EQ(most, kMax / 4);
  EXPECT_EQ(pair.server->endpoint.stats().dropped_full, 0u);
  EXPECT_EQ(pair.server->endpoint.stats().dropped_source, kPorts - kMax / 4);

  // Somebody else is served meanwhile, at once and without making anybody go.
  ASSERT_TRUE(pair.connect());
  pair.network.run(50ms);
  const auto ours = pair.client->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  EXPECT_FALSE(ours[0].failure) << ours[0].failure->to_string();
  EXPECT_EQ(pair.server->endpoint.stats().evicted, 0u);

  // And a neighbour on the same host, once the oldest of those is old.
  const Address neighbour_address = Address::v4(host, 9'999);
  EndpointNode neighbour(client_options(entropy));
  pair.network.add(neighbour_address, neighbour);
  pair.network.watch = [&](const Address& from, const Address&, ByteSpan) {
    return from == kServerAddress || from == neighbour_address || ++said[from] <= 2;
  };
  pair.network.run(600ms);
  ASSERT_TRUE(neighbour.endpoint.connect(1, kServerAddress, "", pair.network.now()));
  pair.network.run(500ms);
  const auto theirs = neighbour.outcomes();
  ASSERT_EQ(theirs.size(), 1u);
  EXPECT_FALSE(theirs[0].failure) << theirs[0].failure->to_string();
  EXPECT_EQ(pair.server->endpoint.stats().evicted, 1u);
}

TEST(EndpointUnderFlood, ForgedAddressesUseUpNobodysShare) {
  Pair source(7);
  Pair pair(1);
  // In the name of the client's host, from all its ports.
  for (std::uint32_t i = 0; i < 2000; ++i) {
    auto first = first_datagram(source, 1 + i);
    source.client->endpoint.abandon(1 + i, source.network.now());
    Address forged = kClientAddress;
    forged.port = static_cast<std::uint16_t>(20'000 + i);
    pair.server->endpoint.on_datagram(first, forged, pair.network.now());
    if (i % 16 == 0) pair.network.flush();
  }
  EXPECT_EQ(pair.server->endpoint.stats().sources, 0u);
  ASSERT_TRUE(pair.connect());
  pair.network.run(50ms);
  const auto ours = pair.client->outcomes();
  ASSERT_EQ(ours.size(), 1u);
  EXPECT_FALSE(ours[0].failure) << ours[0].failure->to_string();
  EXPECT_EQ(pair.server->endpoint.stats().dropped_source, 0u);
}

TEST(EndpointUnderFlood, GarbageCostsNoState) {
  Pair source(7);
  const std::vector<std::byte> first = first_datagram(source);
  Pair pair(1);
  Random random(3);
  std::size_t answered = 0;
  pair.network.watch = [&](const Address&, const Address&, ByteSpan bytes) {
    answered += bytes.size();
    return true;
  };
  std::size_t received = 0;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    std::vector<std::byte> datagram(random.below(1600));
    for (std::byte& byte : datagram) byte = static_cast<std::byte>(random.next());
    if (i % 2 == 0) {  // the real one with one bit wrong, behind the ids and versions
      datagram = first;
      datagram[40 + random.below(first.size() - 40)] ^= static_cast<std::byte>(1u << random.below(8));
    } else if (i % 4 == 1 && datagram.size() > 6) {  // a long header of our version
      datagram[0] = std::byte{0xc3};
      store(datagram.data() + 1, std::uint32_t{0x01000000});
    }
    received += datagram.size();
    pair.server->endpoint.on_datagram(datagram, stranger(i), pair.network.now());
    pair.client->endpoint.on_datagram(datagram, stranger(i), pair.network.now());
    pair.network.flush();
  }
  EXPECT_EQ(pair.server->endpoint.stats().connections, 0u);
  EXPECT_EQ(pair.server->endpoint.stats().closed, 0u);
  EXPECT_EQ(pair.server->endpoint.stats().accepted, 0u);
  EXPECT_EQ(pair.client->endpoint.stats().connections, 0u);
  EXPECT_LT(answered, received / 10);
}

TEST(EndpointUnderFlood, AHalfOpenHandshakeCostsABoundedAmountOfMemory) {
  constexpr std::uint32_t kCount = 50;
  Pair source(7);
  const std::vector<std::byte> first = first_datagram(source);
  Pair pair(1);
  pair.network.remove(kClientAddress);
  auto warm = first;
  pair.server->endpoint.on_datagram(warm, stranger(1000), pair.network.now());
  pair.network.flush();
  const std::size_t before = mallinfo2().uordblks;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    auto copy = first;
    pair.server->endpoint.on_datagram(copy, stranger(i), pair.network.now());
    Address to;
    ByteSpan bytes;
    while (pair.server->endpoint.take_datagram(to, bytes, pair.network.now())) {
    }
  }
  ASSERT_EQ(pair.server->endpoint.stats().half_open, kCount + 1);
  const std::size_t each = (mallinfo2().uordblks - before) / kCount;
  RecordProperty("bytes_per_half_open_handshake", static_cast<int>(each));
  std::printf("a half-open handshake: %zu bytes\n", each);
  EXPECT_LT(each, std::size_t{128} << 10);
}

}  // namespace
}  // namespace weir::handshake::testing
