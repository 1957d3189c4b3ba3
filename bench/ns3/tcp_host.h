// TcpHost: an application of ns-3 that makes the same calls over ns-3's TCP. Requests to one host share a connection,
// and follow each other on it without waiting for replies.
#pragma once

#include <ns3/socket.h>
#include <ns3/tcp-header.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"
#include "burst_host.h"

namespace weir::bench {

struct TcpOptions {
  std::string congestion;  // a class of ns-3
  bool uses_ecn = false;
  Duration least_timeout{};  // of retransmissions
};

// For all sockets that are made afterwards.
void configure_tcp(const TcpOptions& options);

class TcpHost final : public BurstHost {
 public:
  static ns3::TypeId GetTypeId();
  explicit TcpHost(const Messages& messages) : messages_(messages) {}

  // ---- BurstHost ----
  void call(const std::vector<HostId>& callees) override;
  std::uint64_t retransmitted_bytes() const override { return retransmitted_bytes_; }

 private:
  // One end of a connection. It stays where it is.
  struct Connection {
    ns3::Ptr<ns3::Socket> socket;
    std::uint64_t unsent_bytes = 0;    // of messages, that the socket had no room for
    std::uint64_t received_bytes = 0;  // of a message that is not complete
    std::uint64_t outstanding = 0;     // calls; of the end that calls
    std::uint32_t next_sequence = 0;   // beyond what was ever sent
    bool has_sent = false;
    bool has_failed = false;
  };

  // ---- ns3::Application ----
  void StartApplication() override;
  void DoDispose() override;

  Connection& connection_to(HostId host);
  void watch(Connection& connection, bool calls);
  void push(Connection& connection);
  void take_requests(Connection& connection);
  void take_replies(Connection& connection);
  // How many messages of this size are complete.
  static std::uint64_t take(Connection& connection, std::uint32_t message_bytes);
  void fail(Connection& connection);
  void count(Connection& connection, std::uint32_t sequence, std::uint32_t bytes);

  const Messages messages_;
  ns3::Ptr<ns3::Socket> listener_;
  std::deque<Connection> connections_;
  std::map<HostId, Connection*> callees_;
  std::uint64_t retransmitted_bytes_ = 0;
};

}  // namespace weir::bench
