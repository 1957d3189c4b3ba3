#include "handshake/broker.h"

#include <algorithm>

#include "base/random.h"
#include "crypto/reset.h"

namespace weir::handshake {

namespace {

peer::SecretMap::Options map_options(const Broker::Options& options) {
  peer::SecretMap::Options map = options.map;
  map.hash_seed = Random(options.seed).next();
  return map;
}

peer::HandshakePlan::Options plan_options(const Broker::Options& options) {
  peer::HandshakePlan::Options plan = options.plan;
  plan.host_random = Random(options.seed ^ 0x5bd1e995).next();
  return plan;
}

}  // namespace

Broker::Broker(Options options)
    : options_(std::move(options)),
      aead_(crypto::Aead::create(crypto::default_backend().backend)),
      signer_(*aead_, options_.signer),
      map_(map_options(options_)),
      plan_(plan_options(options_)),
      endpoint_({.credentials = options_.credentials,
                 .accepts = options_.accepts,
                 .answer = [this](const Outcome& visitor) { return answer(visitor); },
                 .offer = [this](const CredentialId& id) { return describe_self(id, hosts_told_++); },
                 .wall_clock = options_.wall_clock,
                 .max_outgoing = kHandshakesPerPlace * options_.plan.max_running,
                 .max_incoming = options_.max_incoming,
                 .timeout = options_.timeout,
                 .entropy = options_.entropy,
                 .key_log = options_.key_log}) {
  crypto::wipe(options_.signer);
}

Broker::~Broker() = default;

// ---- wishes ----

Broker::Contact* Broker::contact(const Address& address, const std::string& expected_name) {
  const auto [at, is_new] = contacts_.try_emplace(address);
  if (is_new) at->second.expected_name = expected_name;
  Contact& known = at->second;
  if (!known.is_proven && !known.is_wanted && known.tag == 0) known.expected_name = expected_name;
  if (known.expected_name == expected_name) return &known;
  const std::string& other = at->second.expected_name;
  news_.push_back({.address = address,
                   .expected_name = expected_name,
                   .failure = Error(Code::invalid_argument, address.to_string() + " was named " +
                                                                (other.empty() ? "by its address" : other) +
                                                                " before; one address has one name")});
  return nullptr;
}

// One that a handshake from the other side made says that the certificate proved the address, and no more.
bool Broker::proves(const peer::Credential& credential, const Contact& contact) {
  return credential.initiator || contact.expected_name.empty();
}

void Broker::want(const Address& address, const std::string& expected_name, Instant now) {
  now_ = now;
  Contact* wanted = contact(address, expected_name);
  if (wanted == nullptr) return;
  peer::Credential credential;
  if (map_.find_by_address(address, now, credential) && proves(credential, *wanted)) {
    plan_.touch(address, now);
    news_.push_back({.address = address, .expected_name = expected_name, .credential = credential});
    return;
  }
  ask(address, *wanted, now);
}

void Broker::suspect(const Address& address, const std::string& expected_name, const CredentialId& suspected,
                     peer::Hurry hurry, Instant now) {
  now_ = now;
  Contact* wanted = contact(address, expected_name);
  if (wanted == nullptr) return;
  peer::Credential credential;
  if (map_.find_by_address(address, now, credential) && proves(credential, *wanted) && credential.id != suspected) {
    // Somebody else's suspicion came first.
    news_.push_back({.address = address, .expected_name = expected_name, .credential = credential});
    return;
  }
  map_.retire(suspected, now + options_.map.grace);
  if (!std::exchange(wanted->is_wanted, true)) wanted->wanted_since = now;
  if (plan_.suspect(address, now)) return start(now);
  if (hurry == peer::Hurry::heard_from) return reach(address, *wanted, now);
  if (hurry == peer::Hurry::path_lost) begin_anew(address, *wanted, now);
  // Under way, or too soon after the last one.
  if (wanted->tag == 0) later_.insert({now + plan_.suspicion_delay(), address});
}

void Broker::ask(const Address& address, Contact& contact, Instant now) {
  if (!std::exchange(contact.is_wanted, true)) contact.wanted_since = now;
  if (plan_.want(address, now) == peer::HandshakePlan::Answer::overloaded) {
    return fail(address, Error(Code::overloaded, "too many handshakes are waiting"), now);
  }
  start(now);
}

// Whether the peer's handshake that made this came before one of ours, and did not cross it: however late it is shown,
// it does not replace what came after it. The peer sees the same two in the same order.
bool Broker::is_outdated(const CredentialId& id, const Contact& contact) const {
  return contact.answered == id && contact.made_at - contact.answered_at > options_.map.simultaneous;
}

void Broker::on_shown(const CredentialId& id, Instant now) {
  now_ = now;
  if (peer::Credential shown; map_.find(id, now, shown)) {
    const auto known = contacts_.find(shown.handshake_address);
    if (known != contacts_.end() && is_outdated(id, known->second)) return;
  }
  if (map_.confirm(id, now) != peer::SecretMap::Confirmation::current) return;
  peer::Credential credential;
  // One whom nobody here calls sees to its credential itself.
  if (!map_.find(id, now, credential)) return;
  const auto found = contacts_.find(credential.handshake_address);
  if (found == contacts_.end() || !proves(credential, found->second)) return;
  plan_.on_renewed(credential.handshake_address, Instant{credential.expires_ns}, now);
  // Whoever waited for a handshake that had not begun yet has what it waited for; none will begin now. And who uses an
  // older one moves on to this, as the other side has.
  if (found->second.tag == 0) found->second.is_wanted = false;
  news_.push_back({.address = credential.handshake_address,
                   .expected_name = found->second.expected_name,
                   .credential = credential});
}

void Broker::set_credentials(std::shared_ptr<const Credentials> credentials) {
  options_.credentials = credentials;
  endpoint_.set_credentials(std::move(credentials));
}

// ---- handshakes ----

void Broker::start(Instant now) {
  const std::size_t places = std::max<std::size_t>(options_.plan.max_running / kShareOfSilent, 1);
  while (const std::optional<Address> address = plan_.next(now)) {
    Contact& peer = contacts_[*address];
    if (peer.silences > 0 && silent_running_ >= places) {
      try_later(*address, peer, now);
    } else {
      begin(*address, peer, now);
    }
  }
}

void Broker::begin(const Address& address, Contact& peer, Instant now) {
  peer.tag = next_tag_++;
  peer.begun = now;
  peer.sent = {};
  by_tag_.emplace(peer.tag, address);
  peer.is_silent = peer.silences > 0;
  if (peer.is_silent) ++silent_running_;
  if (Result<void> begun = endpoint_.connect(peer.tag, address, peer.expected_name, now); !begun) {
    end(address, peer);
    plan_.on_failure(address, now);
    return fail(address, begun.error(), now);
  }
  await_answer(address, peer, now);
}

// A handshake that spoke to nobody begins anew: its own repetitions have become rare. In the place that it has.
void Broker::begin_anew(const Address& address, Contact& peer, Instant now) {
  if (peer.tag == 0 || peer.silent_tag != 0 || endpoint_.has_heard(peer.tag)) return;
  give_up_all(address, peer, now);
  begin(address, peer, now);
}

// The peer is there now: neither a handshake that spoke to nobody nor one that waits because earlier ones failed waits
// any longer; but nobody who succeeded a moment ago shakes hands again at once.
void Broker::reach(const Address& address, Contact& peer, Instant now) {
  if (peer.tag != 0) {
    if (!endpoint_.has_heard(peer.tag)) peer.silences = 0;
    begin_anew(address, peer, now);
  } else if (plan_.hurry(address, now)) {
    peer.silences = 0;
    start(now);
  } else {
    later_.insert({now + plan_.suspicion_delay(), address});
  }
}

void Broker::fail(const Address& address, Error error, Instant) {
  const auto found = contacts_.find(address);
  if (found == contacts_.end() || !std::exchange(found->second.is_wanted, false)) return;  // a renewal: tried again
  news_.push_back({.address = address, .expected_name = found->second.expected_name, .failure = std::move(error)});
}

void Broker::take_outcomes(Instant now) {
  while (std::optional<Outcome> outcome = endpoint_.take_outcome()) {
    if (!outcome->inbound) {
      on_outcome(*outcome, now);
    } else if (outcome->failure) {
      map_.retire(outcome->credential, now);
      if (refusals_.size() < kMaxRefusals) refusals_.push_back({outcome->remote, std::move(*outcome->failure)});
    }
  }
  start(now);
}

// Of a handshake that we began.
void Broker::on_outcome(const Outcome& outcome, Instant now) {
  const auto tagged = by_tag_.find(outcome.tag);
  if (tagged == by_tag_.end()) return;
  const Address address = tagged->second;
  Contact& peer = contacts_[address];
  if (outlives(outcome, address, peer, now)) return;
  by_tag_.erase(outcome.tag);
  give_up_all(address, peer, now);
  peer.restarts = 0;
  peer.revivals = 0;
  std::optional<Error> failure = outcome.failure;
  if (!failure && options_.denies && options_.denies(outcome.names)) {
    failure = Error(Code::unauthenticated, "\"" + outcome.names.first() + "\" is on the list of revoked names");
  }
  if (!failure) {
    Result<peer::Credential> made = make_credential(outcome);
    if (made) {
      made->handshake_address = address;
      made->may_call = options_.accepts && (!options_.allows || options_.allows(outcome.names));
      install(*made, outcome.names, now);
      // It answered, so it has the secret. If a handshake from the other side won, that one's credential is used.
      static_cast<void>(map_.confirm(made->id, now));
      peer::Credential current;
      if (!map_.find_by_address(address, now, current) || !proves(current, peer)) current = *made;
      plan_.on_success(address, Instant{current.expires_ns}, now);
      peer.silences = 0;
      peer.made_at = now;
      peer.is_proven = true;
      peer.is_wanted = false;
      news_.push_back({.address = address, .expected_name = peer.expected_name, .credential = current});
      return;
    }
    failure = made.error();
  }
  plan_.on_failure(address, now);
  peer::Credential theirs;
  if (peer.is_wanted && map_.find_by_address(address, now, theirs) &&
      proves(theirs, peer)) {  // the peer's own succeeded
    peer.is_wanted = false;
    news_.push_back({.address = address, .expected_name = peer.expected_name, .credential = theirs});
    return;
  }
  fail(address, std::move(*failure), now);
}

// The names first: who finds the credential finds them.
void Broker::install(const peer::Credential& credential, const Names& names, Instant now) {
  if (credential.may_call) {
    caller_names_.keep(credential.id, names.all(),
                       [this](const CredentialId& id) { return map_.state(id).has_value(); });
  }
  map_.install(credential, now);
}

// Asked inside the handshake. The credential can be found before the answer leaves: whoever reads the answer may use it
// at once.
Result<std::vector<std::byte>> Broker::answer(const Outcome& visitor) {
  if (options_.allows && !options_.allows(visitor.names)) {
    return std::unexpected(Error(Code::refused, "\"" + visitor.names.first() + "\" is not among those who may call"));
  }
  Result<peer::Credential> made = make_credential(visitor);
  if (!made) return std::unexpected(made.error());
  // Only what the certificate proves is a name to call it back by.
  if (!visitor.names.development && visitor.names.may_serve && visitor.names.proves(visitor.remote)) {
    made->handshake_address = visitor.remote;
  }
  made->may_call = true;
  install(*made, visitor.names, now_);
  if (const auto known = contacts_.find(made->handshake_address); known != contacts_.end()) {
    known->second.answered = made->id;
    known->second.answered_at = now_;
  }
  return describe_self(visitor.credential, visitors_told_++);
}

std::vector<std::byte> Broker::describe_self(const CredentialId& id, std::uint64_t turn) const {
  Offer self = options_.self;
  begin_with(self, turn);
  const WipeAtEnd wiped(self.reset_key);
  self.reset_key = crypto::credential_reset_key(signer_, id);
  return encode(self).value();  // checked when the broker was made
}

Result<peer::Credential> Broker::make_credential(const Outcome& outcome) const {
  Result<Offer> theirs = decode_offer(outcome.offer);
  if (!theirs) return std::unexpected(theirs.error());
  const WipeAtEnd wiped(theirs->reset_key);
  if (theirs->incarnation == options_.self.incarnation) {
    return std::unexpected(Error(Code::invalid_argument, "the peer's address leads back to this very pool"));
  }
  Result<Agreement> agreement = agree(options_.self, *theirs);
  if (!agreement) return std::unexpected(agreement.error());
  Result<std::vector<peer::DataAddress>> addresses = data_addresses(*theirs, outcome.remote);
  if (!addresses) return std::unexpected(addresses.error());
  peer::Credential credential{.id = outcome.credential, .secret = outcome.secret, .initiator = !outcome.inbound};
  const auto shared = crypto::SharedSecret::from_secret(outcome.secret);
  credential.hello_key = crypto::derive_hello_key(shared);
  credential.answer_key = crypto::derive_answer_key(shared);
  describe(credential, *theirs, *agreement, *addresses);
  credential.set_name(outcome.names.first());
  credential.member = outcome.names.certificate;
  const Instant end = end_of(outcome);
  if (end <= now_) return std::unexpected(Error(Code::unauthenticated, "a certificate ends this very second"));
  credential.expires_ns = end.ns;
  return credential;
}

// The one place where the ends of certificates, which are times of the wall clock, become instants: the first of the
// peer's end, our own end and the longest life of a credential. Clocks that are set later change nothing.
Instant Broker::end_of(const Outcome& outcome) const {
  const std::int64_t until_seconds = std::min(outcome.names.valid_until_seconds, outcome.own_valid_until_seconds);
  const std::int64_t wall_seconds = options_.wall_clock();
  const std::int64_t longest_seconds = options_.map.lifetime / std::chrono::seconds(1) + 1;
  const std::int64_t left = until_seconds <= wall_seconds ? 0 : until_seconds - wall_seconds;
  return now_ + std::min<Duration>(std::chrono::seconds(std::min(left, longest_seconds)), options_.map.lifetime);
}

// ---- datagrams and time ----

void Broker::on_datagram(MutableByteSpan datagram, const Address& from, Instant now) {
  now_ = now;
  endpoint_.on_datagram(datagram, from, now);
  take_outcomes(now);
  note_heard(from, now);
}

// Counts only if it quotes what we sent last: the connection ids in it cannot be guessed.
void Broker::on_unreachable(const Address& who, ByteSpan quoted, Instant now) {
  now_ = now;
  const auto found = contacts_.find(who);
  if (found == contacts_.end() || found->second.tag == 0 || quoted.size() < kQuotedBytes ||
      !std::equal(found->second.sent.begin(), found->second.sent.end(), quoted.begin())) {
    return;
  }
  // A process that listens there from now on need not be told of handshakes with the one before.
  Contact& peer = found->second;
  const Error nobody(Code::peer_failed, "nobody listens at the peer's address");
  if (!endpoint_.has_heard(peer.tag) && plan_.queued() == 0) {  // it repeats itself, in case somebody comes
    endpoint_.abandon_silently(peer.silent_tag, now);
    by_tag_.erase(std::exchange(peer.silent_tag, 0));
    return fail(who, nobody, now);
  }
  endpoint_.abandon_silently(peer.tag, now);
  endpoint_.abandon_silently(peer.silent_tag, now);
  end(who, peer);
  plan_.on_failure(who, now);
  fail(who, nobody, now);
  start(now);
}

void Broker::on_timeout(Instant now) {
  now_ = now;
  endpoint_.on_timeout(now);
  map_.expire(now);
  take_outcomes(now);
  make_way(now);
  look_for_silence(now);
  while (!later_.empty() && later_.begin()->first <= now) {
    const Address address = later_.extract(later_.begin()).value().second;
    Contact& peer = contacts_[address];
    if (peer.is_wanted && peer.tag == 0) ask(address, peer, now);
  }
  take_outcomes(now);
}

Instant Broker::next_deadline() const {
  Instant next = earliest(endpoint_.next_deadline(), plan_.next_deadline());
  if (!later_.empty()) next = earliest(next, later_.begin()->first);
  if (!unanswered_.empty()) next = earliest(next, unanswered_.begin()->first);
  if (!heard_.empty()) next = earliest(next, heard_.begin()->first);
  return earliest(next, map_.next_deadline());
}

bool Broker::take_datagram(Address& to, ByteSpan& bytes, Instant now) {
  now_ = now;
  if (!endpoint_.take_datagram(to, bytes, now)) {
    take_outcomes(now);  // writing ends handshakes, too
    return endpoint_.take_datagram(to, bytes, now);
  }
  if (const auto found = contacts_.find(to); found != contacts_.end() && found->second.tag != 0) {
    std::copy_n(bytes.begin(), std::min(bytes.size(), kQuotedBytes), found->second.sent.begin());
  }
  return true;
}

bool Broker::answer_one(Instant now) {
  now_ = now;
  const bool has_any = endpoint_.answer_one(now);
  take_outcomes(now);
  return has_any;
}

bool Broker::take_news(News& out) {
  if (news_.empty()) return false;
  out = std::move(news_.front());
  news_.pop_front();
  return true;
}

std::optional<Broker::Refusal> Broker::take_refusal() {
  if (refusals_.empty()) return std::nullopt;
  Refusal refusal = std::move(refusals_.front());
  refusals_.pop_front();
  return refusal;
}

}  // namespace weir::handshake
