// RepeatedBytes: how many of the bytes on the wire had been there before, second by second.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/time.h"
#include "sim/network.h"

namespace weir::sim {

// One second of a run. Sizes are those of UDP datagrams.
struct WireSecond {
  std::uint64_t datagrams = 0;
  std::uint64_t bytes = 0;
  std::uint64_t frames = 0;  // bytes of packets whose frames an engine sent again
  std::uint64_t hellos = 0;  // bytes of hellos that made no path, and of as many replies to hellos
  std::uint64_t firsts = 0;  // bytes of first packets but the first one of each path
  std::uint64_t closes = 0;  // bytes of closing packets that were sent again

  std::uint64_t repeated() const { return frames + hellos + firsts + closes; }
  double share() const { return bytes == 0 ? 0 : static_cast<double>(repeated()) / static_cast<double>(bytes); }
};

// Looks at every datagram that reaches the switch. What is inside of sealed packets the engines themselves count. A
// first packet that is repeated counts twice, here and there: the share is never too low.
class RepeatedBytes {
 public:
  explicit RepeatedBytes(Instant start) : start_(start) {}

  void on_datagram(const Packet& packet, Instant now);
  // Bytes of packets that engines sent again since the last time they were asked.
  void on_frames_repeated(std::uint64_t bytes, Instant now) { second(now).frames += bytes; }

  // One entry for each second that has begun. What made no path is known at the end of the run only.
  std::vector<WireSecond> seconds() const;

 private:
  using RandomBytes = std::array<std::byte, 32>;
  struct Greeting {
    RandomBytes random{};  // of the last path that was followed up by a first packet
    std::array<std::byte, 34> closing{};
  };
  // Hellos, and replies to hellos, that led to nothing so far.
  struct Handshakes {
    std::uint64_t hellos = 0, hello_bytes = 0, replies = 0, reply_bytes = 0, paths = 0;
  };

  WireSecond& second(Instant now);

  Instant start_;
  std::vector<WireSecond> seconds_;
  std::vector<Handshakes> handshakes_;
  std::map<Address, Greeting> greetings_;
};

}  // namespace weir::sim
