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
#include <utility>

#include "engine/core.h"

namespace weir::engine {

// An authenticated packet on a path whose address may be changing, or one that came from another address.
void Core::on_source(Path& path, std::uint64_t number, std::size_t bytes, bool is_newest, Instant now) {
  const Address& from = *opened.from;
  AddressChange* const change = change_of(path);
  if (from == path.remote) {
    if (!change->is_resting && number > change->since) change->rest();  // what was sent later comes from here
    return;
  }
  if (change != nullptr && !change->is_resting && from == change->to) {
    change->received_bytes += bytes;
    return;
  }
  // One that was overtaken may have been sent before the address changed, or be an old one that was held back.
  if (!is_newest || (change != nullptr && now < change->rest_until)) return;
  std::array<std::byte, sizeof(std::uint64_t)> drawn;
  entropy.fill(drawn);
  path.is_changing = true;
  changes[path.id] = {.to = from,
                      .since = number,
                      .challenge = load<std::uint64_t>(drawn.data()),
                      .received_bytes = bytes,
                      .quiet_until = now + path.loss.pto(),
                      .rest_until = now + kAddressChangeInterval};
  challenge_addresses(path, now);
}

// Whether a packet that was seen before shows, if it verifies, that the old address is still in use.
bool Core::is_witness(const Path& path, std::uint64_t number, const Address& from) {
  const AddressChange& change = changes.at(path.id);
  return !change.is_resting && from == path.remote && number >= change.since;
}

// Of more challenges than it remembers, the newest ones are answered.
void Core::owe_response(Path& path, std::uint64_t challenge) {
  auto& owed = challenges[path.id];
  owed[1] = std::exchange(owed[0], challenge);
  if (path.responses_owed < owed.size()) ++path.responses_owed;
}

void Core::forget_change(Path& path) {
  if (std::exchange(path.is_changing, false)) changes.erase(path.id);
  if (std::exchange(path.responses_owed, std::uint8_t{0}) != 0) challenges.erase(path.id);
}

void Core::challenge_addresses(Path& path, Instant now) {
  AddressChange& change = changes.at(path.id);
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
  AddressChange* const change = change_of(path);
  if (change == nullptr || change->is_resting || *opened.from != change->to || value != change->challenge) return;
  change->is_answered = true;
  change->next = change->quiet_until;
  if (change->next <= now) move_path(path, now);
}

void Core::on_change_timer(Path& path, Instant now) {
  AddressChange& change = changes.at(path.id);
  if (change.next > now) return;
  if (change.is_resting) {
    path.is_changing = false;
    changes.erase(path.id);
  } else if (change.is_answered) {
    move_path(path, now);
  } else if (change.challenges >= kMaxChallenges) {
    change.rest();  // whoever is there after all sends another packet, and another attempt begins
  } else {
    challenge_addresses(path, now);
  }
}

void Core::move_path(Path& path, Instant now) {
  AddressChange& attempt = changes.at(path.id);
  attempt.rest();
  const AddressChange* const change = &attempt;
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
