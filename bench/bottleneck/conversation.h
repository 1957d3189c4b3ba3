// How bench/bottleneck speaks with the programs that it starts. A program says `{"ready":true}` when it can be used.
// Then each line on its standard input asks for something, and one JSON object in one line is the answer:
//
//   round     a client makes all its calls at once and waits for all of them
//   counters  what the program counted since it started
//
// The end of the input ends the program, so that no program outlives whoever started it.
#pragma once

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "../peers/harness.h"

namespace weir::bench {

enum class Asked : std::uint8_t { nothing, round, counters, end };

class Conversation {
 public:
  static void say(const std::string& object) {
    std::printf("%s\n", object.c_str());
    std::fflush(stdout);
  }

  // What the next line asks for; `nothing` if none arrives within `patience_ms` (-1: waits for ever).
  Asked next(int patience_ms) {
    for (;;) {
      if (const std::size_t end = pending_.find('\n'); end != std::string::npos) {
        const std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        if (line == "round") return Asked::round;
        if (line == "counters") return Asked::counters;
        fail("'" + line + "' is nothing that this program is asked for");
      }
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      if (poll(&input, 1, patience_ms) <= 0) return Asked::nothing;
      char bytes[256];
      const ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));
      if (count <= 0) return Asked::end;
      pending_.append(bytes, static_cast<std::size_t>(count));
      if (pending_.size() > kLongestLine) fail("a line is too long");
    }
  }

 private:
  static constexpr std::size_t kLongestLine = 4096;
  std::string pending_;
};

// What happened in one round of calls.
struct Round {
  std::uint64_t begin_ns = 0, end_ns = 0;  // CLOCK_MONOTONIC: rounds of several processes can be put side by side
  std::uint64_t completed = 0, failed = 0;
  std::string first_failure;

  std::string json() const {
    std::string sentence;  // without what would have to be escaped
    for (const char c : first_failure)
      sentence += c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    return "{\"begin_ns\":" + std::to_string(begin_ns) + ",\"end_ns\":" + std::to_string(end_ns) +
           ",\"completed\":" + std::to_string(completed) + ",\"failed\":" + std::to_string(failed) +
           ",\"first_failure\":\"" + sentence + "\"}";
  }
};

// Server k of `address` listens at its port plus k.
inline std::string address_of(const std::string& address, unsigned k) {
  const sockaddr_in parsed = parse_address(address);
  const unsigned port = ntohs(parsed.sin_port) + k;
  if (port > 65'535) fail("there are not so many ports from " + address + " on");
  return address.substr(0, address.rfind(':')) + ":" + std::to_string(port);
}

}  // namespace weir::bench
