// What `weir perf` is asked for, and what it means for a pool.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/weir/command.h"
#include "weir/config.h"
#include "weir/method.h"

namespace weir::command {

enum class Mode : std::uint8_t {
  inline_loop,  // no threads: everything happens in one loop
  threads,      // worker threads beside the application's
};

// Exactly one of the first three says how the two sides know each other.
struct PerfOptions {
  std::string secret;
  std::string identity;                    // a directory with node.crt, node.key and ca.crt
  std::optional<std::string> development;  // a directory; empty: the usual one
  Mode mode = Mode::inline_loop;
  Idle idle = Idle::adaptive;
  int core = -1;
  int mtu = 0;  // of the IP layer, as interfaces state it; 0: what the path gives
  int workers = 1;
  bool portable_link = false;
  bool openssl = false;
  bool is_v6 = false;  // what the addresses given are
};

struct PerfServerOptions : PerfOptions {
  std::string listen;
  double seconds = 0;  // 0: until a signal comes
};

struct PerfClientOptions : PerfOptions {
  std::vector<std::string> peers;
  std::string name;  // what the servers' certificates must prove; empty: their addresses
  std::uint32_t window = 1;
  std::uint32_t request_bytes = 32;
  std::uint32_t reply_bytes = 32;
  double seconds = 10;
  std::uint64_t count = 0;  // 0: as many as `seconds` allow
  double warm_up_seconds = 0.2;
  double interval_seconds = 1;
  bool json = false;
};

// Bytes of an IP and a UDP header: what separates a datagram from the packet that an interface carries.
inline constexpr int ip_and_udp_bytes(bool is_v6) { return is_v6 ? 48 : 28; }
inline constexpr std::uint32_t kMaxBodyBytes = 16 * 1024 - 4;  // 4 may be needed for the header, see below

// The method that a perf server serves. The first four bytes of a request (little endian) say how long the reply shall
// be; a request shorter than that carries them in its header instead.
inline constexpr Method kPerfMethod{"weir.perf"};
inline constexpr std::size_t kReplyLengthBytes = 4;

// Also pins the calling thread, if a core was asked for.
Config to_config(const PerfOptions& options, std::shared_ptr<Witness> witness);

void run_perf_server(const PerfServerOptions& options);
void run_perf_client(const PerfClientOptions& options);

}  // namespace weir::command
