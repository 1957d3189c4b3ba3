// The fabric alone, without engines.
#include "sim/fabric.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace weir::sim {
namespace {

constexpr std::uint32_t kBytes = 1'000;  // of a datagram
constexpr std::uint32_t kWireBytes = kBytes + FabricShape::kIpBytes + FabricShape::kEthernetBytes;

FabricShape small() {
  FabricShape shape;
  shape.hosts = 8;
  shape.hosts_per_leaf = 4;
  shape.spines = 2;
  shape.bits_per_second = 8'000'000'000;  // a byte in a nanosecond
  shape.latency = Duration{5'000};
  shape.nic_bytes = 1u << 30;
  return shape;
}

// Hosts that take what comes, at once.
struct Hosts {
  struct Receiver final : FabricReceiver {
    Hosts* hosts = nullptr;
    HostId id = 0;
    void expect(Instant arrival) override {
      if (arrival < hosts->fabric.agenda().when(id)) hosts->fabric.agenda().set(id, arrival);
    }
  };
  struct Arrival {
    HostId from, to;
    Instant at;
    std::uint8_t ecn;
  };

  explicit Hosts(const FabricShape& shape) : fabric(shape), receivers(shape.hosts), start(fabric.now()) {
    for (HostId id = 0; id < shape.hosts; ++id) {
      receivers[id].hosts = this;
      receivers[id].id = id;
      fabric.attach(id, &receivers[id]);
    }
  }
  void send(HostId from, HostId to, std::uint8_t ecn = 2, std::uint32_t bytes = kBytes) {
    const std::vector<std::byte> datagram(bytes, static_cast<std::byte>(from));
    fabric.transmit(from, to, ecn, datagram, {});
  }
  void run() {
    while (!fabric.agenda().empty()) {
      const HostId host = fabric.run_next(Instant::never());
      if (host == Fabric::kNobody) continue;
      while (FabricPacket* packet = fabric.take(host)) {
        EXPECT_EQ(packet->to, host);
        EXPECT_EQ(packet->data[packet->bytes - 1], static_cast<std::byte>(packet->from));
        arrivals.push_back({packet->from, host, fabric.now(), packet->ecn});
        fabric.release(packet);
      }
      const Instant next = fabric.next_arrival(host);
      if (!next.is_never()) receivers[host].expect(next);
    }
  }
  std::int64_t since_start(std::size_t arrival) const { return (arrivals.at(arrival).at - start).count(); }

  Fabric fabric;
  std::vector<Receiver> receivers;
  std::vector<Arrival> arrivals;
  Instant start;
};

TEST(Fabric, TakesTwoCablesWithinALeafAndFourAcrossASpine) {
  Hosts hosts(small());
  hosts.send(0, 1);
  hosts.send(2, 6);
  hosts.run();
  ASSERT_EQ(hosts.arrivals.size(), 2u);
  EXPECT_EQ(hosts.since_start(0), 2 * (kWireBytes + 5'000));
  EXPECT_EQ(hosts.since_start(1), 4 * (kWireBytes + 5'000));
  EXPECT_EQ(hosts.fabric.packets_inside(), 0u);
}

TEST(Fabric, SendsBackToBackAtTheRateOfTheCable) {
  Hosts hosts(small());
  for (int i = 0; i < 10; ++i) hosts.send(0, 1);
  hosts.run();
  ASSERT_EQ(hosts.arrivals.size(), 10u);
  for (std::size_t i = 1; i < 10; ++i) EXPECT_EQ(hosts.since_start(i) - hosts.since_start(i - 1), kWireBytes);
}

TEST(Fabric, DropsWhatABufferCannotHoldAndMarksWhatFindsALongQueue) {
  FabricShape shape = small();
  shape.buffer_bytes = 10 * kWireBytes;
  shape.ecn_threshold_bytes = 4 * kWireBytes;
  Hosts hosts(shape);
  // Three times what the cable to host 0 carries.
  for (HostId from = 1; from <= 3; ++from) {
    for (int i = 0; i < 20; ++i) hosts.send(from, 0, from == 3 ? 0 : 2);
  }
  hosts.run();
  const FabricCounts& counts = hosts.fabric.counts();
  EXPECT_EQ(counts.packets, 60u);
  EXPECT_EQ(counts.delivered + counts.tail_drops, 60u);
  // While 20 packets left, 60 came; ten waited.
  EXPECT_NEAR(static_cast<double>(counts.tail_drops), 30, 3);
  EXPECT_GT(counts.marked, 5u);
  std::uint64_t marked = 0;
  for (const auto& arrival : hosts.arrivals) {
    if (arrival.from == 3) {
      EXPECT_EQ(arrival.ecn, 0) << "what does not ask for marks is not marked";
    }
    if (arrival.ecn == 3) ++marked;
  }
  EXPECT_EQ(marked, counts.marked);
  std::uint64_t longest = 0;
  for (const PortReport& port : hosts.fabric.ports()) {
    if (port.kind == PortKind::leaf_down) longest = std::max(longest, port.largest);
  }
  EXPECT_LE(longest, 10u * kWireBytes);
  EXPECT_GE(longest, 8u * kWireBytes);
}

TEST(Fabric, LetsOnePortTakeAPartOfASharedBuffer) {
  FabricShape shape = small();
  shape.buffer_bytes = 10 * kWireBytes;
  const auto drops = [&](double part) {
    shape.shared_part = part;
    Hosts hosts(shape);
    for (HostId from = 1; from <= 3; ++from) {
      for (int i = 0; i < 20; ++i) hosts.send(from, 0);
    }
    hosts.run();
    return hosts.fabric.counts().tail_drops;
  };
  // A leaf has six ports, so its buffer holds 60 packets; one port may take nearly all of that, half, or an
  // eleventh.
  EXPECT_EQ(drops(8), 0u);
  EXPECT_NEAR(static_cast<double>(drops(1)), 10, 3);
  EXPECT_GT(drops(0.1), drops(0));
}

TEST(Fabric, KeepsTheWayOfAFlowAndSpreadsFlowsOverTheSpines) {
  FabricShape shape = small();
  shape.hosts = 80;
  shape.hosts_per_leaf = 40;
  shape.spines = 4;
  shape.buffer_bytes = 1u << 30;
  Hosts hosts(shape);
  for (HostId from = 0; from < 40; ++from) {
    for (HostId to = 40; to < 80; ++to) hosts.send(from, to);
  }
  hosts.run();
  std::vector<std::uint64_t> packets;
  for (const PortReport& port : hosts.fabric.ports()) {
    if (port.kind == PortKind::leaf_up && port.from == 0) packets.push_back(port.packets);
  }
  ASSERT_EQ(packets.size(), 4u);
  for (const std::uint64_t count : packets) EXPECT_NEAR(static_cast<double>(count), 400, 80);

  Hosts one(shape);
  for (int i = 0; i < 20; ++i) one.send(0, 40);
  one.run();
  std::set<std::uint64_t> different;
  for (const PortReport& port : one.fabric.ports()) {
    if (port.kind == PortKind::leaf_up && port.from == 0) different.insert(port.packets);
  }
  EXPECT_EQ(different, (std::set<std::uint64_t>{0, 20}));
}

TEST(Fabric, CapsAFlowAndNoOther) {
  FabricShape shape = small();
  shape.flow_bits_per_second = shape.bits_per_second / 4;
  Hosts hosts(shape);
  for (int i = 0; i < 10; ++i) hosts.send(0, 1);
  for (HostId to = 2; to < 4; ++to) hosts.send(0, to);
  hosts.run();
  ASSERT_EQ(hosts.arrivals.size(), 12u);
  std::vector<std::int64_t> first;
  for (std::size_t i = 0; i < hosts.arrivals.size(); ++i) {
    if (hosts.arrivals[i].to == 1) first.push_back(hosts.since_start(i));
  }
  for (std::size_t i = 1; i < first.size(); ++i) EXPECT_EQ(first[i] - first[i - 1], 4 * kWireBytes);
  EXPECT_NE(hosts.arrivals.back().to, 2u);
  EXPECT_NE(hosts.arrivals.back().to, 3u) << "packets of other flows do not wait behind it";
}

TEST(Fabric, LosesTheShareThatItIsToldTo) {
  FabricShape shape = small();
  shape.loss = 0.1;
  Hosts hosts(shape);
  for (int i = 0; i < 2'000; ++i) hosts.send(0, 1 + static_cast<HostId>(i % 7));
  hosts.run();
  EXPECT_NEAR(static_cast<double>(hosts.fabric.counts().lost), 200, 60);
  EXPECT_EQ(hosts.arrivals.size(), 2'000 - hosts.fabric.counts().lost - hosts.fabric.counts().tail_drops);
  EXPECT_EQ(hosts.fabric.packets_inside(), 0u);
}

TEST(Fabric, TellsWhenAnInterfaceHasRoomAgain) {
  FabricShape shape = small();
  shape.nic_bytes = 4 * kWireBytes;
  Hosts hosts(shape);
  int sent = 0;
  while (hosts.fabric.room_at(0, kBytes) <= hosts.fabric.now()) {
    hosts.send(0, 1);
    ++sent;
  }
  EXPECT_EQ(sent, 4);
  EXPECT_EQ((hosts.fabric.room_at(0, kBytes) - hosts.start).count(), kWireBytes);
}

TEST(Fabric, AddsUpWhatTheBusiestCableMustCarry) {
  Hosts hosts(small());
  Fabric::Load load(hosts.fabric);
  load.add(1, 0, 1'000);
  load.add(2, 0, 2'000);
  load.add(0, 5, 500);
  EXPECT_EQ(load.time(), Duration{3'000});
  EXPECT_EQ(load.busiest().first, PortKind::leaf_down);
}

}  // namespace
}  // namespace weir::sim
