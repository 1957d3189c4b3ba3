// Named kinds of trouble. A scenario's figures come from the seed, so that every seed tries another network.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/address_trial.h"
#include "sim/hostile_sender.h"
#include "sim/identities.h"
#include "sim/link.h"
#include "sim/member_trial.h"
#include "sim/network.h"
#include "sim/workload.h"
#include "weir/config.h"

namespace weir::sim {

// Hosts that prove who they are, instead of a secret that all share.
struct IdentityShape {
  bool keeps_signer = true;
  std::vector<std::int64_t> clock_error_seconds;  // by host; those beyond have none
  std::optional<Faults> handshake_faults;         // of the handshakes' datagrams; none: those of all others
  Duration grace = std::chrono::seconds(30);
  Duration simultaneous = std::chrono::seconds(10);
  std::optional<ShortCertificates> certificates;
};

// A process that dies so long after the n-th datagram has reached the switch, of the run, or from the first datagram of
// a handshake on that comes later than `from`.
struct CrashAt {
  HostId host = 0;
  Duration from{0};
  std::uint32_t datagram = 0;
  Duration delay{0};
  Duration absence{0};
};

// Regions that a process takes back so long after the n-th datagram of the run has reached the switch.
struct RevokeAt {
  HostId host = 0;
  std::uint32_t datagram = 0;
  Duration delay{0};
};

// A host that stops, for any time up to the longest stall, when the n-th datagram of the run has reached the switch.
struct StallAt {
  HostId host = 0;  // modulo the number of hosts
  std::uint32_t datagram = 0;
};

struct Scenario {
  std::string_view name;
  std::uint64_t seed = 0;

  std::uint32_t hosts = 4;
  std::uint32_t workers = 1;  // of each host
  LinkShape link;
  SimLink::Options socket;
  Faults faults;
  std::size_t largest_datagram_bytes = 65'507;  // that engines try for
  std::uint64_t nic_bytes_per_second = 0;       // that the engines of a host send together at most; 0: any
  Limits limits;
  Timeouts timeouts;
  std::uint64_t rotate_packets = 1u << 22;
  WorkloadShape workload;
  std::optional<IdentityShape> identity;

  // What happens within `span` from the start; then the network heals and everything comes to an end.
  Duration span{300'000'000};
  std::uint32_t partitions = 0;
  Duration longest_partition{200'000'000};
  Duration start_spread{0};  // hosts start within this
  std::uint32_t crashes = 0;
  std::vector<CrashAt> crashes_at;
  std::uint32_t closings = 0;  // orderly ends, followed by a restart
  Duration longest_absence{50'000'000};
  bool reports_closed_ports = false;
  // Hosts that stop for a while: nothing polls their sockets, in which datagrams wait until these are full.
  std::uint32_t stalls = 0;  // at any time
  std::vector<StallAt> stalls_at;
  Duration longest_stall{50'000'000};
  Duration shortest_stall{1'000'000};
  bool is_punctual = false;    // no host is ever late
  Duration timer_lateness{0};  // by up to so much is a worker late for each of its timers
  std::uint32_t mtu_changes = 0;
  std::uint32_t revocations = 0;  // each of some of the regions that a process has granted
  std::vector<RevokeAt> revokes_at;
  Duration attack_interval{0};    // 0: nobody attacks
  Duration carry_interval{0};     // of a courier; 0: there is none
  std::uint32_t reshuffles = 0;   // of the sockets that workers of a host share
  std::uint32_t forgettings = 0;  // of the credentials of all who call a host
  HostileShape hostile;
  std::optional<MemberShape> members;
  std::optional<AddressShape> addresses;

  // A restarted callee must be of use again so soon after the first packet that reaches it.
  bool measures_recovery = false;
  bool measures_reconnection = false;   // the same, also if it dies before it was ever of use
  std::uint32_t least_credentials = 0;  // that each caller is given in the run
  Duration handshake_interval{0};       // on average a caller begins at most one with each callee in so long; 0: any
  double least_success = 0;             // share of the calls that must get an answer
  double most_sent_again = 1;           // share of the bytes sent within the span
  double most_needless_probes = -1;     // for each stall and path; negative: nobody looks
  double least_advantage = 0;           // by which urgent calls must be faster than bulk ones; 0: nobody looks
};

// A worker that is not scheduled, a machine that swaps, a virtual machine that is moved.
inline constexpr Duration kLongestStall = std::chrono::seconds(5);

std::span<const std::string_view> scenario_names();
std::string_view describe_scenario(std::string_view name);  // what goes wrong in it; empty if there is no such
// Nothing if there is no scenario of that name.
std::optional<Scenario> make_scenario(std::string_view name, std::uint64_t seed);

}  // namespace weir::sim
