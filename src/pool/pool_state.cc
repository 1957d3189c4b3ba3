#include "pool/pool_state.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/check.h"
#include "buffer/memory_plan.h"
#include "link/open.h"
#include "pool/allocation.h"
#include "pool/bulk_client.h"
#include "pool/bulk_server.h"
#include "pool/lasting_memory.h"
#include "pool/validate.h"
#include "worker/clock.h"
#include "worker/place.h"
#include "worker/thread_context.h"

namespace weir::detail {
namespace {

constexpr std::chrono::milliseconds kLastHandleDeadline{200};
constexpr std::chrono::microseconds kQuietCheck{500};
constexpr std::chrono::milliseconds kLoanCheck{1};  // whether a loop that somebody borrowed is back

constexpr std::uint64_t kUnbounded = std::uint64_t{1} << 62;

constexpr std::chrono::seconds kOwnerPatience{5};   // for what cannot be done before the owner of a loop polls
constexpr std::chrono::milliseconds kGoodbye{200};  // for the same at the end of close(), after its deadline
constexpr const char* kOwnerDoesNotPoll =
    "this pool has no worker threads, and the thread that owns its loop lives but does not poll";

constexpr const char* kClosedInside =
    "a pool was closed, or its last handle dropped, inside a handler or continuation on the thread that turns a loop: "
    "keep a handle outside and close the pool from there";

std::uint64_t random_word() {
  crypto::SystemEntropy entropy;
  std::uint64_t word = 0;
  entropy.fill(std::as_writable_bytes(std::span{&word, 1}));
  return word;
}

// Bounded by those who take of it: the pool's buffers, and the engines' ledgers of what arrives.
Result<std::shared_ptr<buffer::Memory>> build_memory(const Config& config) {
  buffer::MemoryPlan plan{.kind = config.buffers.memory,
                          .bytes = kUnbounded,
                          .keep_bytes = config.buffers.keep_bytes,
                          .touch = config.buffers.touch,
                          .directory = config.buffers.directory};
  if (config.subscriber != nullptr) {
    plan.on_degraded = [subscriber = config.subscriber](std::string_view sentence) {
      subscriber->on(event::Degraded{{}, "huge pages", sentence});
    };
  }
  return buffer::build_memory(plan);
}

bool wants_portable_link(const Config& config) {
  const char* wanted = std::getenv("WEIR_LINK");
  return config.portable_link || (wanted != nullptr && std::string_view(wanted) == "portable");
}

}  // namespace

Result<std::shared_ptr<PoolState>> PoolState::open(Config config) {
  if (Result<void> valid = pool::validate(config); !valid) return std::unexpected(valid.error());
  std::shared_ptr<worker::Crew> crew;
  const bool owns_crew = config.on == nullptr;
  if (!owns_crew) {
    crew = config.on->state()->crew;
  } else {
    auto made = worker::Crew::open({.threads = config.workers,
                                    .places = config.places,
                                    .idle = config.idle,
                                    .watchdog = config.watchdog,
                                    .on_hang = config.on_hang,
                                    .subscriber = config.subscriber});
    if (!made) return std::unexpected(made.error());
    crew = *made;
  }
  config.on = nullptr;  // the handle may not outlive this call
  if (config.name.empty())
    config.name = "weir-" + std::to_string(getpid()) + "-" + std::to_string(random_word() % 100'000);
  Result<std::shared_ptr<buffer::Memory>> memory = build_memory(config);
  if (!memory) return std::unexpected(std::move(memory).error());
  auto state = std::make_shared<PoolState>(std::move(config), std::move(crew), owns_crew, *std::move(memory));
  if (Result<void> opened = state->open_posts(); !opened) return std::unexpected(opened.error());
  return state;
}

PoolState::PoolState(Config config, std::shared_ptr<worker::Crew> crew, bool owns_crew,
                     std::shared_ptr<buffer::Memory> memory)
    : config_(std::move(config)), crew_(std::move(crew)), owns_crew_(owns_crew), router_(crew_->size()) {
  buffers_ = buffer::BufferPool::create(memory, {.bytes = config_.limits.buffer_bytes});
  arrivals_ = pool::LastingMemory::create(std::move(memory));
  if (crew_->has_threads() && config_.executor_threads > 0) {
    executor_ = std::make_unique<pool::Executor>(config_.executor_threads, config_.limits.executor_queue);
  }
}

PoolState::~PoolState() { static_cast<void>(close(kLastHandleDeadline)); }

Result<void> PoolState::open_posts() {
  Address bind = Address::v4(0, 0);
  if (!config_.listen.empty()) {
    Result<Address> listen = Address::parse(config_.listen);
    if (!listen) return std::unexpected(listen.error());
    bind = *listen;
  }
  return config_.identity.is_set() ? open_with_identity(bind) : open_with_secret(bind);
}

Result<void> PoolState::open_with_secret(Address bind) {
  Result<crypto::SharedSecret> secret = crypto::SharedSecret::from_text(config_.secret);
  if (!secret) return std::unexpected(secret.error());
  const engine::EngineConfig engine{.secret = *secret, .name = config_.name, .accepts = !config_.listen.empty()};
  const bool shares_port = !config_.listen.empty() && crew_->size() > 1;
  for (std::size_t i = 0; i < crew_->size(); ++i) {
    if (Result<void> opened = open_post(i, bind, engine); !opened) return opened;
    // All workers of a listening pool share one port; a pool that only calls has one port for each.
    if (shares_port) bind = posts_.front()->local();
  }
  if (!shares_port) return {};
  // Of sockets that share a port, the kernel picks the receiver by the sender's address: a reply could reach a worker
  // that did not make the call. Calls therefore leave from ports of their own.
  first_caller_ = posts_.size();
  bind.port = 0;
  engine::EngineConfig caller = engine;
  caller.accepts = false;
  for (std::size_t i = 0; i < crew_->size(); ++i) {
    if (Result<void> opened = open_post(i, bind, caller); !opened) return opened;
  }
  return {};
}

// The address to listen at is for handshakes; they tell peers where each worker receives.
Result<void> PoolState::open_with_identity(Address bind) {
  Result<std::unique_ptr<handshake::IdentitySource>> identity =
      handshake::IdentitySource::open(config_.identity, handshake::wall_clock_seconds());
  if (!identity) return std::unexpected(identity.error());
  auto buffers = std::make_unique<link::ReceiveBufferPool>(
      link::ReceiveBufferPool::Options{.max_buffers = 2 * link::kReceiveBuffers});
  Result<std::unique_ptr<link::Link>> link = link::open_udp(
      {.bind = bind, .kind = wants_portable_link(config_) ? link::Kind::portable : link::Kind::automatic}, *buffers);
  if (!link) return std::unexpected(link.error());
  const bool accepts = !config_.listen.empty();
  auto worker = crew_->handshake_worker();
  if (!worker) return std::unexpected(worker.error());
  handshaker_ = std::make_shared<pool::Handshaker>(pool::Handshaker::Options{.identity = std::move(*identity),
                                                                             .buffers = std::move(buffers),
                                                                             .link = std::move(*link),
                                                                             .worker = *worker,
                                                                             .has_own_thread = crew_->has_threads(),
                                                                             .subscriber = config_.subscriber,
                                                                             .accepts = accepts,
                                                                             .limits = config_.limits,
                                                                             .timeouts = config_.timeouts,
                                                                             .seed = random_word()});
  engine::EngineConfig engine{.credentials = handshaker_.get(),
                              .signer = handshaker_->signer(),
                              .incarnation = handshaker_->incarnation(),
                              .name = handshaker_->name().substr(0, engine::kMaxNameBytes),
                              .accepts = accepts};
  handshake::Offer self{.mtu = static_cast<std::uint32_t>(config_.datagram_bytes)};
  bind.port = 0;
  for (std::size_t i = 0; i < crew_->size(); ++i) {
    if (config_.data_port != 0) bind.port = static_cast<std::uint16_t>(config_.data_port + i);
    if (Result<void> opened = open_post(i, bind, engine); !opened) return opened;
    self.workers.push_back({.worker = static_cast<std::uint16_t>(i), .port = posts_.back()->local().port});
  }
  if (Result<void> opened = handshaker_->open(self); !opened) return opened;
  if (handshaker_->join(worker::read_clock() + kOwnerPatience)) return {};
  return std::unexpected(Error(
      Code::timeout, crew_->has_threads() ? "the handshake thread of these workers is busy: does a function given "
                                            "to Identity::authorise() block?"
                                          : kOwnerDoesNotPoll));
}

Result<void> PoolState::open_post(std::size_t index, const Address& bind, engine::EngineConfig engine) {
  auto buffers = std::make_unique<link::ReceiveBufferPool>(
      link::ReceiveBufferPool::Options{.max_buffers = config_.limits.receive_buffers});
  Result<std::unique_ptr<link::Link>> opened =
      link::open_udp({.bind = bind,
                      .kind = wants_portable_link(config_) ? link::Kind::portable : link::Kind::automatic,
                      .receive_buffer_bytes = config_.socket_buffer_bytes,
                      .send_buffer_bytes = config_.socket_buffer_bytes,
                      .force_buffers = true,
                      .reuse_port = engine.accepts && engine.credentials == nullptr && crew_->size() > 1},
                     *buffers);
  if (!opened) return std::unexpected(opened.error());
  const link::LinkReport report = (*opened)->report();
  engine.worker = static_cast<std::uint16_t>(index);
  engine.port = (*opened)->local().port;
  engine.openssl_aead = config_.openssl_aead;
  engine.datagram_bytes = config_.datagram_bytes;
  engine.receive_buffer_bytes = report.receive_buffer_bytes;
  engine.payloads_are_short = [buffers = buffers_] { return buffers->used_bytes() > buffers->bound_bytes() / 2; };
  if (index < config_.places.size()) engine.numa_node = worker::node_of(config_.places[index]);
  engine.limits = config_.limits;
  engine.timeouts = config_.timeouts;
  auto& post = *posts_.emplace_back(std::make_shared<pool::Post>(pool::Post::Options{.engine = engine,
                                                                                     .payloads = buffers_,
                                                                                     .arrivals = arrivals_,
                                                                                     .worker = crew_->worker(index),
                                                                                     .buffers = std::move(buffers),
                                                                                     .link = std::move(*opened),
                                                                                     .subscriber = config_.subscriber,
                                                                                     .executor = executor_.get(),
                                                                                     .handshaker = handshaker_,
                                                                                     .seed = random_word()}));
  report_clamped_buffers(post, report);
  if (post.join(worker::read_clock() + kOwnerPatience)) return {};
  return std::unexpected(Error(Code::timeout, kOwnerDoesNotPoll));
}

void PoolState::report_clamped_buffers(pool::Post& post, const link::LinkReport& report) {
  if (!report.receive_buffer_clamped && !report.send_buffer_clamped) return;
  const std::string sentence = "the kernel gave a receive buffer of " + std::to_string(report.receive_buffer_bytes) +
                               " and a send buffer of " + std::to_string(report.send_buffer_bytes) +
                               " bytes instead of " + std::to_string(report.receive_buffer_asked_bytes) +
                               ": raise net.core.rmem_max and net.core.wmem_max";
  post.engine().events().set_now(worker::read_clock());
  post.engine().events().emit(event::Degraded{{}, "socket buffers", sentence});
}

std::shared_ptr<PeerState> PoolState::peer(std::string_view address, const PeerOptions& options) {
  std::string_view key = address;
  std::string with_name;
  if (!options.name.empty()) key = with_name.append(address).append(" ").append(options.name);
  std::lock_guard lock(peers_mutex_);
  if (const auto found = peers_.find(key); found != peers_.end()) return found->second;
  auto made = make_peer(address, options);
  if (!made->failure) peers_.emplace(std::string(key), made);
  return made;
}

std::shared_ptr<PeerState> PoolState::make_peer(std::string_view address, const PeerOptions& options) {
  auto peer = std::make_shared<PeerState>();
  peer->text = address;
  peer->name = options.name;
  peer->default_deadline = config_.timeouts.default_deadline;
  if (peers_.size() >= std::size_t{config_.limits.peers} * crew_->size()) {
    peer->failure = Error(Code::overloaded, "there are as many peers as Limits::peers allows");
    return peer;
  }
  Result<Address> parsed = Address::parse(address);
  if (!parsed) {
    peer->failure = parsed.error();
    return peer;
  }
  const Address& local = posts_.front()->local();
  if (parsed->port == 0 || Address{parsed->ip} == Address::v4(0, 0) || Address{parsed->ip} == Address{}) {
    peer->failure =
        Error(Code::invalid_argument, "cannot call " + std::string(address) +
                                          ": it names no host or no port; 0.0.0.0 and port 0 are for listening");
    return peer;
  }
  if (parsed->is_v4() != local.is_v4()) {
    peer->failure = Error(
        Code::invalid_argument,
        "cannot call " + std::string(address) + " from a socket of the other family; give the pool " +
            (local.is_v4() ? "an IPv6 address to listen on, such as \"[::]:0\"" : "an IPv4 address to listen on"));
    return peer;
  }
  peer->address = *parsed;
  peer->gate = posts_[first_caller_ + router_.worker_of(*parsed)]->gate();
  peer->shown = peer->gate->keep_name(address);
  return peer;
}

Result<void> PoolState::serve(Method method, const pool::MethodEntry& entry) {
  std::lock_guard lock(serve_mutex_);
  Result<void> served;
  for (std::size_t i = 0; i < crew_->size(); ++i) {
    pool::Post& post = *posts_[i];
    if (post.gate()->is_closed()) return std::unexpected(Error(Code::closed, "the pool is closed"));
    const auto serve_here = [&] {
      served = post.gate()->is_closed() ? std::unexpected(Error(Code::closed, "the pool is closed"))
                                        : post.serve(method, entry);
    };
    const bool has_run = crew_->worker(i)->run_on_loop(serve_here, worker::read_clock() + kOwnerPatience);
    if (!has_run) {
      return std::unexpected(crew_->has_threads() ? Error(Code::closed, "the pool is closed")
                                                  : Error(Code::timeout, kOwnerDoesNotPoll));
    }
    // All posts serve the same methods, so what the first refuses none has.
    if (!served) return served;
  }
  return served;
}

bool poll_crew(worker::Crew& crew, std::chrono::nanoseconds at_most) {
  if (crew.has_threads()) return drive_this_thread(at_most);
  worker::Worker& loop = *crew.worker(0);
  if (!loop.is_mine()) [[unlikely]] {
    const Instant until = worker::read_clock() + at_most;
    // While somebody who waits has borrowed the loop, it turns; this thread sees to its own.
    while (loop.try_claim() == worker::Worker::Claim::lent) {
      const Duration time_left = until - worker::read_clock();
      if (drive_this_thread(std::clamp<Duration>(time_left, Duration::zero(), kLoanCheck))) return true;
      if (time_left <= Duration::zero()) return false;
    }
    // If this thread ends, its lane sees to it that the loop is nobody's again.
    if (loop.is_mine()) pool::Lane::mine().adopt(crew.worker(0));
  }
  return at_most == std::chrono::nanoseconds::zero() ? loop.poll() : loop.poll_for(at_most);
}

bool drive_this_thread(std::chrono::nanoseconds at_most) {
  WEIR_CHECK(worker::thread_context.loops_entered == 0,
             "poll() was called inside a handler or continuation: await the call or use then() there");
  pool::Lane& lane = pool::Lane::mine();
  bool was_driven = lane.drive();
  if (was_driven || at_most == std::chrono::nanoseconds::zero()) return was_driven;
  lane.wait_until([&] { return was_driven || (was_driven = lane.drive()); }, at_most);
  return was_driven;
}

Allocation PoolState::allocate(std::size_t bytes, const AllocateOptions& options) {
  AllocateOptions placed = options;
  if (const auto worker = static_cast<std::size_t>(options.worker);
      options.worker >= 0 && options.numa_node < 0 && worker < config_.places.size()) {
    placed.numa_node = worker::node_of(config_.places[worker]);
  }
  return pool::allocate(buffers_, crew_->has_threads() ? nullptr : crew_->worker(0), bytes, placed);
}

std::shared_ptr<worker::Worker> PoolState::loop() const { return crew_->has_threads() ? nullptr : crew_->worker(0); }

Result<void> PoolState::place(std::string_view name, Placement placement) {
  std::lock_guard lock(place_mutex_);
  if (!serves_bulk_) {
    const std::uint64_t largest = std::min<std::uint64_t>(pool::kPartBytes, config_.limits.message_bytes);
    Result<void> served = pool::serve_bulk(
        {.placements = placements_,
         .buffers = buffers_,
         .loop = loop(),
         .largest_put_bytes = largest,
         .largest_get_bytes = executor_ ? largest : std::min<std::uint64_t>(largest, buffer::kRecordBytes)},
        [this](Method method, const pool::MethodEntry& entry) { return serve(method, entry); });
    if (!served) return served;
    serves_bulk_ = true;
  }
  return placements_->add(name, std::move(placement));
}

Result<void> PoolState::unplace(std::string_view name) { return placements_->remove(name); }

bool PoolState::poll() { return poll_crew(*crew_, std::chrono::nanoseconds::zero()); }
bool PoolState::poll_for(std::chrono::nanoseconds at_most) { return poll_crew(*crew_, at_most); }

void PoolState::run_until_done(TaskBase& task) {
  WEIR_CHECK(worker::thread_context.loops_entered == 0,
             "run() was called inside a handler or continuation on the thread that turns the loop: await the task or "
             "spawn() it");
  pool::Lane& lane = pool::Lane::mine();
  if (!crew_->has_threads()) lane.borrow(crew_->worker(0));
  {
    const pool::Lane::Batch batch(lane);
    task.start();
  }
  lane.wait_until([&] { return task.done(); });
}

bool PoolState::wait_until_quiet(Instant until) {
  const auto time_left = [until] {
    return until.is_never() ? Duration::max() : std::max(Duration::zero(), until - worker::read_clock());
  };
  bool was_quiet = false;
  const auto is_quiet = [&] {
    was_quiet = true;
    for (auto& post : posts_) was_quiet = was_quiet && post->is_quiet(time_left());
    return was_quiet;
  };
  for (;;) {
    if (!crew_->has_threads() && pool::Lane::mine().borrow(crew_->worker(0))) {
      pool::Lane::mine().wait_until(is_quiet, time_left());
    } else if (!is_quiet()) {
      std::this_thread::sleep_for(std::min<Duration>(kQuietCheck, time_left()));
    }
    if (was_quiet) return true;
    if (worker::read_clock() >= until) return false;
  }
}

Result<void> PoolState::close(std::chrono::nanoseconds deadline) {
  // Acquire: the last handle of a closed pool may go anywhere, and finds everything stopped.
  if (has_closed_.load(std::memory_order_acquire)) return {};
  WEIR_CHECK(worker::thread_context.loops_entered == 0, kClosedInside);
  WEIR_CHECK(executor_ == nullptr || !executor_->is_mine(), kClosedInside);
  std::lock_guard lock(close_mutex_);
  if (std::exchange(is_closed_, true)) return {};
  for (auto& post : posts_) post->gate()->is_draining.store(true, std::memory_order_relaxed);
  if (pool::Lane* lane = pool::Lane::mine_if_any()) lane->publish();
  const Instant until = worker::read_clock() + deadline;
  const bool was_quiet = wait_until_quiet(until);
  buffers_->close();
  bool have_left = true;
  for (auto& post : posts_) have_left &= post->leave(std::max(until, worker::read_clock() + kGoodbye));
  bool have_handshakes_ended = !handshaker_ || handshaker_->leave(std::max(until, worker::read_clock() + kGoodbye));
  if (executor_) executor_->stop();
  placements_->clear();
  if (owns_crew_) have_handshakes_ended &= crew_->stop(std::max(until, worker::read_clock() + kGoodbye));
  has_closed_.store(true, std::memory_order_release);
  if (!have_left) {
    return std::unexpected(Error(
        Code::timeout, std::string(kOwnerDoesNotPoll) + ": the pool ends when it does, or when that thread ends"));
  }
  if (!have_handshakes_ended) {
    return std::unexpected(Error(Code::timeout,
                                 "the function given to Identity::authorise() was still running at the deadline: the "
                                 "handshake thread ends when it returns; what it uses must live until then"));
  }
  if (was_quiet) return {};
  return std::unexpected(Error(Code::timeout, "calls or handlers were still running at the deadline and were cut off"));
}

std::string PoolState::listen_address() const {
  if (config_.listen.empty() || posts_.empty()) return {};
  return (handshaker_ ? handshaker_->local() : posts_.front()->local()).to_string();
}

std::vector<Counters> PoolState::counters() {
  std::vector<Counters> all;
  for (std::size_t i = 0; i < crew_->size(); ++i) {
    all.push_back(posts_[i]->counters());
    if (first_caller_ != 0) all.back() += posts_[first_caller_ + i]->counters();
  }
  return all;
}

}  // namespace weir::detail
