// ColdCallers: thousands of callers and one server whose socket has room for few of their requests. It measures how
// many of the bytes on the wire were sent again, and counts the calls that failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "sim/host.h"
#include "sim/repeated_bytes.h"
#include "sim/world.h"
#include "weir/config.h"
#include "weir/error.h"

namespace weir::sim {

struct ColdCallersShape {
  std::uint64_t seed = 1;
  std::uint32_t callers = 2'000;
  Duration length = std::chrono::seconds(60);
  std::uint32_t request_bytes = 1'024;
  std::uint32_t reply_bytes = 64;
  // The server answers one request after the other, each taking so long.
  Duration service_time = std::chrono::microseconds(50);
  // Between a reply and the caller's next call, at most. A path is cold again when the server has closed it meanwhile.
  Duration think_time{0};
  LinkShape link{.latency = std::chrono::microseconds(15), .queue_bytes = 4u << 20};
  // What Linux gives a socket by default, and what it charges for a datagram beside its bytes.
  SimLink::Options server_socket{.receive_buffer_bytes = 212'992, .datagram_overhead_bytes = 1'280};
  Duration datagram_cost = std::chrono::microseconds(1);  // of the server
  Faults faults;
  Timeouts timeouts;
};

// From this second on, so large may be the share of bytes that were sent again.
inline constexpr std::size_t kFirstJudgedSecond = 5;
inline constexpr double kLargestRepeatedShare = 0.05;

// Scenarios of this kind. They take too long for many seeds. Nothing if there is none of that name.
std::span<const std::string_view> cold_scenario_names();
std::string_view describe_cold_scenario(std::string_view name);
std::optional<ColdCallersShape> make_cold_scenario(std::string_view name, std::uint64_t seed);

struct ColdCallersReport {
  ColdCallersShape shape;
  std::vector<WireSecond> seconds;
  std::vector<std::uint64_t> completed;  // calls, by second
  std::uint64_t calls = 0;
  std::map<Code, std::uint64_t> failed;
  Duration longest_call{0};
  std::uint64_t socket_drops = 0;  // at the server
  std::uint64_t paths = 0;         // that the server made
  Counters callers;
  Counters server;

  std::uint64_t failures() const;
  // The largest share of bytes that were sent again in any whole second from `first` on.
  double worst_share(std::size_t first = kFirstJudgedSecond) const;
  bool is_good() const { return worst_share() < kLargestRepeatedShare && failures() == 0; }
  // A line for each second, and what came of the calls.
  void print(std::FILE* out) const;
};

// One run.
class ColdCallers final : public Application {
 public:
  explicit ColdCallers(const ColdCallersShape& shape);
  ~ColdCallers() override;

  ColdCallersReport run();

 private:
  struct Caller;

  static constexpr HostId kServer = 0;

  void on_start(HostId host) override;
  void on_stop(HostId host) override;
  static void run_request(void* context, transfer::IncomingTransfer& request, Instant now);
  static void complete(transfer::OutgoingCall& call, const transfer::Outcome& outcome);
  void call(Caller& caller);
  void on_complete(Caller& caller, const transfer::Outcome& outcome);
  void answer();
  void count_second();
  Host& server() { return *hosts_[kServer]; }

  ColdCallersShape shape_;
  World world_;
  Instant start_;
  RepeatedBytes repeated_;
  Random think_times_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::deque<transfer::IncomingTransfer*> requests_;  // that the server has and has not answered
  std::vector<std::byte> reply_;
  std::uint64_t bytes_repeated_ = 0;
  ColdCallersReport report_;
  bool is_over_ = false;
};

}  // namespace weir::sim
