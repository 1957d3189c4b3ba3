// An initiator whose address changes: a NAT gave it another port, or its host another address. The responder validates
// the new address before anything but challenges goes there, in the manner of RFC 9000, sections 8.2 and 9 (rules P-9
// and P-11 to P-13).
//
// Somebody who copies a packet and sends the copy from an address of his own looks the same at first. He cannot answer
// the challenge from there: the initiator answers whatever reaches it, but from its own address. Should he relay the
// answer, too, and be quicker than the original, the initiator's own packets from the old address still end the
// attempt, and a challenge to the old address makes sure that there are some.
#include "engine/address_change.h"

#include <algorithm>
#include <cstring>

#include "engine/core.h"

namespace weir::engine {

// An authenticated packet on a path whose address may be changing, or one that came from another address.
void Core::on_source(Path& path, std::uint64_t number, std::size_t bytes, bool is_newest, Instant now) {
  const Address& from = *opened.from;
  AddressChange* const change = path.change.get();
  if (from == path.remote) {
    if (number > change->since) path.change.reset();  // what was sent later comes from here: nothing has changed
    return;
  }
  if (change != nullptr && from == change->to) {
    change->received_bytes += bytes;
    return;
  }
  // One that was overtaken may have been sent before the address changed, or be an old one that was held back.
  if (!is_newest || now < path.next_change) return;
  path.next_change = now + kAddressChangeInterval;
  std::array<std::byte, sizeof(std::uint64_t)> drawn;
  entropy.fill(drawn);
  path.change = std::make_unique<AddressChange>(AddressChange{.to = from,
                                                              .since = number,
                                                              .challenge = load<std::uint64_t>(drawn.data()),
                                                              .received_bytes = bytes,
                                                              .quiet_until = now + path.loss.pto()});
  challenge_addresses(path, now);
}

void Core::challenge_addresses(Path& path, Instant now) {
  AddressChange& change = *path.change;
  if (change.sent_bytes + kChallengePacketBytes <= kAmplification * change.received_bytes) {
    change.sent_bytes += kChallengePacketBytes;
    send_challenge(path, change.to, change.challenge, now);
  }
  // What this one says counts for nothing; an answer from there does.
  send_challenge(path, path.remote, ~change.challenge, now);
  const Duration wait = std::max<Duration>(path.loss.pto(), kShortestChallengeRepeat);
  change.next = now + wait * (std::int64_t{1} << change.challenges);
  ++change.challenges;
  touch(path);
}

void Core::send_challenge(Path& path, const Address& to, std::uint64_t value, Instant now) {
  std::array<std::byte, kChallengePacketBytes> packet;
  std::byte* const text = packet.data() + wire::kHeaderBytes;
  std::byte* const end = wire::encode_u64(wire::FrameType::path_challenge, value, text);
  seal_packet(path, packet.data(), wire::kHeaderBytes, text, end,
              {.frames_begin = path.frames.end(), .ecn = recovery::EcnMark::none}, now);
  ++events.counters.packets_control_only;
  queue_plain(to, packet);
}

void Core::on_path_response(Path& path, std::uint64_t value, Instant now) {
  AddressChange* const change = path.change.get();
  if (change == nullptr || *opened.from != change->to || value != change->challenge) return;
  change->is_answered = true;
  change->next = change->quiet_until;
  if (change->next <= now) move_path(path, now);
}

void Core::on_change_timer(Path& path, Instant now) {
  AddressChange& change = *path.change;
  if (change.is_answered) return move_path(path, now);
  // Whoever is there after all sends another packet, and another attempt begins.
  if (change.challenges >= kMaxChallenges) return path.change.reset();
  challenge_addresses(path, now);
}

void Core::move_path(Path& path, Instant now) {
  const std::unique_ptr<AddressChange> change = std::move(path.change);
  const bool is_other_host = change->to.ip != path.remote.ip || change->to.scope != path.remote.scope;
  events.emit(event::AddressChanged{{}, path.id, path.remote.to_string(), change->to.to_string()});
  path.remote = change->to;
  // What was sent to the old address has not arrived. That says nothing about the new one.
  send_outstanding_again(path, now);
  if (is_other_host) {  // another way through the network: nothing that was learnt of the old one holds
    path.loss.forget_path();
    path.congestion = {};
    path.pacer = schedule::Pacer{};
    path.ecn.start_over();
    path.mtu.start_over(now);
  }
  path.announce_path = true;  // with the reset key of the new address
  path.probes_owed = std::max(path.probes_owed, 1u);
  touch(path);
}

}  // namespace weir::engine
