// Credentials of peers (identity mode), and what somebody says who has lost his state (docs/protocol.md, rules R-*).
// Nothing that arrives here tears anything down: at the worst it makes this side shake hands again, and the result of
// that decides.
#include "engine/credential.h"

#include <algorithm>
#include <cstring>

#include "crypto/reset.h"
#include "engine/core.h"

namespace weir::engine {

namespace {
// What an unknown_secret answers is under its tag, apart from what the tags of unknown_path cover: of a hello, the
// number of its path; of a `first` packet, the sequence, without which an answer to a copy with another sequence could
// be taken for an answer to the packet itself.
constexpr std::uint64_t answers_hello(std::uint32_t path) { return std::uint64_t{1} << 32 | path; }
constexpr std::uint64_t answers_first(std::uint64_t sequence) { return std::uint64_t{1} << 63 | sequence; }

// What the tag of an unknown_secret covers besides: what it answers, and who says so.
crypto::Prf::Context telling_context(const wire::UnknownSecret& unknown) {
  crypto::Prf::Context out{};
  static_assert(sizeof out == sizeof unknown.echo + 4);
  std::ranges::copy(unknown.echo, out.begin());
  store<std::uint16_t>(out.data() + unknown.echo.size(), unknown.worker);
  store<std::uint16_t>(out.data() + unknown.echo.size() + 2, unknown.port);
  return out;
}
}  // namespace

crypto::Prf::Context address_bytes(const Address& address) {
  crypto::Prf::Context out{};
  std::memcpy(out.data(), address.ip.data(), address.ip.size());
  store<std::uint16_t>(out.data() + address.ip.size(), address.port);
  store<std::uint16_t>(out.data() + address.ip.size() + 2, address.scope);
  return out;
}

// ---- credentials ----

std::optional<Keying> Core::keying_of(const Peer& peer, Instant now) const {
  if (shared) return Keying(*shared);
  const Credential* known = peer.credential.at(now);
  if (known == nullptr) return std::nullopt;
  return Keying(*known);
}

void Core::want_credential(Peer& peer, bool suspects, Hurry hurry) {
  if (peer.wants_credential && hurry <= peer.hurry) return;
  peer.wants_credential = true;
  peer.hurry = hurry;
  wanted.push_back({.peer = peer.index, .suspects = suspects, .hurry = hurry, .suspected = peer.credential.id()});
}

// A handshake or a hello that was under way when the path was given up has not been answered for long, and tries rarely
// by now. Who calls the peer again does not wait for that.
void Core::hurry_after_loss(Peer& peer, Instant now) {
  if (!std::exchange(peer.lost_path, false)) return;
  if (peer.wants_credential) return want_credential(peer, true, Hurry::path_lost);
  if (const Path* path = path_of(peer); path != nullptr && path->state == Path::State::hello && peer.saying_hello()) {
    send_hello(peer, now);
  }
}

// Nobody listens where the credential says: the peer may be back elsewhere. What waits goes on waiting for a new one.
void Core::doubt_address(Peer& peer, Instant now) {
  wheel.cancel(peer.timer);
  drop_hello_path(*find_path(peer.path), now);
  peer.path = kNoPath;
  want_credential(peer, true);
}

void Core::install_credential(Peer& peer, const Credential& credential, Instant now) {
  peer.wants_credential = peer.lost_path = false;
  if (closed) return;
  if (const Credential* known = peer.credential.at(now); known != nullptr && known->id == credential.id) {
    if (peer.path == kNoPath && peer.has_queued()) start_hello(peer, now);
    return;
  }
  peer.credential.set(credential);
  peer.address = credential.data;
  Path* path = path_of(peer);
  if (path != nullptr && path->state == Path::State::hello) {  // under the credential before: nothing was sent
    wheel.cancel(peer.timer);
    drop_hello_path(*path, now);
    peer.path = kNoPath;
    path = nullptr;
  }
  if (path == nullptr) {
    if (peer.has_queued()) start_hello(peer, now);
    return;
  }
  if (Path* candidate = find_path(peer.candidate)) drop_hello_path(*candidate, now);
  peer.candidate = kNoPath;
  peer.renewing = true;
  start_hello(peer, now);
}

// Its keys come from a random that went to the path's address and nowhere else, so whoever sealed this has received it.
void Core::on_first_sealed(Path& path, Instant now) {
  path.ever_received = true;
  if (has_identity() && path.initiator) config.credentials->on_answer(path.remote, now);
}

// The peer had its time to prove again who it is. What its handlers have begun may end, but nobody hears of it.
void Core::expire_path(Path& path, Instant now) {
  constexpr const char* kExpired = "the peer has not proven again who it is before its credential or certificate ended";
  if (Peer* peer = path.peer; peer != nullptr && !path.draining) {
    tell_handshake_failed(*peer, Code::unauthenticated, kExpired, now);
    if (peer->credential.at(now) == nullptr) peer->credential.reset();
  }
  tell_health(path, event::PeerHealth::failed);
  send_close(path, wire::CloseReason::leaving, now);
  end_path(path, Code::unauthenticated, kExpired, false, now);
}

// There will be none. What is sent goes on while it can; what waits has waited in vain.
void Core::refuse_credential(Peer& peer, Code code, std::string_view sentence, Instant now) {
  peer.wants_credential = peer.lost_path = false;
  tell_handshake_failed(peer, code, sentence, now);
  Path* path = path_of(peer);
  const bool is_final = code == Code::refused || code == Code::unauthenticated || code == Code::invalid_argument;
  if (path != nullptr && path->state == Path::State::hello && is_final) {  // its credential is no good any more
    wheel.cancel(peer.timer);
    drop_hello_path(*path, now);
    peer.path = kNoPath;
    peer.credential.reset();
  }
  if (peer.path != kNoPath) return;  // a live path, or a hello with its own timeout
  events.emit(event::PeerHealthChanged{{}, kNoPath, peer.name, event::PeerHealth::failed});
  const std::size_t first = completions.size();
  fail_queued(peer, code, "", now);
  try_again_later(peer, now);
  if (completions.size() == first || sentence.empty()) return;
  sentence = sentence.substr(0, transfer::BlockPool::kMaxBlockBytes);
  transfer::Block* block = blocks.acquire(sentence.size());
  std::memcpy(block->bytes(), sentence.data(), sentence.size());
  sentences.push_back(block);
  for (std::size_t i = first; i < completions.size(); ++i) {
    completions[i].bytes = block->bytes();
    completions[i].size = static_cast<std::uint32_t>(sentence.size());
    completions[i].pin = block;
  }
}

bool Core::is_tag_of(const crypto::KeyBytes* reset_key, std::uint64_t sequence, ByteSpan context,
                     const std::byte* tag) {
  if (reset_key == nullptr) return false;
  auto expected = crypto::reset_tag(*reset_prf, *reset_key, sequence, context);
  const bool is_right = crypto::equal_in_constant_time(expected, {tag, wire::kTagBytes});
  crypto::wipe(expected);
  return is_right;
}

// ---- an unknown credential ----

void Core::answer_unknown_hello(const wire::Hello& hello, const Address& to) {
  answer_unknown_secret({.to_path = hello.initiator.path, .credential = hello.credential},
                        ByteSpan(hello.initiator.random), answers_hello(hello.initiator.path), to);
}

// Who says so tells for whom it says so: what the incarnation before has made of such a packet is not known here.
void Core::answer_unknown_first(const wire::FirstPrefix& prefix, const Address& to) {
  std::array<std::byte, wire::kNonceBytes + kTellingBytes> echo;
  std::ranges::copy(prefix.nonce, echo.begin());
  std::copy_n(incarnation.begin(), kTellingBytes, echo.begin() + wire::kNonceBytes);
  answer_unknown_secret({.to_path = prefix.initiator.path, .credential = prefix.credential}, echo,
                        answers_first(prefix.sequence), to);
}

void Core::answer_unknown_secret(wire::UnknownSecret unknown, ByteSpan echo, std::uint64_t answered,
                                 const Address& to) {
  unknown.worker = config.worker;
  unknown.port = config.port;
  std::copy_n(echo.begin(), std::min(echo.size(), unknown.echo.size()), unknown.echo.begin());
  std::byte datagram[wire::kUnknownSecretBytes];
  const std::size_t bytes = wire::encode(unknown, datagram);
  crypto::KeyBytes key = crypto::credential_reset_key(*signer, unknown.credential);
  const auto tag = crypto::reset_tag(*reset_prf, key, answered, telling_context(unknown));
  crypto::wipe(key);
  std::copy(tag.begin(), tag.end(), datagram + bytes);
  send_plain(to, datagram);
}

void Core::on_unknown_secret(ByteSpan datagram, const Address& from, Instant now) {
  // Without identities there are no credentials, so nobody can have forgotten one.
  const auto unknown = has_identity() ? wire::decode_unknown_secret(datagram) : std::nullopt;
  Path* path = unknown ? find_path(unknown->to_path) : nullptr;
  if (path == nullptr || path->state == Path::State::open || path->peer == nullptr || path->remote != from) {
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  // A path that is being confirmed keeps to the credential that it began with, whatever its peer has been given since.
  Peer& peer = *path->peer;
  const bool confirming = path->state == Path::State::confirming;
  const Credential* known = peer.credential.at(now);
  const bool is_newest = known != nullptr && known->id == unknown->credential;
  if (confirming ? path->credential != unknown->credential : !is_newest) {
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  // The nonce of our `first` packets tells that this answers one of them, and no hello that came late.
  const ByteSpan echo = unknown->echo;
  const bool is_to_first =
      confirming &&
      crypto::equal_in_constant_time(
          echo.first(wire::kNonceBytes),
          ByteSpan(path->confirming->prefix)
              .subspan(path->confirming->prefix.size() - wire::kTagBytes - wire::kNonceBytes, wire::kNonceBytes));
  if ((!is_to_first && !peer.is_own_random(echo)) ||
      !is_tag_of(confirming ? path->known_reset_key() : &known->reset_key,
                 is_to_first ? answers_first(path->confirming->sequence()) : answers_hello(unknown->to_path),
                 telling_context(*unknown), datagram.data() + datagram.size() - wire::kTagBytes)) {
    return reject(event::Rejection::bad_hello, datagram.size());
  }
  if (is_newest) want_credential(peer, true, Hurry::heard_from);
  // Said by the very worker that would have made the path: nothing of it has run, and nothing can, as the credential is
  // gone. Another process, or another worker of the same one, cannot know what became of it.
  static_assert(sizeof unknown->echo == wire::kNonceBytes + kTellingBytes);
  const ByteSpan teller = echo.subspan(wire::kNonceBytes);
  if (is_to_first && std::ranges::equal(teller, ByteSpan(path->remote_incarnation).first(teller.size())) &&
      unknown->worker == path->keys.remote_worker() && unknown->port == path->keys.remote_port()) {
    end_path(*path, Code::peer_failed, "the peer forgot the credential", true, now, 0);
  }
}

// ---- an unknown path ----

crypto::KeyBytes Core::path_reset_key(std::uint32_t path, const Address& remote) {
  return crypto::path_reset_key(*signer, path, address_bytes(remote));
}

// A sealed packet for a path that is not here, and was not in this incarnation: its sender talks to the one before. The
// tag shows that the one who had given that path its number, to that very address, says so.
void Core::answer_unknown_path(const wire::PacketHeader& header, const Address& from, Instant now) {
  if (cookie == nullptr || closed) return;
  if (now - unknown_window_start >= std::chrono::milliseconds(1)) {
    unknown_window_start = now;
    unknowns_in_window = 0;
  }
  if (++unknowns_in_window > kUnknownPathsPerMillisecond) return;
  std::byte datagram[wire::kUnknownPathBytes];
  const wire::UnknownPath unknown{.number_low = header.number_low, .path = header.path};
  const std::size_t bytes = wire::encode(unknown, datagram);
  crypto::KeyBytes key = path_reset_key(header.path, from);
  const auto tag = crypto::reset_tag(*reset_prf, key, unknown.number_low, ByteSpan(datagram).subspan(4, 4));
  crypto::wipe(key);
  std::copy(tag.begin(), tag.end(), datagram + bytes);
  send_plain(from, datagram);
}

// Whoever refers to a packet must name one that may still be on its way.
bool Core::is_in_flight(const Path& path, std::uint32_t number_low) {
  if (path.next_number == 0) return false;
  const std::uint64_t number = peer::expand(number_low, path.next_number - 1);
  const recovery::SentPackets& sent = path.loss.sent();
  return sent.contains(number) && sent[number].state != recovery::PacketState::acked;
}

Instant Core::sent_at(const Path& path, std::uint32_t number_low) {
  return path.loss.sent()[peer::expand(number_low, path.next_number - 1)].sent_at;
}

Path* Core::find_open(const Address& remote, std::uint32_t number) {
  Path* path = nullptr;
  if (has_identity()) {
    const auto found = open_paths.find({remote, number});
    if (found != open_paths.end()) path = find_path(found->second);
  } else if (const auto found = peers_by_address.find(remote); found != peers_by_address.end()) {
    path = path_of(*peers.at(found->second));
  }
  return path != nullptr && path->state == Path::State::open && path->remote_id == number ? path : nullptr;
}

void Core::on_unknown_path(ByteSpan datagram, const Address& from, Instant now) {
  const auto unknown = wire::decode_unknown_path(datagram);
  Path* path = unknown ? find_open(from, unknown->path) : nullptr;
  if (path == nullptr || path->draining) return reject(event::Rejection::unknown_path, datagram.size());
  if (!is_in_flight(*path, unknown->number_low) ||
      !is_tag_of(path->known_reset_key(), unknown->number_low, datagram.subspan(4, 4), datagram.data() + 8)) {
    return reject(event::Rejection::forged, datagram.size());
  }
  Peer& peer = *path->peer;
  if (has_identity()) {
    want_credential(peer, true, Hurry::heard_from);
  } else if (peer.saying_hello()) {
    hurry_hello(peer, sent_at(*path, unknown->number_low), now);
  } else if (peer.candidate == kNoPath) {
    start_hello(peer, now);
  }
}

}  // namespace weir::engine
