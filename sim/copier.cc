#include "sim/copier.h"

#include <iterator>
#include <utility>

#include "sim/random_stream.h"
#include "wire/packet.h"

namespace weir::sim {
namespace {

constexpr std::uint32_t kFirstAddress = 0xc6336401u;  // 198.51.100.1
constexpr std::uint16_t kPort = 4'444;
constexpr Duration kLatest{2'000'000};  // after its original

}  // namespace

Copier::Copier(World& world, const CopierShape& shape)
    : world_(world), shape_(shape), random_(stream(world.seed, "copier")) {
  for (std::uint32_t i = 0; i < shape_.addresses; ++i) addresses_.insert(Address::v4(kFirstAddress + i, kPort));
}

void Copier::on_sent(const Packet& packet) {
  // Every die is rolled for every datagram, whatever the others showed.
  const bool copies = random_.chance(shape_.share);
  const bool is_late = random_.chance(shape_.late);
  const Duration delay = between(random_, Duration{0}, kLatest);
  const Address& from = *std::next(addresses_.begin(), static_cast<std::ptrdiff_t>(random_.below(addresses_.size())));
  // Who relays the answer to a hello of his is on the path from its beginning (P-12).
  const bool is_hello = wire::decode_header(packet.bytes.data()).type == wire::PacketType::hello;
  if (!copies || is_stopped_ || (shape_.relays && is_hello)) return;
  ++copies_;
  copied_from_ = packet.source;
  Packet copy = packet;
  copy.source = from;
  if (!is_late) return world_.network.inject(std::move(copy));
  world_.queue.after(delay, [this, late = std::move(copy)]() mutable { world_.network.inject(std::move(late)); });
}

void Copier::on_received(const Packet& packet) {
  if (!shape_.relays || is_stopped_) return;
  Packet relayed = packet;
  relayed.destination = copied_from_;
  world_.network.inject(std::move(relayed));
}

}  // namespace weir::sim
