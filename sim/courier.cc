#include "sim/courier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "sim/handshaker.h"
#include "sim/random_stream.h"
#include "wire/packet.h"

namespace weir::sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLongestDelay = 60ms;
constexpr Duration kLongestSiege = 250ms;
constexpr double kHoldBack = 0.1;       // share of the datagrams of a handshake that come late
constexpr double kBesiege = 0.4;        // share of FIRST packets after which the caller hears nothing for a while
constexpr double kCopy = 0.5;           // share of HELLO and FIRST packets of which other workers get a copy
constexpr double kForgeSequence = 0.2;  // share of these copies of FIRST packets that name another exchange

}  // namespace

Courier::Courier(World& world, std::vector<std::vector<Address>> data_addresses)
    : world_(world), data_addresses_(std::move(data_addresses)), random_(stream(world.seed, "courier")) {
  world_.network.set_interceptor([this](const Packet& packet) { return runs_ && intercept(packet); });
}

void Courier::start(Duration interval) {
  interval_ = interval;
  runs_ = true;
  world_.queue.after(interval_, [this] { strike(); });
}

void Courier::stop() {
  runs_ = false;
  sieges_.clear();
}

Courier::Kind Courier::kind_of(const Packet& packet) {
  const bool is_quic = packet.source.port == kHandshakePort || packet.destination.port == kHandshakePort;
  if (is_quic || packet.bytes.size() < wire::kUnknownPathBytes) return Kind::other;
  switch (wire::decode_header(packet.bytes.data()).type) {
    case wire::PacketType::sealed:
      return Kind::sealed;
    case wire::PacketType::first:
      return Kind::first;
    case wire::PacketType::hello:
      return packet.bytes[0] == wire::kUnknownSecretByte ? Kind::unknown_secret : Kind::hello;
    case wire::PacketType::hello_reply:
      return packet.bytes[0] == wire::kUnknownPathByte ? Kind::unknown_path : Kind::hello_reply;
  }
  return Kind::other;
}

bool Courier::intercept(const Packet& packet) {
  const Kind kind = kind_of(packet);
  if (kind == Kind::other) return false;
  if (kind == Kind::sealed) {
    if (!is_besieged(packet)) return false;
    if (random_.chance(0.3)) deliver_later(packet, kLongestSiege);
    return true;
  }
  record(kind, packet);
  if (kind == Kind::first && random_.chance(kBesiege)) {
    sieges_.try_emplace({packet.source, packet.destination}, world_.now() + any_length(random_, 1ms, kLongestSiege));
  }
  if ((kind == Kind::hello || kind == Kind::first) && random_.chance(kCopy)) copy_to_others(packet);
  if (kind == Kind::unknown_secret || kind == Kind::unknown_path) say_for_others(packet);
  if (!random_.chance(kHoldBack)) return false;
  deliver_later(packet, kLongestDelay);
  return true;
}

void Courier::record(Kind kind, const Packet& packet) {
  const auto which = static_cast<std::size_t>(kind);
  ++seen_[which];
  if (recorded_[which].size() < kMaxRecorded) {
    recorded_[which].push_back(packet);
  } else if (const std::uint64_t place = random_.below(seen_[which]); place < kMaxRecorded) {
    recorded_[which][place] = packet;
  }
}

// Hellos use up sequences of the other workers, so that a FIRST packet names one which they have given, too.
void Courier::copy_to_others(const Packet& packet) {
  const Duration longest = random_.chance(0.5) ? kLongestDelay : Duration{200'000};
  const std::uint64_t copies = between(random_, 1, 3);
  for (std::uint64_t i = 0; i < copies; ++i) {
    Packet copy = packet;
    copy.destination = another(packet.destination);
    deliver_later(copy, longest);
  }
}

void Courier::say_for_others(const Packet& packet) {
  const auto host = world_.network.find(packet.source);
  if (!host) return;
  for (const Address& worker : data_addresses_[*host]) {
    if (worker == packet.source) continue;
    Packet copy = packet;
    copy.source = worker;
    world_.network.inject(std::move(copy));
  }
}

bool Courier::is_besieged(const Packet& packet) const {
  const auto found = sieges_.find({packet.destination, packet.source});
  return found != sieges_.end() && world_.now() < found->second;
}

void Courier::deliver_later(const Packet& packet, Duration longest) {
  world_.queue.after(any_length(random_, 1us, longest), [this, copy = packet]() mutable {
    if (runs_) world_.network.inject(std::move(copy));
  });
}

Address Courier::another(const Address& address) {
  const auto host = world_.network.find(address);
  if (!host) return address;
  const std::vector<Address>& all = data_addresses_[*host];
  return all[random_.below(all.size())];
}

void Courier::strike() {
  if (!runs_) return;
  world_.queue.after(between(random_, Duration{1}, interval_ * 2), [this] { strike(); });
  std::erase_if(sieges_, [this](const auto& siege) { return siege.second + kLongestSiege < world_.now(); });
  const auto which = random_.below(kRecordedKinds);
  if (recorded_[which].empty()) return;
  Packet packet = recorded_[which][random_.below(recorded_[which].size())];
  const bool is_to_callee =
      which == static_cast<std::size_t>(Kind::hello) || which == static_cast<std::size_t>(Kind::first);
  if (random_.chance(0.6)) {
    Address& worker = is_to_callee ? packet.destination : packet.source;
    worker = another(worker);
  }
  if (which == static_cast<std::size_t>(Kind::first) && random_.chance(kForgeSequence)) {
    // Some exchange that the worker may have begun.
    const auto sequence = load<std::uint64_t>(packet.bytes.data() + wire::kHeaderBytes);
    store<std::uint64_t>(packet.bytes.data() + wire::kHeaderBytes, sequence - 4 + random_.below(9));
  }
  world_.network.inject(std::move(packet));
}

}  // namespace weir::sim
