#include "sim/attacker.h"

#include <utility>

#include "sim/handshaker.h"
#include "sim/random_stream.h"

namespace weir::sim {

Attacker::Attacker(World& world) : world_(world), random_(stream(world.seed, "attacker")) {
  world_.network.add_tap([this](const Packet& packet) {
    if (records_) record(packet);
  });
}

void Attacker::record(const Packet& packet) {
  ++seen_;
  if (recorded_.size() < kMaxRecorded) {
    recorded_.push_back(packet);
  } else {
    const std::uint64_t place = random_.below(seen_);
    if (place < kMaxRecorded) recorded_[place] = packet;
  }
}

void Attacker::start(Duration interval) {
  interval_ = interval;
  running_ = true;
  world_.queue.after(interval_, [this] { strike(); });
}

void Attacker::strike() {
  if (!running_) return;
  world_.queue.after(between(random_, Duration{1}, interval_ * 2), [this] { strike(); });
  const std::uint64_t die = random_.below(100);
  if (recorded_.empty() || die < 20) {
    world_.network.inject(junk());
    return;
  }
  if (die < 25) {
    forge_unreachable();
    return;
  }
  Packet packet = recorded_[random_.below(recorded_.size())];
  if (die < 35) {
    packet.source = stranger();
  } else if (die < 45) {
    packet.source = anybody(packet.source.port);
  } else if (die < 52) {
    packet.destination = anybody(packet.destination.port);
  } else if (die < 56) {
    std::swap(packet.source, packet.destination);
  } else if (die < 62 && !packet.bytes.empty()) {
    packet.bytes.resize(random_.below(packet.bytes.size()));
  } else if (die < 66) {
    packet.bytes.resize(packet.bytes.size() + random_.below(64), std::byte{0});
  } else if (die < 72 && !packet.bytes.empty()) {
    packet.bytes[random_.below(packet.bytes.size())] ^= static_cast<std::byte>(1u << random_.below(8));
  }
  world_.network.inject(std::move(packet));
}

void Attacker::forge_unreachable() {
  const Packet& packet = recorded_[random_.below(recorded_.size())];
  std::vector<std::byte> quoted(packet.bytes.begin(), packet.bytes.end());
  // A right quotation of something in flight would be believed, as it should be.
  for (std::byte& b : quoted) b ^= static_cast<std::byte>(random_.next());
  world_.network.inject_unreachable(packet.source, packet.destination, quoted);
}

Packet Attacker::junk() {
  Packet packet;
  const std::vector<Address>& addresses = world_.network.addresses();
  packet.destination = addresses[random_.below(addresses.size())];
  packet.source = random_.chance(0.5) ? stranger() : anybody(packet.destination.port);
  packet.ecn = static_cast<std::uint8_t>(random_.below(4));
  packet.bytes.resize(random_.below(random_.chance(0.5) ? 64 : 1'500));
  for (std::byte& b : packet.bytes) b = static_cast<std::byte>(random_.next());
  // The first byte of a packet tells its kind: try the plausible ones more often than chance would.
  if (!packet.bytes.empty() && random_.chance(0.7) && !recorded_.empty()) {
    const Packet& model = recorded_[random_.below(recorded_.size())];
    // What QUIC seals of its first byte comes from dice that no seed reaches.
    const bool is_quic = model.destination.port == kHandshakePort || model.source.port == kHandshakePort;
    const auto plain = is_quic ? std::byte{0xc0} : std::byte{0xff};
    if (!model.bytes.empty()) packet.bytes[0] = model.bytes[0] & plain;
  }
  return packet;
}

Address Attacker::anybody(std::uint16_t port) {
  Address address = world_.network.address_of(static_cast<HostId>(random_.below(world_.network.host_count())));
  address.port = port;
  return address;
}

Address Attacker::stranger() {
  return Address::v4(0xc6336400u + static_cast<std::uint32_t>(random_.below(256)),
                     static_cast<std::uint16_t>(1 + random_.below(65'535)));
}

void Attacker::replay_everything(Duration interval) {
  records_ = false;
  Instant when = world_.now();
  for (const Packet& packet : recorded_) {
    when = when + interval;
    world_.queue.at(when, [this, &packet] { world_.network.inject(packet); });
  }
}

}  // namespace weir::sim
