#include "sim/host.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "buffer/block.h"
#include "buffer/holds.h"
#include "buffer/seal.h"
#include "crypto/nonce.h"
#include "engine/engine_access.h"
#include "sim/message.h"
#include "sim/random_stream.h"

namespace weir::sim {

namespace {
// Some hosts give memory ahead of its use as they would to those who send much more.
constexpr std::uint64_t kFewBytesAhead = 64u << 10;
}  // namespace

Host::Process::Process(Host& host, std::uint32_t life)
    : entropy(stream_seed(host.world_.seed, "entropy", std::uint64_t{host.id_} << 32 | life)),
      data_keys(stream_seed(host.world_.seed, "data keys", std::uint64_t{host.id_} << 32 | life)),
      watch(host.world_, host.id_),
      config(host.config_),
      handshaker(host.make_handshaker(*this, life)),
      router(host.workers_.count) {
  if (!host.shares_port()) {
    for (std::uint32_t i = 0; i < host.workers_.count; ++i) host.add_worker(*this, life);
    return;
  }
  // As a pool does: see PoolState::open_with_secret().
  entropy.fill(config.incarnation);
  entropy.fill(config.cookie);
  siblings = std::make_unique<SimSiblings>(
      host.workers_.count, stream_seed(host.world_.seed, "vouched", std::uint64_t{host.id_} << 32 | life),
      [&host] { host.wake(); });
  port = std::make_unique<SharedPort>(host.world_.network, host.address_);
  for (std::uint32_t i = 0; i < 2 * host.workers_.count; ++i) host.add_worker(*this, life);
}

void Host::add_worker(Process& process, std::uint32_t life) {
  const std::size_t index = process.workers.size();
  const bool listens_with_others = shares_port() && index < workers_.count;
  SimWorker::Options options{
      .host = id_,
      .index = index,
      .local = world_.network.address_of(id_),
      .link = link_options_,
      .config = process.config,
      .seed =
          stream_seed(world_.seed, "engine", std::uint64_t{id_} << 32 | static_cast<std::uint64_t>(index) << 24 | life),
      .subscriber = &process.watch,
      .handshaker = process.handshaker.get(),
      .port = listens_with_others ? process.port.get() : nullptr,
      .siblings = listens_with_others ? process.siblings.get() : nullptr};
  options.local.port = port_of(index);
  if (!workers_.share_a_name || shares_port()) {
    options.config.worker = static_cast<std::uint16_t>(index % workers_.count);
    options.config.port = options.local.port;
  }
  if (listens_with_others) {
    options.config.workers_at_port = workers_.count;
    options.config.siblings = process.siblings.get();
  } else if (shares_port()) {
    options.config.accepts = false;
    options.config.incarnation = {};
  }
  process.workers.push_back(std::make_unique<SimWorker>(world_, options, process.entropy, [this] { wake(); }));
}

std::uint16_t Host::port_of(std::size_t worker) const {
  const std::size_t at_first_port = shares_port() ? workers_.count : 1;
  return worker < at_first_port ? kDataPort : static_cast<std::uint16_t>(kOtherPorts + worker);
}

std::unique_ptr<Handshaker> Host::make_handshaker(Process& process, std::uint32_t life) {
  if (!identity_) return nullptr;
  process.handshake_link =
      std::make_unique<SimLink>(world_.network, world_.queue, id_, address_, link_options_, [this] { wake(); });
  const std::uint64_t this_life = std::uint64_t{id_} << 32 | life;
  const std::uint64_t signer = stream_seed(world_.seed, "signer", identity_->keeps_signer ? id_ : this_life);
  SeededEntropy(signer).fill(process.config.signer);
  process.entropy.fill(process.config.incarnation);
  std::vector<std::uint16_t> worker_ports;
  for (std::size_t i = 0; i < workers_.count; ++i) worker_ports.push_back(port_of(i));
  auto handshaker =
      std::make_unique<Handshaker>(world_,
                                   Handshaker::Options{.host = id_,
                                                       .certificate_of = identity_->certificate_of.value_or(id_),
                                                       .forgets_members = identity_->forgets_members,
                                                       .seed = stream_seed(world_.seed, "handshaker", this_life),
                                                       .signer = process.config.signer,
                                                       .incarnation = process.config.incarnation,
                                                       .accepts = config_.accepts,
                                                       .worker_ports = std::move(worker_ports),
                                                       .mtu = static_cast<std::uint32_t>(config_.datagram_bytes),
                                                       .clock_error_seconds = identity_->clock_error_seconds,
                                                       .grace = identity_->grace,
                                                       .simultaneous = identity_->simultaneous,
                                                       .limits = config_.limits,
                                                       .timeouts = config_.timeouts,
                                                       .certificates = identity_->certificates,
                                                       .run_start = identity_->run_start,
                                                       .forgets_ends = identity_->forgets_ends},
                                   process.entropy, *process.handshake_link);
  process.config.credentials = handshaker.get();
  process.config.secret.reset();
  return handshaker;
}

Host::Host(World& world, HostId id, const engine::EngineConfig& config, const SimLink::Options& link_options,
           const std::optional<HostIdentity>& identity, Application& application, const HostWorkers& workers)
    : world_(world),
      id_(id),
      config_(config),
      link_options_(link_options),
      identity_(identity),
      workers_(workers),
      address_(world.network.address_of(id)),
      application_(application),
      lateness_(stream(world.seed, "lateness", id)) {
  config_.memory = landings_.get();
  config_.opens_arrivals = id % 2 != 0;  // as processes without threads do
  if (id % 3 == 1) config_.ahead_bytes = kFewBytesAhead;
  for (const Address& data : data_addresses()) {
    if (data != address_) world_.network.add_address(id_, data);
  }
  if (!identity_) return;
  address_.port = kHandshakePort;
  world_.network.add_address(id_, address_);
}

Host::~Host() {
  if (is_up()) crash();
  // What is left over was found and reported. It must not end the process before somebody has read so.
  for (auto* memory : {&landings_, &payloads_}) {
    if ((*memory)->taken_bytes() != 0) (void)memory->release();
  }
}

void Host::start() {
  ++life_;
  world_.journal.note(world_.now(), "start host life", {id_, life_});
  process_ = std::make_unique<Process>(*this, life_);
  application_.on_start(id_);
  wake();
}

void Host::crash() {
  world_.journal.note(world_.now(), "crash host life", {id_, life_});
  process_.reset();
  leaked_timer_ = {};
  next_poll_ = Instant::never();
  ++poll_ticket_;
  application_.on_stop(id_);
}

std::size_t Host::buffers_in_use() const {
  const SimLink* other = process_->handshake_link.get();
  std::size_t sum = other == nullptr ? 0 : other->buffers_in_use();
  for (const auto& worker : process_->workers) sum += worker->link().buffers_in_use();
  return sum;
}

std::size_t Host::packets_in_flight() {
  std::size_t sum = 0;
  for (const auto& worker : process_->workers) sum += worker->engine().census().packets_in_flight;
  return sum;
}

std::vector<Address> Host::data_addresses() const {
  std::vector<Address> all;
  for (std::size_t i = 0; i < (shares_port() ? 2 : 1) * workers_.count; ++i) {
    Address data = world_.network.address_of(id_);
    data.port = port_of(i);
    if (all.empty() || all.back() != data) all.push_back(data);
  }
  return all;
}

SimWorker& Host::worker_to(const Host& other) {
  const std::size_t first_caller = shares_port() ? workers_.count : 0;
  return *process_->workers[first_caller + process_->router.worker_of(other.address())];
}

Result<std::uint32_t> Host::peer(const Host& other) {
  SimWorker& worker = worker_to(other);
  const auto known = worker.peers().find(other.id());
  if (known != worker.peers().end()) return known->second;
  const auto made = worker.engine().connect(other.address());
  if (!made) return made;
  worker.peers().emplace(other.id(), *made);
  if (process_->handshaker != nullptr) {
    process_->handshaker->add_peer(process_->router.worker_of(other.address()), *made, other.address());
  }
  return made;
}

void Host::reshuffle() {
  if (is_up() && process_->port != nullptr) process_->port->reshuffle();
}

void Host::forget_callers() {
  if (is_up() && process_->handshaker != nullptr) process_->handshaker->forget_callers(world_.now());
}

buffer::Sealed* Host::seal(ByteSpan text, std::uint64_t piece_bytes) {
  crypto::KeyBytes key;
  process_->data_keys.fill(key);
  buffer::Sealed* const sealed =
      buffer::seal(*payloads_, text, key, buffer::thread_key(), buffer::kRecordBytes, piece_bytes);
  WEIR_CHECK(sealed != nullptr, "a simulated host has memory for every payload");
  return sealed;
}

buffer::Sealed* Host::adopt(ByteSpan text) {
  Buffer room(buffer::make_block(*payloads_, {.bytes = text.size()}));
  WEIR_CHECK(room, "a simulated host has memory for every payload");
  std::copy(text.begin(), text.end(), room.span().begin());
  disguise(room.span());
  const std::uint64_t bound = std::min<std::uint64_t>(text.size(), 32);
  const Payload payload = buffer::adopt(std::move(room), {.offset = text.size() - bound, .length = bound}).value();
  return buffer::lend(*payload.sealed(), buffer::pieces_of(*payload.sealed(), 0, text.size()));
}

void Host::revoke_regions(double chance, Random& random) {
  const std::uint32_t revoked = engine::testing::EngineAccess::revoke_regions(
      engine(), world_.now(), [&](const auto&) { return random.chance(chance); });
  world_.journal.note(world_.now(), "revoke host regions", {id_, revoked});
  wake();
}

void Host::repeat_nonces() {
  engine::testing::EngineAccess::core(engine()).paths.for_each([](engine::Path& path) {
    if (!path.keys.installed() || path.next_number == 0) return;
    std::byte tag[crypto::kTagBytes];
    path.keys.send_key().seal(crypto::make_nonce(0, path.next_number - 1), {}, {}, tag);
  });
}

void Host::leak_a_timer() {
  engine::testing::EngineAccess::core(engine()).wheel.arm(leaked_timer_, world_.now() + std::chrono::hours(1'000));
}

void Host::leak_credit() {
  engine::testing::EngineAccess::core(engine()).paths.for_each(
      [](engine::Path& path) { (void)path.accounts[0].on_received(1); });
}

void Host::stall_until(Instant end) {
  if (end <= stalled_until_) return;
  world_.journal.note(world_.now(), "stall host ns", {id_, static_cast<std::uint64_t>((end - world_.now()).count())});
  stalled_ += end - std::max(world_.now(), stalled_until_);
  stalled_until_ = end;
  if (!next_poll_.is_never()) {
    const Instant wanted = next_poll_;
    next_poll_ = Instant::never();
    poll_at(wanted);
  }
}

void Host::run_at(Instant when, EventQueue::Action action) {
  world_.queue.at(when, [this, life = life_, act = std::move(action)]() mutable {
    if (!is_up() || life_ != life) return;
    if (world_.now() < stalled_until_) {
      run_at(stalled_until_, std::move(act));
      return;
    }
    act();
    wake();
  });
}

void Host::poll_at(Instant when) {
  if (when.is_never()) return;
  when = std::max({when, stalled_until_, busy_until_});
  if (when >= next_poll_) return;
  next_poll_ = when;
  world_.queue.at(when, [this, ticket = ++poll_ticket_] {
    if (ticket == poll_ticket_ && is_up()) poll();
  });
}

Instant Host::noticed_at(Instant deadline) {
  if (timer_lateness_.count() == 0 || deadline.is_never()) return deadline;
  return deadline + between(lateness_, Duration{0}, timer_lateness_);
}

void Host::be_busy(std::uint64_t datagrams) {
  busy_until_ = world_.now() + static_cast<std::int64_t>(datagrams) * datagram_cost_;
}

void Host::poll() {
  ++polls_;
  next_poll_ = Instant::never();
  Process& process = *process_;
  const Instant soon = world_.now() + kPollDelay;
  std::uint64_t datagrams = 0;
  for (const auto& worker : process.workers) {
    const Counters& counters = worker->engine().events().counters;
    const std::uint64_t before = counters.packets_received + counters.packets_sent;
    worker->seat().poll_once(world_.now());
    datagrams += counters.packets_received + counters.packets_sent - before;
  }
  be_busy(datagrams);
  if (forgets_regions_) {
    engine::Core& core = engine::testing::EngineAccess::core(engine());
    core.wheel.cancel(core.regions_timer);
  }
  for (const auto& worker : process.workers) {
    if (worker->seat().is_blocked()) poll_at(std::max(worker->link().writable_at(), soon));
    if (worker->link().has_arrivals()) poll_at(soon);
  }
  if (process.handshaker != nullptr) {
    Handshaker& handshaker = *process.handshaker;
    handshaker.poll_once(world_.now());
    if (process.handshake_link->has_arrivals() || handshaker.has_news()) poll_at(soon);
    poll_at(std::max(noticed_at(handshaker.next_deadline()), soon));
  }
  for (const auto& worker : process.workers) {
    poll_at(std::max(noticed_at(worker->seat().next_deadline()), soon));
  }
}

}  // namespace weir::sim
