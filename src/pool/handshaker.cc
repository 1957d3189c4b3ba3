#include "pool/handshaker.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "handshake/secret_bytes.h"

namespace weir::pool {

namespace {

engine::Credential for_post(const peer::Credential& credential, const peer::DataAddress& data) {
  return {.id = credential.id,
          .secret = crypto::SharedSecret::from_secret(credential.secret),
          .reset_key = credential.reset_key,
          .data = data.address,
          .is_proven = data.validated,
          .mtu = credential.mtu,
          .member = credential.member,
          .expires = Instant{credential.expires_ns}};
}

// To whoever looks, once per process: programs that subscribe to nothing must not go on like this unnoticed.
void say_aloud(const std::string& warning) {
  static std::atomic<bool> was_said{false};
  if (!was_said.exchange(true)) std::fprintf(stderr, "weir: %s\n", warning.c_str());
}

}  // namespace

Handshaker::Handshaker(Options options)
    : worker_(std::move(options.worker)),
      has_own_thread_(options.has_own_thread),
      identity_(std::move(options.identity)),
      buffers_(std::move(options.buffers)),
      link_(std::move(options.link)),
      local_(link_->local()),
      subscriber_(std::move(options.subscriber)),
      events_(subscriber_.get(), worker_->index()),
      accepts_(options.accepts),
      limits_(options.limits),
      timeouts_(options.timeouts),
      seed_(options.seed) {
  entropy_.fill(incarnation_);
  hosted_.seat = this;
  hosted_.rung = &rung_;
  datagrams_.reserve(link::kReceiveBurst);
}

Handshaker::~Handshaker() = default;

crypto::KeyBytes Handshaker::signer() const {
  return crypto::derive_signer(crypto::SharedSecret::from_secret(identity_->signer()));
}

std::string Handshaker::name() const { return identity_->current()->names().first(); }

Result<void> Handshaker::open(handshake::Offer self) {
  self.incarnation = incarnation_;
  self.name = name().substr(0, handshake::Offer::kMaxName);
  if (auto encoded = encode(self); !encoded) return std::unexpected(encoded.error());
  handshake::Broker::Options options{
      .credentials = identity_->current(),
      .allows = [this](const handshake::Names& names) { return !has_left() && identity_->allows(names); },
      .denies = [this](const handshake::Names& names) { return identity_->denies(names); },
      .accepts = accepts_,
      .self = self,
      .signer = signer(),
      .wall_clock = handshake::wall_clock_seconds,
      .entropy = &entropy_,
      .seed = seed_,
      .max_incoming = limits_.handshakes_in,
      .timeout = timeouts_.handshake};
  options.map.capacity = limits_.credentials;
  options.map.lifetime = 2 * timeouts_.credential;
  options.plan.max_running = limits_.handshakes_out;
  options.plan.max_queued = std::size_t{limits_.peers} * 2;
  options.plan.max_addresses = std::size_t{limits_.peers} * 4 + limits_.handshakes_out;
  options.plan.longest_backoff = std::chrono::seconds(2);
  options.plan.period = timeouts_.credential;
  options.plan.idle = 2 * timeouts_.credential;  // each renewal that is used counts, if only a little late
  if (!identity_->key_log_path().empty()) {
    const std::string& path = identity_->key_log_path();
    const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    struct stat state {};
    if (file < 0 || ::fstat(file, &state) != 0) {
      Error error(Code::system, "cannot append to the key log " + path + ": " + std::strerror(errno));
      if (file >= 0) ::close(file);
      return std::unexpected(std::move(error));
    }
    key_log_ = std::shared_ptr<const int>(new int(file), [](const int* open_log) {
      ::close(*open_log);
      delete open_log;
    });
    if (!S_ISREG(state.st_mode) || state.st_uid != ::geteuid() || (state.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
      return std::unexpected(
          Error(Code::invalid_argument, "the key log " + path + " must be a file of ours that others cannot read"));
    }
    // One write for each line: nothing is buffered that a forked child could write again.
    options.key_log = [to = key_log_, worker = worker_](std::string_view line) {
      const std::string whole = std::string(line) + "\n";
      if (worker->is_in_child()) return;
      [[maybe_unused]] const auto written = ::write(*to, whole.data(), whole.size());
    };
  }
  const handshake::WipeAtEnd wiped(options.signer);
  broker_ = std::make_unique<handshake::Broker>(std::move(options));
  map_.store(&broker_->map(), std::memory_order_release);
  return {};
}

bool Handshaker::join(Instant until) {
  return worker_->try_on_loop(
      [this] {
        events_.set_now(worker_->now());
        if (identity_->is_development()) {
          events_.emit(event::Degraded{{}, "development identity", identity_->warning()});
          if (subscriber_ == nullptr) say_aloud(identity_->warning());
        }
        if (key_log_) {
          events_.emit(event::Degraded{{}, "key log", "TLS secrets are written to a file: who reads it reads all"});
        }
        worker_->add(hosted_);
      },
      until);
}

bool Handshaker::leave(Instant until) {
  has_left_.store(true, std::memory_order_relaxed);
  const auto go = [this, self = shared_from_this()] { worker_->remove(hosted_); };
  if (worker_->try_on_loop(go, until)) return true;
  worker_->post(go);
  return false;
}

// ---- other threads ----

void Handshaker::request(Request request) {
  const PeerEntry& entry = *request.entry;
  Asked asked{.request = std::move(request), .address = entry.address, .name = entry.name};
  {
    std::lock_guard lock(mutex_);
    requests_.push_back(std::move(asked));
    has_requests_.store(true, std::memory_order_relaxed);
  }
  rung_.store(true, std::memory_order_release);
  worker_->doorbell()->ring();
}

bool Handshaker::find(const engine::CredentialId& id, Instant now, engine::KnownCredential& out) const {
  // Acquire: whoever sees the map sees what is in it.
  const peer::SecretMap* map = map_.load(std::memory_order_acquire);
  return map != nullptr && map->find_caller(id, now, out);
}

// Whoever has found a credential has seen the map, and so the broker.
transfer::ProvenNames Handshaker::names_of(const engine::CredentialId& id) const { return broker_->caller_names(id); }

void Handshaker::on_shown(const engine::CredentialId& id) {
  // Relaxed: whoever has found a credential has seen the map.
  if (!map_.load(std::memory_order_relaxed)->mark_used(id, peer::SecretMap::Side::both)) return;
  {
    std::lock_guard lock(mutex_);
    shown_.push_back(id);
    has_requests_.store(true, std::memory_order_relaxed);
  }
  rung_.store(true, std::memory_order_release);
  worker_->doorbell()->ring();
}

bool Handshaker::may_greet(const Address& to, bool is_proven, Instant now) {
  std::lock_guard lock(budget_mutex_);
  return budget_.spend(to, is_proven, now);
}

void Handshaker::on_answer(const Address& from, Instant now) {
  std::lock_guard lock(budget_mutex_);
  budget_.on_answer(from, now);
}

// ---- a turn ----

bool Handshaker::poll_once(Instant now) {
  events_.set_now(now);
  if (has_left() || worker_->is_in_child()) return false;
  bool is_busy = false;
  if (has_requests_.load(std::memory_order_relaxed)) is_busy |= take_requests(now);
  // Before the timers: this loop may have stood still, and what came meanwhile says who is there.
  if (has_own_thread_ || now >= look_at_ || broker_->has_question()) {
    look_at_ = now + kLookInterval;
    is_busy |= receive(now);
  }
  if (worker_->is_in_child()) return false;  // the application's function forked, and returned in the child
  if (broker_->next_deadline() <= now) {
    broker_->on_timeout(now);
    is_busy = true;
  }
  if (now >= reload_at_) reload(now);
  is_busy |= tell_news(now);
  is_busy |= send(now);
  is_busy |= tell_news(now);  // what was written has ended handshakes
  return answer_one(now, is_busy) || is_busy;
}

// The application may take its time, and forks if it likes. So everything else is done first: all that has come is
// read, unless it comes faster than it can be read, and all that is to be sent has left. The answer leaves in the next
// turn, at the time that it has become by then.
bool Handshaker::answer_one(Instant now, bool is_busy) {
  if (!broker_->has_question() || is_blocked() || worker_->is_in_child()) return false;
  if (is_busy && ++busy_turns_ < kBusyTurnsPerAnswer) return true;
  busy_turns_ = 0;
  return broker_->answer_one(now) && !worker_->is_in_child();
}

Instant Handshaker::next_deadline() const {
  if (has_left()) return Instant::never();
  if (is_blocked()) return reload_at_;
  if (broker_->has_question()) return Instant{};
  return earliest(broker_->next_deadline(), reload_at_);
}

bool Handshaker::take_requests(Instant now) {
  std::vector<Asked> requests;
  std::vector<engine::CredentialId> shown;
  {
    std::lock_guard lock(mutex_);
    has_requests_.store(false, std::memory_order_relaxed);
    requests.swap(requests_);
    shown.swap(shown_);
  }
  for (const engine::CredentialId& id : shown) broker_->on_shown(id, now);
  for (const Asked& asked : requests) {
    const Request& request = asked.request;
    std::vector<Waiter>& waiters = waiters_[asked.address];
    Waiter* known = nullptr;
    for (Waiter& waiter : waiters) {
      if (waiter.peer == request.peer && !waiter.post.owner_before(request.post) &&
          !request.post.owner_before(waiter.post)) {
        known = &waiter;
      }
    }
    if (known == nullptr)
      known = &waiters.emplace_back(Waiter{.post = request.post, .peer = request.peer, .expected_name = asked.name});
    known->is_waiting = true;
    if (request.suspects) {
      broker_->suspect(asked.address, asked.name, request.suspected, request.hurry, now);
    } else {
      broker_->want(asked.address, asked.name, now);
    }
  }
  return true;
}

bool Handshaker::receive(Instant now) {
  datagrams_.clear();
  link_->receive(datagrams_);
  for (const link::Datagram& datagram : datagrams_) {
    if (has_left() || worker_->is_in_child()) break;  // each may ask the application: about a callee that may call us
    broker_->on_datagram(datagram.bytes, datagram.from, now);
  }
  link_->recycle();
  link::Unreachable report;
  for (int i = 0; i < kMaxUnreachables && link_->take_unreachable(report); ++i) {
    broker_->on_unreachable(report.who, report.quoted_bytes(), now);
  }
  return !datagrams_.empty();
}

bool Handshaker::send(Instant now) {
  bool is_busy = false;
  for (int i = 0; i < kDatagramsPerTurn; ++i) {
    if (pending_.bytes.empty()) {
      ByteSpan bytes;
      if (!broker_->take_datagram(pending_.to, bytes, now)) return is_busy;
      sending_.assign(bytes.begin(), bytes.end());
      pending_.bytes = sending_;
    }
    link::SendStatus status{};
    if (link_->send({&pending_, 1}, {&status, 1}) == 0) return is_busy;  // no room: when it is writable again
    pending_.bytes = {};
    is_busy = true;
  }
  return is_busy;
}

bool Handshaker::tell_news(Instant now) {
  if (has_left()) return false;
  bool is_busy = false;
  handshake::Broker::News news;
  while (broker_->take_news(news)) {
    is_busy = true;
    const auto found = waiters_.find(news.address);
    if (found == waiters_.end()) continue;
    std::erase_if(found->second, [](const Waiter& waiter) { return waiter.post.expired(); });
    std::size_t turn = 0;  // posts that call the same peer take different workers of it
    for (Waiter& waiter : found->second) {
      const auto post = waiter.post.lock();
      if (post == nullptr || (news.failure && !waiter.is_waiting)) continue;
      if (waiter.expected_name != news.expected_name) continue;
      waiter.is_waiting = false;
      CredentialNews told{.peer = waiter.peer, .failure = news.failure};
      const handshake::WipeAtEnd wiped(told.credential.reset_key);
      if (!news.failure) {
        std::lock_guard lock(budget_mutex_);
        const peer::DataAddress& data = budget_.choose(news.credential.data_addresses(), turn++, now);
        budget_.on_credential(news.credential.id, data);
        told.credential = for_post(news.credential, data);
      }
      post->tell(std::move(told));
    }
  }
  while (const auto refusal = broker_->take_refusal()) {
    const std::optional<std::uint64_t> left_out = refusals_.note(refusal->from, now);
    if (!left_out) {
      ++events_.counters.handshakes_failed;
      continue;
    }
    events_.emit(event::HandshakeFailed{
        {}, refusal->from.to_string(), refusal->error.code(), refusal->error.message(), *left_out});
  }
  return is_busy;
}

void Handshaker::reload(Instant now) {
  if (has_left()) return;
  reload_at_ = now + kReloadInterval;
  if (identity_->reload_if_changed(handshake::wall_clock_seconds())) broker_->set_credentials(identity_->current());
  if (const std::string complaint = identity_->complaint(); !complaint.empty()) {
    events_.emit(event::Degraded{{}, "certificates", complaint});
  }
  tell_of_strangers();
}

// Whoever has not proven its address is no peer, and there may be any number of them: one event for all.
void Handshaker::tell_of_strangers() {
  const handshake::EndpointStats stats = broker_->stats();
  const std::uint64_t failed = stats.failed_unproven - told_.failed_unproven;
  const std::uint64_t asked = stats.retries_sent - told_.retries_sent;
  const std::uint64_t evicted = stats.evicted - told_.evicted;
  const std::uint64_t dropped = stats.dropped_full + stats.dropped_source - told_.dropped_full - told_.dropped_source;
  told_ = stats;
  if (failed + asked + evicted + dropped == 0) return;
  std::string sentence = "handshakes of strangers: " + std::to_string(asked) + " asked to prove their address first, " +
                         std::to_string(evicted) + " gave way half done, " + std::to_string(dropped) + " dropped, " +
                         std::to_string(failed) + " failed unproven";
  if (failed != 0 && broker_->last_unproven_failure()) {
    sentence += "; the last one: " + broker_->last_unproven_failure()->to_string();
  }
  events_.emit(event::Degraded{{}, "handshakes", sentence});
}

}  // namespace weir::pool
