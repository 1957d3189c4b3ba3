#include "tcp_host.h"

#include <ns3/boolean.h>
#include <ns3/config.h>
#include <ns3/data-rate.h>
#include <ns3/inet-socket-address.h>
#include <ns3/node.h>
#include <ns3/packet.h>
#include <ns3/string.h>
#include <ns3/tcp-socket-base.h>
#include <ns3/tcp-socket-factory.h>
#include <ns3/uinteger.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "network.h"

namespace weir::bench {
namespace {

constexpr std::uint16_t kPort = 5000;
constexpr std::uint32_t kSegmentBytes = kMtu - 20 - 32;  // less the headers of IP and of TCP with its timestamps
constexpr std::uint32_t kSocketBufferBytes = 4u << 20;
constexpr std::uint32_t kLargestWriteBytes = 64u << 10;

using SocketCallback = ns3::Callback<void, ns3::Ptr<ns3::Socket>>;

template <class Value>
void set_default(const char* name, const Value& value) {
  ns3::Config::SetDefault(name, value);
}

}  // namespace

// As Linux has it where ns-3 differs: initial window, delayed acknowledgements, retries, buffers.
void configure_tcp(const TcpOptions& options) {
  set_default("ns3::TcpL4Protocol::SocketType", ns3::TypeIdValue(ns3::TypeId::LookupByName(options.congestion)));
  set_default("ns3::TcpSocketBase::UseEcn", ns3::StringValue(options.uses_ecn ? "On" : "Off"));
  set_default("ns3::TcpSocketBase::MinRto", ns3::TimeValue(ns3::NanoSeconds(options.least_timeout.count())));
  set_default("ns3::TcpSocketBase::ClockGranularity", ns3::TimeValue(ns3::MilliSeconds(1)));
  set_default("ns3::TcpSocketState::MaxPacingRate", ns3::DataRateValue(ns3::DataRate(100'000'000'000)));
  set_default("ns3::TcpSocket::SegmentSize", ns3::UintegerValue(kSegmentBytes));
  set_default("ns3::TcpSocket::InitialCwnd", ns3::UintegerValue(10));
  set_default("ns3::TcpSocket::SndBufSize", ns3::UintegerValue(kSocketBufferBytes));
  set_default("ns3::TcpSocket::RcvBufSize", ns3::UintegerValue(kSocketBufferBytes));
  set_default("ns3::TcpSocket::DelAckTimeout", ns3::TimeValue(ns3::MilliSeconds(40)));
  set_default("ns3::TcpSocket::DelAckCount", ns3::UintegerValue(2));
  set_default("ns3::TcpSocket::ConnTimeout", ns3::TimeValue(ns3::Seconds(1)));
  set_default("ns3::TcpSocket::DataRetries", ns3::UintegerValue(15));
}

ns3::TypeId TcpHost::GetTypeId() {
  static ns3::TypeId id = ns3::TypeId("weir::bench::TcpHost").SetParent<BurstHost>();
  return id;
}

void TcpHost::StartApplication() {
  listener_ = ns3::Socket::CreateSocket(GetNode(), ns3::TcpSocketFactory::GetTypeId());
  const int bound = listener_->Bind(ns3::InetSocketAddress(ns3::Ipv4Address::GetAny(), kPort));
  WEIR_CHECK(bound == 0, "the port is free");
  listener_->SetAcceptCallback(ns3::MakeNullCallback<bool, ns3::Ptr<ns3::Socket>, const ns3::Address&>(),
                               ns3::Callback<void, ns3::Ptr<ns3::Socket>, const ns3::Address&>(
                                   [this](ns3::Ptr<ns3::Socket> accepted, const ns3::Address&) {
                                     Connection& connection = connections_.emplace_back();
                                     connection.socket = std::move(accepted);
                                     watch(connection, false);
                                   }));
  listener_->Listen();
}

void TcpHost::DoDispose() {
  listener_ = nullptr;
  callees_.clear();
  for (Connection& connection : connections_) {
    connection.socket->SetRecvCallback(ns3::MakeNullCallback<void, ns3::Ptr<ns3::Socket>>());
    connection.socket->SetSendCallback(ns3::MakeNullCallback<void, ns3::Ptr<ns3::Socket>, std::uint32_t>());
  }
  connections_.clear();
  BurstHost::DoDispose();
}

// ---- connections ---------------------------------------------------------------------------------------------------

TcpHost::Connection& TcpHost::connection_to(HostId host) {
  Connection*& known = callees_[host];
  if (known != nullptr && !known->has_failed) return *known;
  known = &connections_.emplace_back();
  known->socket = ns3::Socket::CreateSocket(GetNode(), ns3::TcpSocketFactory::GetTypeId());
  known->socket->Bind();
  watch(*known, true);
  known->socket->Connect(ns3::InetSocketAddress(address_of(host), kPort));
  return *known;
}

void TcpHost::watch(Connection& connection, bool calls) {
  const auto end = [this, it = &connection](const ns3::Ptr<ns3::Socket>&) { fail(*it); };
  connection.socket->SetConnectCallback(
      SocketCallback([this, it = &connection](const ns3::Ptr<ns3::Socket>&) { push(*it); }), SocketCallback(end));
  connection.socket->SetCloseCallbacks(SocketCallback(end), SocketCallback(end));
  connection.socket->SetSendCallback(ns3::Callback<void, ns3::Ptr<ns3::Socket>, std::uint32_t>(
      [this, it = &connection](const ns3::Ptr<ns3::Socket>&, std::uint32_t) { push(*it); }));
  connection.socket->SetRecvCallback(SocketCallback([this, calls, it = &connection](const ns3::Ptr<ns3::Socket>&) {
    if (calls) {
      take_replies(*it);
    } else {
      take_requests(*it);
    }
  }));
  using Sent =
      ns3::Callback<void, ns3::Ptr<const ns3::Packet>, const ns3::TcpHeader&, ns3::Ptr<const ns3::TcpSocketBase>>;
  connection.socket->TraceConnectWithoutContext(
      "Tx", Sent([this, it = &connection](const ns3::Ptr<const ns3::Packet>& packet, const ns3::TcpHeader& header,
                                          const ns3::Ptr<const ns3::TcpSocketBase>&) {
        count(*it, header.GetSequenceNumber().GetValue(), packet->GetSize());
      }));
}

// What lies before the highest sequence number was sent before.
void TcpHost::count(Connection& connection, std::uint32_t sequence, std::uint32_t bytes) {
  if (bytes == 0) return;
  const std::uint32_t end = sequence + bytes;
  if (!std::exchange(connection.has_sent, true)) connection.next_sequence = sequence;
  const auto ahead = static_cast<std::int32_t>(connection.next_sequence - sequence);
  retransmitted_bytes_ += static_cast<std::uint32_t>(std::clamp(ahead, 0, static_cast<std::int32_t>(bytes)));
  if (static_cast<std::int32_t>(end - connection.next_sequence) > 0) connection.next_sequence = end;
}

void TcpHost::push(Connection& connection) {
  while (connection.unsent_bytes > 0) {
    const std::uint64_t room = std::min(connection.socket->GetTxAvailable(), kLargestWriteBytes);
    const auto bytes = static_cast<std::uint32_t>(std::min(connection.unsent_bytes, room));
    if (bytes == 0 || connection.socket->Send(ns3::Create<ns3::Packet>(bytes)) < 0) return;
    connection.unsent_bytes -= bytes;
  }
}

std::uint64_t TcpHost::take(Connection& connection, std::uint32_t message_bytes) {
  while (const ns3::Ptr<ns3::Packet> packet = connection.socket->Recv()) {
    if (packet->GetSize() == 0) break;
    connection.received_bytes += packet->GetSize();
  }
  const std::uint64_t messages = connection.received_bytes / message_bytes;
  connection.received_bytes %= message_bytes;
  return messages;
}

void TcpHost::take_requests(Connection& connection) {
  connection.unsent_bytes += take(connection, messages_.request_bytes) * messages_.reply_bytes;
  push(connection);
}

// ---- callers -------------------------------------------------------------------------------------------------------

void TcpHost::call(const std::vector<HostId>& callees) {
  std::vector<Connection*> used;
  for (const HostId callee : callees) {
    Connection& connection = connection_to(callee);
    if (connection.outstanding == 0) used.push_back(&connection);
    ++connection.outstanding;
    connection.unsent_bytes += messages_.request_bytes;
  }
  for (Connection* const connection : used) push(*connection);
}

void TcpHost::take_replies(Connection& connection) {
  const std::uint64_t replies = take(connection, messages_.reply_bytes);
  WEIR_CHECK(replies <= connection.outstanding, "every reply has its call");
  connection.outstanding -= replies;
  for (std::uint64_t i = 0; i < replies; ++i) on_end({});
}

void TcpHost::fail(Connection& connection) {
  connection.has_failed = true;
  for (std::uint64_t lost = std::exchange(connection.outstanding, 0); lost > 0; --lost)
    on_end("the connection was lost");
}

}  // namespace weir::bench
