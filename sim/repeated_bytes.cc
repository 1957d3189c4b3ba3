#include "sim/repeated_bytes.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "wire/packet.h"

namespace weir::sim {

WireSecond& RepeatedBytes::second(Instant now) {
  const auto index = static_cast<std::size_t>((now - start_) / std::chrono::seconds(1));
  if (index >= seconds_.size()) {
    seconds_.resize(index + 1);
    handshakes_.resize(index + 1);
  }
  return seconds_[index];
}

void RepeatedBytes::on_datagram(const Packet& packet, Instant now) {
  WireSecond& current = second(now);
  Handshakes& handshakes = handshakes_[static_cast<std::size_t>(&current - seconds_.data())];
  const std::size_t bytes = packet.bytes.size();
  ++current.datagrams;
  current.bytes += bytes;
  switch (wire::decode_header(packet.bytes.data()).type) {
    case wire::PacketType::hello:
      ++handshakes.hellos;
      handshakes.hello_bytes += bytes;
      break;
    case wire::PacketType::hello_reply:
      ++handshakes.replies;
      handshakes.reply_bytes += bytes;
      break;
    case wire::PacketType::first: {
      const auto first = wire::decode_first(packet.bytes);
      if (!first) break;
      RandomBytes& random = greetings_[packet.source].random;
      if (first->prefix.initiator.random == random) {
        current.firsts += bytes;
      } else {
        random = first->prefix.initiator.random;
        ++handshakes.paths;
      }
      break;
    }
    case wire::PacketType::sealed: {
      auto& closing = greetings_[packet.destination].closing;
      if (bytes != closing.size()) break;
      if (std::ranges::equal(packet.bytes, closing)) current.closes += bytes;
      std::ranges::copy(packet.bytes, closing.begin());
      break;
    }
  }
}

std::vector<WireSecond> RepeatedBytes::seconds() const {
  std::vector<WireSecond> all = seconds_;
  // A hello and what follows it up may be in two seconds: what is left over of one is taken from the next.
  std::uint64_t paths_of_hellos = 0, paths_of_replies = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Handshakes& one = handshakes_[i];
    const auto wasted = [&one](std::uint64_t count, std::uint64_t bytes, std::uint64_t& paths) {
      paths += one.paths;
      const std::uint64_t used = std::min(paths, count);
      paths -= used;
      return count == 0 ? 0 : bytes / count * (count - used);
    };
    all[i].hellos =
        wasted(one.hellos, one.hello_bytes, paths_of_hellos) + wasted(one.replies, one.reply_bytes, paths_of_replies);
  }
  return all;
}

}  // namespace weir::sim
