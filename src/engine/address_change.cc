// An initiator whose address changes: a NAT gave it another port, or its host another address. The responder validates
// the new address before anything but challenges goes there, in the manner of RFC 9000, sections 8.2 and 9 (rules P-9
// and P-11 to P-13).
//
// Somebody who copies a packet and sends the copy from an address of his own looks the same at first. While the
// initiator still sends from the old address, its own packets end the attempt, and a challenge to the old address makes
// sure that there are some. If the initiator's address has changed as well, originals and copies come from two new
// addresses. Both are challenged, and a repetition counts as much as what came first. Only who receives at an address
// can answer from there: the initiator answers whatever reaches it, but from its own address. If both answer, somebody
// relays, and the path stays where it is.
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
  if (change != nullptr && !change->is_resting) return note_candidate(path, number, bytes, now);
  // One that was overtaken may have been sent before the address changed, or be an old one that was held back.
  if (!is_newest || (change != nullptr && now < change->rest_until)) return;
  path.is_changing = true;
  changes[path.id] = {
      .since = number, .quiet_until = now + path.loss.pto(), .rest_until = now + kAddressChangeInterval};
  note_candidate(path, number, bytes, now);
  challenge_old_address(path, now);
}

// A packet of the attempt under way, from a candidate or from an address that may be one.
void Core::note_candidate(Path& path, std::uint64_t number, std::size_t bytes, Instant now) {
  AddressChange& change = changes.at(path.id);
  if (AddressCandidate* const candidate = change.find(*opened.from)) {
    candidate->received_bytes += bytes;
    return;
  }
  // Each has one probe timeout for its answer before others take its place.
  AddressCandidate* const added = number < change.since ? nullptr : change.place_for_another(now - path.loss.pto());
  if (added == nullptr) return;
  std::array<std::byte, sizeof(std::uint64_t)> drawn;
  entropy.fill(drawn);
  *added = {
      .at = *opened.from, .challenge = load<std::uint64_t>(drawn.data()), .received_bytes = bytes, .added_at = now};
  challenge_candidate(path, *added, now);
  change.challenges = 0;
  repeat_challenges_later(path, now);
}

// Whether a packet that was seen before says, if it verifies, where the initiator sends from.
bool Core::is_witness(const Path& path, std::uint64_t number) {
  const AddressChange& change = changes.at(path.id);
  return !change.is_resting && number >= change.since;
}

// The original of a copy that was quicker, or a copy. It has verified; of its frames only answers to challenges count,
// which come first.
void Core::on_repetition(Path& path, std::uint64_t number, std::size_t bytes, ByteSpan frames, Instant now) {
  if (*opened.from == path.remote) return changes.at(path.id).rest();
  note_candidate(path, number, bytes, now);
  const std::byte* at = frames.data();
  const std::byte* const end = at + frames.size();
  while (at != nullptr && at != end && static_cast<wire::FrameType>(*at) == wire::FrameType::path_response) {
    std::uint64_t value = 0;
    at = wire::decode_u64(at, end, value);
    if (at != nullptr) on_path_response(path, value, now);
  }
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
  for (AddressCandidate& candidate : change.all()) {
    if (!candidate.is_answered) challenge_candidate(path, candidate, now);
  }
  challenge_old_address(path, now);
  ++change.challenges;
  repeat_challenges_later(path, now);
}

// What its answer says counts for nothing; that it comes from there does.
void Core::challenge_old_address(Path& path, Instant now) {
  send_challenge(path, path.remote, ~changes.at(path.id).candidates[0].challenge, now);
}

void Core::repeat_challenges_later(Path& path, Instant now) {
  AddressChange& change = changes.at(path.id);
  const Duration wait = std::max<Duration>(path.loss.pto(), kShortestChallengeRepeat);
  change.next = now + wait * (std::int64_t{1} << change.challenges);
  if (change.answered() != 0) change.next = std::max(change.quiet_until, now + path.loss.pto());
  touch(path);
}

void Core::challenge_candidate(Path& path, AddressCandidate& candidate, Instant now) {
  if (candidate.sent_bytes + kChallengePacketBytes > kAmplification * candidate.received_bytes) return;
  candidate.sent_bytes += kChallengePacketBytes;
  send_challenge(path, candidate.at, candidate.challenge, now);
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
  if (change == nullptr || change->is_resting) return;
  AddressCandidate* const candidate = change->find(*opened.from);
  if (candidate == nullptr || value != candidate->challenge || candidate->is_answered) return;
  candidate->is_answered = true;
  // The other one has as much time to answer.
  change->next = change->count == 1 ? change->quiet_until : std::max(change->quiet_until, now + path.loss.pto());
  if (change->next <= now) return on_change_timer(path, now);
  touch(path);
}

void Core::on_change_timer(Path& path, Instant now) {
  AddressChange& change = changes.at(path.id);
  if (change.next > now) return;
  if (change.is_resting) {
    path.is_changing = false;
    changes.erase(path.id);
  } else if (change.answered() == 1) {
    move_path(path, std::ranges::find(change.all(), true, &AddressCandidate::is_answered)->at, now);
  } else if (change.answered() != 0 || change.challenges + 1 >= kMaxChallenges) {
    change.rest();  // whoever is there after all sends another packet, and another attempt begins
  } else {
    challenge_addresses(path, now);
  }
}

void Core::move_path(Path& path, const Address& to, Instant now) {
  const bool is_other_host = to.ip != path.remote.ip || to.scope != path.remote.scope;
  events.emit(event::AddressChanged{{}, path.id, path.remote.to_string(), to.to_string()});
  // Only a responder's path moves: no request of ours is in the window of replies of the link that it leaves.
  links.leave(path.link, now);
  path.remote = to;
  links.join(path.link, path.remote);
  changes.at(path.id).rest();
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
  path.probes_owed = std::max<std::uint8_t>(path.probes_owed, 1);
  touch(path);
}

}  // namespace weir::engine
