// What `weir perf` is asked for, and what it means for a pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/weir/command.h"
#include "apps/weir/security_options.h"
#include "weir/config.h"
#include "weir/method.h"

namespace weir::command {

enum class Mode : std::uint8_t {
  inline_loop,  // no threads: everything happens in one loop
  threads,      // worker threads beside the application's
};

struct PerfOptions : SecurityOptions {
  Mode mode = Mode::inline_loop;
  Idle idle = Idle::adaptive;
  int core = -1;
  int mtu = 0;  // of the IP layer, as interfaces state it; 0: what the path gives
  int workers = 1;
  std::uint64_t nic_bits_per_s = 0;  // 0: as fast as it goes
  std::string nic;                   // empty: what has the address
  bool portable_link = false;
  bool openssl = false;
  BufferPlan buffers;
  std::uint64_t largest_bytes = Limits{}.message_bytes;  // of a message
  bool has_large = true;                                 // whether there may be some over Limits::inline_bytes
  bool is_v6 = false;                                    // what the addresses given are
};

// What a client does again and again.
enum class Pattern : std::uint8_t { call, put, get, broadcast };

struct PatternWords {
  const char* one;
  const char* many;
};
inline PatternWords words_of(Pattern pattern) {
  switch (pattern) {
    case Pattern::put:
      return {"put", "puts"};
    case Pattern::get:
      return {"get", "gets"};
    case Pattern::broadcast:
      return {"broadcast", "broadcasts"};
    case Pattern::call:
      break;
  }
  return {"call", "calls"};
}

struct PerfServerOptions : PerfOptions {
  std::string listen;
  std::uint32_t servers = 1;  // at consecutive ports, on the same workers
  double seconds = 0;         // 0: until a signal comes
};

struct PerfClientOptions : PerfOptions {
  Pattern pattern = Pattern::call;
  std::vector<std::string> peers;
  std::string name;  // what the servers' certificates must prove; empty: their addresses
  std::uint32_t window = 1;
  std::uint64_t request_bytes = 32;
  std::uint64_t reply_bytes = 32;
  std::uint64_t max_reply = 0;  // CallOptions::max_reply
  double seconds = 10;
  std::uint64_t count = 0;  // 0: as many as `seconds` allow
  double warm_up_seconds = 0.2;
  double interval_seconds = 1;
  bool json = false;
  bool sweep = false;  // one measurement for each size and window below, instead of the two above
  std::vector<std::uint64_t> sizes{32,     256,    1'024,  4'096,  8'192,  12'000,  16'000,
                                   16'384, 20'480, 32'768, 61'440, 65'536, 262'144, 1'048'576};
  std::vector<std::uint32_t> windows{1, 64, 1'024};
};

// Bytes of an IP and a UDP header: what separates a datagram from the packet that an interface carries.
inline constexpr int ip_and_udp_bytes(bool is_v6) { return is_v6 ? 48 : 28; }
inline constexpr std::uint64_t kMaxBodyBytes = 0xffff'ffff;  // what the four bytes below can say

// The method that a perf server serves. The first four bytes of a request (little endian) say how long the reply shall
// be; a request shorter than that carries them in its header instead.
inline constexpr Method kPerfMethod{"perf"};
inline constexpr std::size_t kReplyLengthBytes = 4;
// The same, where requests or replies are larger than fits inline: the handler runs beside the worker, because it
// seals.
inline constexpr Method kPerfLargeMethod{"perf.large"};

// Memory of the server, of --largest bytes, that clients put into and get from.
inline constexpr const char* kPerfPlacement = "perf";

inline bool is_large(const PerfClientOptions& options) {
  constexpr std::uint64_t kInlineBytes = Limits{}.inline_bytes;
  return options.pattern != Pattern::call ||
         std::max(options.request_bytes, options.reply_bytes) + kReplyLengthBytes > kInlineBytes;
}

// What one call moves, all peers of a broadcast together.
inline std::uint64_t payload_bytes(const PerfClientOptions& options) {
  std::uint64_t peers = options.pattern == Pattern::broadcast ? options.peers.size() : 1;
  return peers * (options.request_bytes + options.reply_bytes);
}

// Also pins the calling thread, if a core was asked for.
Config to_config(const PerfOptions& options, std::shared_ptr<Witness> witness);

void run_perf_server(const PerfServerOptions& options);
void run_perf_client(const PerfClientOptions& options);
void run_perf_sweep(const PerfClientOptions& options);

}  // namespace weir::command
