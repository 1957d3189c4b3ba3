#include "routes.h"

#include <ns3/ipv4-header.h>
#include <ns3/ipv4-route.h>
#include <ns3/net-device.h>

namespace weir::bench {
namespace {

HostId host_at(ns3::Ipv4Address address) { return address.Get() - kFirstHostAddress; }

std::uint64_t hash_of(HostId from, HostId to) {
  std::uint64_t word = (std::uint64_t{from} << 32 | to) + 0x9e3779b97f4a7c15;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
  word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
  return word ^ (word >> 31);
}

}  // namespace

ns3::TypeId Routes::GetTypeId() {
  static ns3::TypeId id = ns3::TypeId("weir::bench::Routes").SetParent<ns3::Ipv4RoutingProtocol>();
  return id;
}

void Routes::add(HostId to, std::uint32_t interface) {
  if (to >= interfaces_.size()) interfaces_.resize(to + 1);
  interfaces_[to].push_back(interface);
}

std::uint32_t Routes::interface_to(HostId to, HostId from) const {
  if (to >= interfaces_.size() || interfaces_[to].empty()) return 0;
  const std::vector<std::uint32_t>& choices = interfaces_[to];
  return choices[hash_of(from, to) % choices.size()];
}

ns3::Ptr<ns3::Ipv4Route> Routes::route(const ns3::Ipv4Header& header) const {
  const std::uint32_t interface = interface_to(host_at(header.GetDestination()), host_at(header.GetSource()));
  if (interface == 0) return nullptr;
  auto found = ns3::Create<ns3::Ipv4Route>();
  found->SetDestination(header.GetDestination());
  found->SetGateway(ns3::Ipv4Address::GetZero());
  found->SetSource(ipv4_->GetAddress(interface, 0).GetLocal());
  found->SetOutputDevice(ipv4_->GetNetDevice(interface));
  return found;
}

ns3::Ptr<ns3::Ipv4Route> Routes::RouteOutput(ns3::Ptr<ns3::Packet>, const ns3::Ipv4Header& header,
                                             ns3::Ptr<ns3::NetDevice>, ns3::Socket::SocketErrno& error) {
  ns3::Ptr<ns3::Ipv4Route> found = route(header);
  error = found ? ns3::Socket::ERROR_NOTERROR : ns3::Socket::ERROR_NOROUTETOHOST;
  return found;
}

bool Routes::RouteInput(ns3::Ptr<const ns3::Packet> packet, const ns3::Ipv4Header& header,
                        ns3::Ptr<const ns3::NetDevice> device, UnicastForwardCallback forward, MulticastForwardCallback,
                        LocalDeliverCallback deliver, ErrorCallback fail) {
  const auto from = static_cast<std::uint32_t>(ipv4_->GetInterfaceForDevice(device));
  if (ipv4_->IsDestinationAddress(header.GetDestination(), from)) {
    deliver(packet, header, from);
    return true;
  }
  if (ns3::Ptr<ns3::Ipv4Route> found = route(header)) {
    forward(found, packet, header);
  } else {
    fail(packet, header, ns3::Socket::ERROR_NOROUTETOHOST);
  }
  return true;
}

void Routes::DoDispose() {
  ipv4_ = nullptr;
  ns3::Ipv4RoutingProtocol::DoDispose();
}

}  // namespace weir::bench
