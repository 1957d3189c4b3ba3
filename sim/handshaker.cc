#include "sim/handshaker.h"

#include <algorithm>
#include <utility>

namespace weir::sim {

Handshaker::Handshaker(World& world, const Options& options, crypto::Entropy& entropy, SimLink& link)
    : world_(world), options_(options), link_(link) {
  const auto& plan = options.certificates;
  const auto credentials =
      identity_of(options.certificate_of, world.network.address_of(options.certificate_of),
                  plan ? validity_at(*plan, options.host, options.run_start, world.now()) : kValidity);
  if (plan) next_certificate_ = next_certificate(*plan, options.host, options.run_start, world.now());
  handshake::Offer self;
  self.incarnation = options.incarnation;
  self.name = credentials->names().first();
  for (std::size_t i = 0; i < options.worker_ports.size(); ++i) {
    self.workers.push_back({.worker = static_cast<std::uint16_t>(i), .port = options.worker_ports[i]});
  }
  self.mtu = options.mtu;
  handshake::Broker::Options broker{
      .credentials = credentials,
      .accepts = options.accepts,
      .self = self,
      .signer = options.signer,
      .wall_clock = [this] { return wall_seconds(world_.now()) + options_.clock_error_seconds; },
      .entropy = &entropy,
      .seed = options.seed,
      .max_incoming = options.limits.handshakes_in,
      .timeout = options.timeouts.handshake};
  // As pool::Handshaker has it.
  broker.map.capacity = options.limits.credentials;
  broker.map.lifetime = 2 * options.timeouts.credential;
  broker.map.grace = options.grace;
  broker.map.simultaneous = options.simultaneous;
  // Of two handshakes that cross, one wins by the dice of TLS. Here it is the seed's, which drew the incarnations.
  broker.map.order = [ours = options.incarnation](const peer::Credential& credential) {
    return hash_of(credential.initiator ? ours : credential.remote_incarnation);
  };
  broker.plan.max_running = options.limits.handshakes_out;
  broker.plan.max_queued = std::size_t{options.limits.peers} * 2;
  broker.plan.max_addresses = std::size_t{options.limits.peers} * 4 + options.limits.handshakes_out;
  broker.plan.longest_backoff = std::chrono::seconds(2);
  broker.plan.period = options.timeouts.credential;
  broker.plan.idle = options.timeouts.credential;
  broker_ = std::make_unique<handshake::Broker>(std::move(broker));
  datagrams_.reserve(link::kReceiveBurst);
}

Handshaker::~Handshaker() = default;

void Handshaker::add_engine(std::size_t worker, engine::Engine& engine) {
  if (desks_.size() <= worker) desks_.resize(worker + 1);
  desks_[worker].engine = &engine;
}

void Handshaker::add_peer(std::size_t worker, std::uint32_t peer, const Address& address) {
  desks_[worker].addresses[peer] = address;
  waiters_[address] = {.worker = worker, .peer = peer};
}

void Handshaker::forget_callers(Instant now) {
  world_.journal.note(now, "forget-callers host", {options_.host});
  for (const engine::CredentialId& id : std::exchange(used_by_callers_, {})) broker_->map().retire(id, now);
  broker_->map().expire(now);
}

bool Handshaker::has_news() const {
  return !requests_.empty() || !shown_.empty() ||
         std::ranges::any_of(desks_, [](const Desk& desk) { return !desk.told.empty(); });
}

std::size_t Handshaker::waiting() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(waiters_, [](const auto& each) { return each.second.is_waiting; }));
}

// ---- the engine's side ----

bool Handshaker::find(const engine::CredentialId& id, Instant now, engine::KnownCredential& out) const {
  const bool is_known = broker_->map().find_caller(id, options_.forgets_ends ? Instant{} : now, out);
  if (options_.forgets_ends) out.expires = Instant::never();
  if (options_.forgets_members) out.member = 0;
  return is_known;
}

void Handshaker::on_shown(const engine::CredentialId& id) {
  used_by_callers_.push_back(id);
  if (broker_->map().mark_used(id, peer::SecretMap::Side::both)) shown_.push_back(id);
}

bool Handshaker::drain(std::size_t worker, Instant now) {
  Desk& desk = desks_[worker];
  const bool has_any = !desk.told.empty();
  for (const Told& each : std::exchange(desk.told, {})) {
    if (each.failure) {
      desk.engine->refuse(each.peer, each.failure->code(), each.failure->message(), now);
    } else {
      desk.engine->install(each.peer, each.credential, now);
    }
  }
  flush(worker, now);
  return has_any;
}

