// Somebody on the wire who knows no secret and works on paths that are being made: keeps datagrams back, delivers
// copies of them late and to other workers of the host that they were for, and says in the name of one worker what
// another has answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sim/world.h"

namespace weir::sim {

// One per run, if the scenario has one. Lives as long as the run. What it sends is forged from what it has seen; the
// hosts' addresses are its only other knowledge.
class Courier {
 public:
  static constexpr std::size_t kMaxRecorded = 256;  // of each kind; then new ones take the places of random old ones

  // `data_addresses`: by host, where its workers receive.
  Courier(World& world, std::vector<std::vector<Address>> data_addresses);

  // One datagram per `interval`, on average, until stop(), beside those that follow from others.
  void start(Duration interval);
  void stop();

 private:
  enum class Kind : std::uint8_t { hello, unknown_secret, hello_reply, unknown_path, first, sealed, other };
  static constexpr std::size_t kRecordedKinds = 5;  // those before `sealed`

  static Kind kind_of(const Packet& packet);
  bool intercept(const Packet& packet);
  void record(Kind kind, const Packet& packet);
  void copy_to_others(const Packet& packet);
  void say_for_others(const Packet& packet);
  bool is_besieged(const Packet& packet) const;
  void deliver_later(const Packet& packet, Duration longest);
  void strike();
  // Another address of the host that has this one.
  Address another(const Address& address);

  World& world_;
  const std::vector<std::vector<Address>> data_addresses_;
  Random random_;
  std::vector<Packet> recorded_[kRecordedKinds];
  std::uint64_t seen_[kRecordedKinds] = {};
  // Until when a caller hears nothing sealed of a callee, so that it does not learn what became of its FIRST packets.
  std::map<std::pair<Address, Address>, Instant> sieges_;
  Duration interval_{0};
  bool runs_ = false;
};

}  // namespace weir::sim
