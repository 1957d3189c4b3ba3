// Routes: how one node of the simulated network forwards packets. ns-3 of this version has no multipath routing that
// keeps the packets of a flow on one path, so this class is that.
#pragma once

#include <ns3/ipv4-routing-protocol.h>
#include <ns3/ipv4.h>

#include <cstdint>
#include <vector>

namespace weir::bench {

using HostId = std::uint32_t;

inline constexpr std::uint32_t kFirstHostAddress = 0x0a000001;  // of host 0; the next host has the next one
inline ns3::Ipv4Address address_of(HostId host) { return ns3::Ipv4Address(kFirstHostAddress + host); }

// One per node. Of several shortest paths a packet takes the one that a hash of its source and destination picks:
// packets from one host to another stay in order, and every transport protocol sees the same placement.
class Routes final : public ns3::Ipv4RoutingProtocol {
 public:
  static ns3::TypeId GetTypeId();

  // One more shortest path to the host begins at this interface.
  void add(HostId to, std::uint32_t interface);
  // 0 (the loopback interface): there is no path.
  std::uint32_t interface_to(HostId to, HostId from) const;

  // ---- ns3::Ipv4RoutingProtocol ----
  ns3::Ptr<ns3::Ipv4Route> RouteOutput(ns3::Ptr<ns3::Packet> packet, const ns3::Ipv4Header& header,
                                       ns3::Ptr<ns3::NetDevice> device, ns3::Socket::SocketErrno& error) override;
  bool RouteInput(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header,
                  ns3::Ptr<const ns3::NetDevice> device, UnicastForwardCallback forward, MulticastForwardCallback,
                  LocalDeliverCallback deliver, ErrorCallback fail) override;
  void NotifyInterfaceUp(std::uint32_t) override {}
  void NotifyInterfaceDown(std::uint32_t) override {}
  void NotifyAddAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
  void NotifyRemoveAddress(std::uint32_t, ns3::Ipv4InterfaceAddress) override {}
  void SetIpv4(ns3::Ptr<ns3::Ipv4> ipv4) override { ipv4_ = ipv4; }
  void PrintRoutingTable(ns3::Ptr<ns3::OutputStreamWrapper>, ns3::Time::Unit) const override {}

 private:
  void DoDispose() override;
  ns3::Ptr<ns3::Ipv4Route> route(const ns3::Ipv4Header& header) const;

  ns3::Ptr<ns3::Ipv4> ipv4_;
  std::vector<std::vector<std::uint32_t>> interfaces_;  // by host
};

}  // namespace weir::bench