void Handshaker::flush(std::size_t worker, Instant) {
  Request request{.worker = worker};
  while (desks_[worker].engine->take_wanted(request.wanted)) requests_.push_back(request);
}

// ---- the broker's side ----

void Handshaker::replace_certificate(Instant now) {
  world_.journal.note(now, "new-certificate host", {options_.host});
  const ShortCertificates& plan = *options_.certificates;
  broker_->set_credentials(
      identity_of(options_.host, link_.local(), validity_at(plan, options_.host, options_.run_start, now)));
  next_certificate_ = next_certificate(plan, options_.host, options_.run_start, now);
}

void Handshaker::poll_once(Instant now) {
  if (next_certificate_ <= now) replace_certificate(now);
  take_requests(now);
  if (broker_->next_deadline() <= now) broker_->on_timeout(now);
  receive(now);
  take_news(now);
  send(now);
  while (!is_blocked() && broker_->answer_one(now)) send(now);
  take_news(now);  // what was written has ended handshakes
}

Instant Handshaker::next_deadline() const {
  return earliest(next_certificate_, is_blocked() ? link_.writable_at() : broker_->next_deadline());
}

void Handshaker::take_requests(Instant now) {
  for (const engine::CredentialId& id : std::exchange(shown_, {})) broker_->on_shown(id, now);
  for (const auto& [worker, wanted] : std::exchange(requests_, {})) {
    const Address& address = desks_[worker].addresses.at(wanted.peer);
    world_.journal.note(now, "wants-credential host peer suspects", {options_.host, wanted.peer, wanted.suspects});
    Waiter& waiter = waiters_.at(address);
    waiter.is_waiting = true;
    waiter.since = now;
    if (wanted.suspects) {
      broker_->suspect(address, "", wanted.suspected, wanted.hurry, now);
    } else {
      broker_->want(address, "", now);
    }
  }
}

void Handshaker::receive(Instant now) {
  datagrams_.clear();
  link_.receive(datagrams_);
  for (const link::Datagram& datagram : datagrams_) broker_->on_datagram(datagram.bytes, datagram.from, now);
  link_.recycle();
  link::Unreachable report;
  while (link_.take_unreachable(report)) broker_->on_unreachable(report.who, report.quoted_bytes(), now);
}

void Handshaker::send(Instant now) {
  for (;;) {
    if (pending_.bytes.empty()) {
      ByteSpan bytes;
      if (!broker_->take_datagram(pending_.to, bytes, now)) return;
      sending_.assign(bytes.begin(), bytes.end());
      pending_.bytes = sending_;
    }
    link::SendStatus status{};
    if (link_.send({&pending_, 1}, {&status, 1}) == 0) return;  // no room: when it is writable again
    pending_.bytes = {};
  }
}

void Handshaker::take_news(Instant now) {
  handshake::Broker::News news;
  while (broker_->take_news(news)) {
    const auto found = waiters_.find(news.address);
    if (found == waiters_.end() || (news.failure && !found->second.is_waiting)) continue;
    Waiter& waiter = found->second;
    Told told{.peer = waiter.peer, .failure = news.failure, .credential = {}};
    if (news.failure) {
      ++stats_.refused;
      world_.journal.note(now, "no-credential host peer code",
                          {options_.host, waiter.peer, static_cast<std::uint64_t>(news.failure->code())});
    } else {
      if (stats_.installed++ == 0) stats_.first_handshake = now - waiter.since;
      world_.journal.note(now, "credential host peer renewed", {options_.host, waiter.peer, !waiter.is_waiting});
      const peer::DataAddress& data = budget_.choose(news.credential.data_addresses(), 0, now);
      budget_.on_credential(news.credential.id, data);
      told.credential = {.id = news.credential.id,
                         .secret = crypto::SharedSecret::from_secret(news.credential.secret),
                         .reset_key = news.credential.reset_key,
                         .data = data.address,
                         .is_proven = data.validated,
                         .mtu = news.credential.mtu,
                         .member = news.credential.member,
                         .expires = options_.forgets_ends ? Instant::never() : Instant{news.credential.expires_ns}};
    }
    waiter.is_waiting = false;
    desks_[waiter.worker].told.push_back(std::move(told));
  }
  while (const auto refusal = broker_->take_refusal()) {
    world_.journal.note(now, "visitor-refused host code",
                        {options_.host, static_cast<std::uint64_t>(refusal->error.code())});
  }
}

}  // namespace weir::sim
