// The handshake of a path: one round trip (docs/protocol.md, rules H-*). It is keyed with a secret that both sides have
// before it begins: the configured one, or the one of a credential.
//
// The responder answers a hello and remembers no more of it than the sequence number and the address: its random is a
// pseudorandom function of both. Only a `first` packet that proves, under that secret, to have seen that random makes a
// path, and each sequence makes at most one. A replayed hello therefore costs an answer smaller than itself, a replayed
// `first` packet finds its sequence used, and after a restart neither the sequence nor the random exists.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/core.h"
#include "engine/members.h"

namespace weir::engine {

namespace {

ByteSpan name_bytes(const std::string& name) { return as_bytes(name); }

// What the tag of a `first` packet's prefix covers: the prefix, and the responder's random, which does not travel in
// it. So a recorded prefix means nothing to a responder that has restarted, even if it hands out the same sequence
// again.
struct BoundPrefix {
  BoundPrefix(ByteSpan prefix, const std::array<std::byte, 32>& responder_random) : size(prefix.size() + 32) {
    std::copy(prefix.begin(), prefix.end(), bytes);
    std::copy(responder_random.begin(), responder_random.end(), bytes + prefix.size());
  }
  ByteSpan span() const { return {bytes, size}; }
  std::byte bytes[wire::kMaxPrefixBytes + 32];
  static_assert(sizeof bytes <= crypto::Cmac::kMaxBytes && wire::kHelloBytes <= crypto::Cmac::kMaxBytes);
  std::size_t size;
};

// What the tag of a hello covers. No `first` packet has the sequence that these bytes begin with, so that neither tag
// can stand for the other.
struct BoundHello {
  BoundHello(ByteSpan datagram, const wire::Hello& hello) : size(8 + wire::covered_bytes(hello)) {
    store<std::uint64_t>(bytes, ~std::uint64_t{0});
    std::copy_n(datagram.begin(), size - 8, bytes + 8);
  }
  ByteSpan span() const { return {bytes, size}; }
  std::byte bytes[8 + wire::kHelloBytes - wire::kTagBytes];
  static_assert(sizeof bytes <= crypto::Cmac::kMaxBytes);
  std::size_t size;
};

}  // namespace

Path* Core::make_path(const Address& remote, bool initiator, Instant now, std::uint32_t agreed_mtu,
                      std::uint64_t certificate) {
  if (certificate != 0) {
    Member* const member = members.find(member_of_certificate(certificate));
    if (member != nullptr && member->paths >= most_paths_of_a_member() && !evict_for_path(member, now)) return nullptr;
  }
  const recovery::LossDetector::Options loss{.max_ack_delay = config.max_ack_delay};
  const auto largest = static_cast<std::uint32_t>(config.datagram_bytes);
  const recovery::MtuSearch::Options mtu{.maximum = agreed_mtu == 0 ? largest : std::min(largest, agreed_mtu),
                                         .v6 = !remote.is_v4()};
  const recovery::AckPolicy::Options ack{.max_ack_delay = config.max_ack_delay};
  Path* path = paths.acquire(random, loss, mtu, ack);
  if (path == nullptr && evict_for_path(nullptr, now)) path = paths.acquire(random, loss, mtu, ack);
  if (path == nullptr) return nullptr;
  const SlotId id = paths.id_of(path);
  path->id = path_numbers.make(id);
  path->serial = next_path_serial++;
  path->initiator = initiator;
  path->remote = remote;
  links.join(path->link, remote);
  path->last_received = path->last_sent = path->waiting_since = now;
  path->note_use(now);
  path->timer.tag = static_cast<std::uint32_t>(TimerKind::path);
  return path;
}

// ---- initiator ----

void Core::start_hello(Peer& peer, Instant now) {
  const Credential* credential = peer.credential.at(now);
  if (has_identity() && (credential == nullptr || (peer.wants_credential && peer.path == kNoPath))) {
    return want_credential(peer, credential != nullptr);
  }
  Path* path = make_path(peer.address, true, now, credential != nullptr ? credential->mtu : 0);
  if (path == nullptr && peer.path != kNoPath) return;  // only a second look at a silent peer: the probes go on
  if (path == nullptr) {
    give_up_hello(peer, Code::overloaded, "this side has as many paths as its limit allows", now);
    return;
  }
  ++events.counters.handshakes_started;
  path->peer = &peer;
  (peer.path == kNoPath ? peer.path : peer.candidate) = path->id;
  if (peer.random == nullptr) peer.random = std::make_unique<std::array<std::byte, 32>>();
  entropy.fill(*peer.random);
  peer.hello_started = now;
  peer.hellos_sent = 0;
  peer.has_forged_replies = false;
  peer.has_own_replies = false;
  peer.timer.tag = static_cast<std::uint32_t>(TimerKind::peer);
  if (peer.candidate == kNoPath) {
    events.emit(event::PeerHealthChanged{{}, path->id, peer.name, event::PeerHealth::connecting});
  }
  send_hello(peer, now);
}

void Core::send_hello(Peer& peer, Instant now) {
  Path& path = *find_path(peer.candidate != kNoPath ? peer.candidate : peer.path);
  const Credential* credential = peer.credential.at(now);
  const wire::Hello hello{.initiator = {.path = path.id,
                                        .worker = config.worker,
                                        .port = config.port,
                                        .random = *peer.random,
                                        .incarnation = incarnation,
                                        .name = name_bytes(config.name)},
                          .credential = credential != nullptr ? credential->id : CredentialId{}};
  // What a peer says of its data address is its word only: an address that does not answer is left alone, and either
  // a new handshake tells a better one or the time for connecting runs out.
  const std::optional<Keying> keying = keying_of(peer, now);
  if (!keying) {
    want_credential(peer, false);
  } else if (has_identity() && (peer.hellos_sent >= kMaxHellosPerCredential ||
                                !config.credentials->may_greet(peer.address, credential->is_proven, now))) {
    want_credential(peer, true);
  } else {
    std::byte datagram[wire::kHelloBytes];
    const std::size_t bytes = wire::encode(hello, datagram);
    const BoundHello bound({datagram, bytes}, hello);
    std::ranges::copy(keying->hello_mac(*scratch_mac)(bound.span()), datagram + wire::covered_bytes(hello));
    send_plain(peer.address, {datagram, bytes});
  }
  Duration wait = kFirstHelloRetry * (1 << std::min<unsigned>(peer.hellos_sent, 5));
  wait = std::min(wait, kLongestHelloRetry);
  wait += wait * static_cast<std::int64_t>(random.below(256)) / 1024;
  if (peer.hellos_sent != 255) ++peer.hellos_sent;
  peer.hello_sent = now;
  wheel.arm(peer.timer, now + wait);
}

// A packet that left at `sent_at` has reached a process that did not know it. A hello that had left before has met the
// process before, or none, and is said again at once. Who repeats that word gains nothing: the hello is newer then.
void Core::hurry_hello(Peer& peer, Instant sent_at, Instant now) {
  if (peer.hello_sent < sent_at) send_hello(peer, now);
}

// The hello failed. A first path takes its queued calls with it; a candidate just goes.
void Core::give_up_hello(Peer& peer, Code code, const char* sentence, Instant now) {
  wheel.cancel(peer.timer);
  const bool only = peer.candidate == kNoPath;
  Path* path = find_path(only ? peer.path : peer.candidate);
  if (path != nullptr && path->state == Path::State::hello) drop_hello_path(*path, now);
  (only ? peer.path : peer.candidate) = kNoPath;
  peer.renewing = false;
  tell_handshake_failed(peer, code, sentence, now);
  if (!only) return;
  events.emit(event::PeerHealthChanged{{}, kNoPath, peer.name, event::PeerHealth::failed});
  fail_queued(peer, code, sentence, now);
  try_again_later(peer, now);
}

// While a port is closed every try fails at once: one event per second says so.
void Core::tell_handshake_failed(Peer& peer, Code code, std::string_view sentence, Instant now) {
  if (!peer.failure_told.is_never() && now - peer.failure_told < kHandshakeFailedInterval) {
    ++peer.failures_untold;
    ++events.counters.handshakes_failed;
    return;
  }
  peer.failure_told = now;
  events.emit(event::HandshakeFailed{{}, peer.name, code, sentence, std::exchange(peer.failures_untold, 0)});
}

void Core::on_hello_reply(ByteSpan datagram, const Address& from, Instant now) {
  const auto decoded = wire::decode_hello_reply(datagram);
  if (!decoded) return reject(event::Rejection::bad_hello, datagram.size());
  const wire::HelloReply& reply = decoded->reply;
  Path* path = find_path(reply.to_path);
  if (path == nullptr || path->state != Path::State::hello || path->remote != from ||
      !path->peer->is_own_random(reply.echo)) {
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  Peer& peer = *path->peer;
  if (reply.responder.incarnation == incarnation) {
    // Our own hello was sent back to us. Without names to prove, this is the one impostor that can be told apart.
    peer.has_own_replies = true;
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  // Only somebody who saw our hello gets this far. There is no limit to how often: it would shut out the true answer,
  // and this costs no more than any other tag.
  const std::optional<Keying> keying = keying_of(peer, now);
  if (!keying) return reject(event::Rejection::bad_hello, datagram.size());  // the credential has ended meanwhile
  if (!keying->answer_mac(*scratch_mac).verify(decoded->authenticated, decoded->tag)) {
    peer.has_forged_replies = true;
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  // The responder took us for a stranger, although it has our secret: the hello was damaged on the way. The next one is
  // sent as if this answer had been lost.
  if (reply.sequence == 0) return reject(event::Rejection::bad_hello, datagram.size());
  if (peer.candidate == path->id) return replace_path(peer, *path, *keying, reply, now);
  confirm(peer, *path, *keying, reply, now);
}

// A second hello was answered. Who answered decides what becomes of the first path.
void Core::replace_path(Peer& peer, Path& with, const Keying& keying, const wire::HelloReply& reply, Instant now) {
  Path* old = path_of(peer);
  const bool is_same = old != nullptr && old->remote_incarnation == reply.responder.incarnation;
  if (is_same && !peer.renewing) {
    // The same process answers: it is alive, and the old path goes on. Probes will show whether it still knows it.
    wheel.cancel(peer.timer);
    drop_hello_path(with, now);
    peer.candidate = kNoPath;
    return;
  }
  if (is_same) {
    // A new credential takes over. What was sent is still answered on the old path; then that one is idle.
    old->draining = true;
    touch(*old);
  } else if (old != nullptr) {
    wheel.cancel(peer.timer);  // the hello that takes the place of the path is answered
    events.emit(event::PeerRestarted{{}, old->id, peer.name});
    end_path(*old, Code::reset, "the peer restarted", false, now);
  }
  peer.renewing = false;
  peer.path = with.id;
  peer.candidate = kNoPath;
  confirm(peer, with, keying, reply, now);
}

// Both randoms are known: derive the keys and go on with `first` packets.
void Core::confirm(Peer& peer, Path& path, const Keying& keying, const wire::HelloReply& reply, Instant now) {
  wheel.cancel(peer.timer);
  const crypto::Secret secret =
      crypto::derive_path_secret(keying.secret(), {.initiator_id = name_bytes(config.name),
                                                   .responder_id = reply.responder.name,
                                                   .initiator_incarnation = incarnation,
                                                   .responder_incarnation = reply.responder.incarnation,
                                                   .initiator_random = *peer.random,
                                                   .responder_random = reply.responder.random,
                                                   .initiator_path = path.id,
                                                   .responder_path = static_cast<std::uint32_t>(reply.sequence)});
  const crypto::KeyNames sends{.from_initiator = true,
                               .sender_worker = config.worker,
                               .sender_port = config.port,
                               .receiver_worker = reply.responder.worker,
                               .receiver_port = reply.responder.port};
  path.keys.install(*aead, secret, sends);
  path.remote_incarnation = reply.responder.incarnation;
  if (const Credential* credential = peer.credential.at(now)) {
    config.credentials->on_shown(credential->id);
    path.expires = credential->expires;
    path.credential = credential->id;
    path.reset_key = credential->reset_key;
  }
  path.max_calls = std::min(std::max(reply.calls, 1u), config.limits.calls_per_peer);
  path.max_bytes = reply.inline_bytes;
  path.credit.open(reply.allowance, reply.nested_allowance);
  path.accounts.open_reserve(ledger);  // nobody calls us here

  wire::FirstPrefix prefix{.sequence = reply.sequence,
                           .allowance = reply.allowance,
                           .initiator = {.path = path.id,
                                         .worker = config.worker,
                                         .port = config.port,
                                         .random = *peer.random,
                                         .incarnation = incarnation,
                                         .name = name_bytes(config.name)},
                           .credential = path.credential};
  entropy.fill(prefix.nonce);
  path.confirming = std::make_unique<Path::Confirming>();
  std::vector<std::byte>& first = path.confirming->prefix;
  first.resize(wire::kMaxPrefixBytes);
  const std::size_t bytes = wire::encode(prefix, first.data());
  const BoundPrefix bound(ByteSpan(first).first(bytes), reply.responder.random);
  std::ranges::copy(keying.hello_mac(*scratch_mac)(bound.span()), first.data() + bytes);
  first.resize(bytes + wire::kTagBytes);
  path.state = Path::State::confirming;
  path.last_received = path.waiting_since = now;
  path.confirming->doubt_at = now + path.loss.pto();
  path.probes_owed = 1;  // a `first` packet goes even if there is nothing to say, so that the responder has the path
  path.ping_owed = true;
  touch(path);
}

// ---- responder ----

// Once for each path that requests come on, so that none of them has to look.
void Core::meet(Path& path, std::string_view claimed, transfer::ProvenNames proven, std::uint64_t certificate) {
  const std::uint64_t member = certificate != 0
                                   ? member_of_certificate(certificate)
                                   : member_of_path({.worker = config.worker, .port = config.port}, path.serial);
  path.caller = transfer::CallerReference(
      transfer::KnownCaller::make(path.remote.to_string(), claimed, std::move(proven), member));
}

// A hello whose tag verifies comes from somebody who has the secret, or is a copy of one. One whose tag does not is a
// stranger's: with a shared secret he is answered all the same, so that he learns that his secret is another one, but
// no path can come of that.
void Core::on_hello(ByteSpan datagram, const Address& from, Instant now) {
  if (cookie == nullptr || closed) return reject(event::Rejection::bad_hello, datagram.size());
  const auto hello = wire::decode_hello(datagram);
  if (!hello) return reject(event::Rejection::bad_hello, datagram.size());
  std::optional<KnownCredential> known;
  if (has_identity()) {
    if (!find_caller(hello->credential, now, known.emplace())) {
      if (!hello_gate.admit_stranger(now)) return reject(event::Rejection::limit, datagram.size());
      return answer_unknown_hello(*hello, from);
    }
  } else if (hello->credential != CredentialId{}) {
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  const Keying keying = known ? Keying(*known) : Keying(*shared);
  const bool is_member =
      keying.hello_mac(*scratch_mac)
          .verify(BoundHello(datagram, *hello).span(), datagram.data() + wire::covered_bytes(*hello));
  if (!is_member && known) return reject(event::Rejection::bad_hello, datagram.size());
  if (!(is_member ? hello_gate.admit_member(hello->credential, hello->initiator.random, now)
                  : hello_gate.admit_stranger(now))) {
    return reject(event::Rejection::limit, datagram.size());
  }
  std::uint64_t sequence = 0;
  if (is_member) {
    exchanges[next_sequence % kExchangeWindow] = {.hello_from = from};
    sequence = sequence_of(next_sequence++);
  }
  wire::HelloReply reply{.to_path = hello->initiator.path,
                         .sequence = sequence,
                         .responder = {.worker = config.worker,
                                       .port = config.port,
                                       .random = random_in_reply(sequence, from),
                                       .incarnation = incarnation,
                                       .name = name_bytes(config.name)},
                         .calls = config.limits.calls_per_peer,
                         .inline_bytes = static_cast<std::uint32_t>(config.limits.inline_bytes)};
  if (is_member) {  // the others make no path
    ledger.forget_offers(now);
    reply.allowance = ledger.cold_allowance();
    reply.nested_allowance = ledger.nested_allowance();
    ledger.on_offered();
  }
  std::memcpy(reply.echo.data(), hello->initiator.random.data(), reply.echo.size());
  std::byte answer_bytes[wire::kHelloBytes];
  const std::size_t bytes = wire::encode(reply, answer_bytes);
  std::ranges::copy(keying.answer_mac(*scratch_mac)({answer_bytes, bytes}), answer_bytes + bytes);
  send_plain(from, {answer_bytes, bytes + wire::kTagBytes});
}

// Whether its prefix was made by somebody who has the secret and has seen our hello reply.
bool Core::is_genuine(const wire::DecodedFirst& first, const Keying& keying,
                      const std::array<std::byte, 32>& responder_random) {
  return keying.hello_mac(*scratch_mac).verify(BoundPrefix(first.authenticated, responder_random).span(), first.tag);
}

// What the hello reply with that sequence to that address said.
std::array<std::byte, 32> Core::random_in_reply(std::uint64_t sequence, const Address& to) const {
  return (*cookie)(sequence, address_bytes(to));
}

void Core::on_first(MutableByteSpan datagram, const Address& from, std::uint8_t ecn, detail::Pin* buffer, Instant now) {
  const auto first = wire::decode_first(datagram);
  if (cookie == nullptr || !first) return reject(event::Rejection::bad_hello, datagram.size());
  const std::uint64_t sequence = first->prefix.sequence;
  if (!is_own_sequence(sequence)) [[unlikely]] {
    if (!forward_first(*first, datagram, from, ecn, now)) reject(event::Rejection::bad_hello, datagram.size());
    return;
  }
  const std::uint64_t count = count_of(sequence);
  if (count == 0 || count >= next_sequence || next_sequence - count > kExchangeWindow) {
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  const wire::PacketHeader header = wire::decode_header(datagram.data());
  Exchange& exchange = exchanges[count % kExchangeWindow];
  if (exchange.path != kNoPath) {
    Path* path = find_path(exchange.path);
    if (path == nullptr) return reject(event::Rejection::bad_hello, datagram.size());
    open_sealed(*path, header, datagram, first->bytes, from, ecn, buffer, now);
    return;
  }
  if (closed || first->prefix.initiator.incarnation == incarnation) {
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  std::optional<KnownCredential> known;
  const CredentialId& credential = first->prefix.credential;
  if (has_identity()) {
    if (!find_caller(credential, now, known.emplace())) {
      if (hello_gate.admit_stranger(now)) answer_unknown_first(first->prefix, from);
      return reject(event::Rejection::bad_hello, datagram.size());
    }
  } else if (credential != CredentialId{}) {
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  const Keying keying = known ? Keying(*known) : Keying(*shared);
  const auto responder_random = random_in_reply(sequence, exchange.hello_from);
  if (!is_genuine(*first, keying, responder_random)) {
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  // Where its hello came from: that is who has received our random. If this packet came from elsewhere, the initiator's
  // address has changed meanwhile, or somebody copies packets; open_sealed() finds out.
  Path* path = make_path(exchange.hello_from, false, now, known ? known->mtu : 0, known ? known->member : 0);
  if (path == nullptr) return reject(event::Rejection::limit, datagram.size());
  const wire::Introduction& initiator = first->prefix.initiator;
  const crypto::Secret secret =
      crypto::derive_path_secret(keying.secret(), {.initiator_id = initiator.name,
                                                   .responder_id = name_bytes(config.name),
                                                   .initiator_incarnation = initiator.incarnation,
                                                   .responder_incarnation = incarnation,
                                                   .initiator_random = initiator.random,
                                                   .responder_random = responder_random,
                                                   .initiator_path = initiator.path,
                                                   .responder_path = static_cast<std::uint32_t>(sequence)});
  const crypto::KeyNames sends{.from_initiator = false,
                               .sender_worker = config.worker,
                               .sender_port = config.port,
                               .receiver_worker = initiator.worker,
                               .receiver_port = initiator.port};
  path->keys.install(*aead, secret, sends);
  path->remote_id = initiator.path;
  path->remote_incarnation = initiator.incarnation;
  if (known) path->expires = known->expires;
  path->state = Path::State::open;
  path->announce_path = true;
  Member* const member = known && known->member != 0 ? &members.at(member_of_certificate(known->member)) : nullptr;
  if (member != nullptr) {
    ++member->references;
    ++member->paths;
  }
  // What a dishonest initiator claims beyond the largest allowance is not believed.
  path->accounts.open(ledger, std::min<std::uint64_t>(first->prefix.allowance, token::CreditLedger::kLargestAllowance),
                      path->id, member);
  exchange.path = path->id;
  if (known) {
    // None, if it was given up this very moment: nothing is proven then.
    transfer::ProvenNames proven = config.credentials->names_of(credential);
    meet(*path, {}, proven != nullptr ? std::move(proven) : std::make_shared<const std::vector<std::string>>(),
         known->member);
    config.credentials->on_shown(credential);
  } else {
    meet(*path, {reinterpret_cast<const char*>(initiator.name.data()), initiator.name.size()}, nullptr, 0);
  }
  ++events.counters.handshakes_completed;
  touch(*path);
  // If the sealed part was damaged on the way, the path stays for the next `first` packet of this sequence, which then
  // costs no derivation. Without one it is forgotten soon.
  open_sealed(*path, header, datagram, first->bytes, from, ecn, buffer, now);
}

}  // namespace weir::engine
