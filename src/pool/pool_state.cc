#include "pool/pool_state.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "pool/allocation.h"
#include "pool/bulk_client.h"
#include "pool/bulk_server.h"
#include "pool/lasting_memory.h"
#include "worker/clock.h"
#include "worker/place.h"
#include "worker/thread_context.h"

namespace weir::detail {
namespace {

constexpr std::chrono::milliseconds kLastHandleDeadline{200};
constexpr std::chrono::seconds kLastHandlers{5};  // may still run when the last handle goes
constexpr std::chrono::microseconds kQuietCheck{500};
constexpr std::chrono::milliseconds kLoanCheck{1};  // whether a loop that somebody borrowed is back
constexpr std::chrono::milliseconds kGoodbye{200};  // for what ends at the end of close(), after its deadline
constexpr std::chrono::milliseconds kMoment{150};

constexpr const char* kClosedInside =
    "a pool was closed, or its last handle dropped, inside a handler or continuation on the thread that turns a loop: "
    "keep a handle outside and close the pool from there";

// `names`: of the methods, one for each handler; empty if it is none.
Error left_behind(std::vector<std::string> names) {
  std::ranges::sort(names);
  std::string list;
  for (std::size_t i = 0, count = 0; i < names.size(); i += count) {
    count = static_cast<std::size_t>(std::ranges::count(names, names[i]));
    list += list.empty() ? "" : ", ";
    list += names[i].empty() ? "a continuation, resumed coroutine, rule, subscriber or another pool's handler"
                             : "\"" + names[i] + "\"";
    list += " (" + std::to_string(count) + ")";
  }
  return {Code::timeout, "handlers were still running at the deadline and go on by themselves: " + list +
                             ". Their threads, and calls that wait for these, end when they return; what they use must "
                             "live until then"};
}

}  // namespace

PoolState::PoolState(Config config, std::shared_ptr<worker::Crew> crew, bool owns_crew,
                     std::shared_ptr<buffer::Memory> memory)
    : config_(std::move(config)), crew_(std::move(crew)), owns_crew_(owns_crew), router_(crew_->size()) {
  buffers_ = buffer::BufferPool::create(memory, {.bytes = config_.limits.buffer_bytes});
  arrivals_ = pool::LastingMemory::create(std::move(memory));
  if (crew_->has_threads() && config_.executor_threads > 0) {
    executor_ = pool::Executor::start(config_.executor_threads, config_.limits.executor_queue);
  }
}

PoolState::~PoolState() { static_cast<void>(finish(kLastHandleDeadline, kLastHandlers)); }

void PoolState::close_in_child() {
  for (auto& post : posts_) post->close_in_child();
  if (handshaker_) handshaker_->close_in_child();
  if (owns_crew_) crew_->close_in_child();
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
  // Acquire: as in finish(). A worker that a handler blocks would not answer, and its gate is still open.
  if (has_closed_.load(std::memory_order_acquire)) return std::unexpected(Error(Code::closed, "the pool is closed"));
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
  const auto worker = static_cast<std::size_t>(options.worker);
  if (options.worker < -1 || (options.worker >= 0 && worker >= crew_->size())) {
    return Allocation(std::unexpected(Error(
        Code::invalid_argument, "AllocateOptions::worker is " + std::to_string(options.worker) + ", and there are " +
                                    std::to_string(crew_->size()) + " workers, the first of which is 0")));
  }
  AllocateOptions placed = options;
  if (options.worker >= 0 && options.numa_node < 0 && worker < config_.places.size()) {
    placed.numa_node = worker::node_of(config_.places[worker]);
  }
  return pool::allocate(buffers_, crew_->has_threads() ? nullptr : crew_->worker(0), bytes, placed);
}

std::shared_ptr<worker::Worker> PoolState::loop() const {
  return crew_->has_threads() || is_in_child() ? nullptr : crew_->worker(0);
}

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

Result<void> PoolState::close(std::chrono::nanoseconds deadline) { return finish(deadline, kGoodbye); }

// Records on their way to a post name their peers.
std::shared_ptr<const void> PoolState::all_peers() {
  auto all = std::make_shared<std::vector<std::shared_ptr<PeerState>>>();
  std::lock_guard lock(peers_mutex_);
  for (const auto& [name, peer] : peers_) all->push_back(peer);
  return all;
}

bool PoolState::leave(Instant until, Instant handlers_until) {
  bool have_left = true;
  if (!crew_->has_threads()) {
    for (auto& post : posts_) have_left &= post->leave(until);
    return have_left;
  }
  const std::shared_ptr<const void> peers = all_peers();
  for (auto& post : posts_) post->begin_to_leave(peers);
  for (auto& post : posts_) have_left &= post->has_left_by(handlers_until);
  return have_left;
}

// One name for each worker whose posts have not left: the method that keeps it, empty where it is no handler of this
// pool. A pool that could not be opened has fewer posts than workers.
std::vector<std::string> PoolState::handlers_on_workers() const {
  std::vector<std::string> names;
  for (std::size_t i = 0; crew_->has_threads() && i < std::min(crew_->size(), posts_.size()); ++i) {
    const std::size_t caller = first_caller_ + i;
    const bool has_caller = first_caller_ != 0 && caller < posts_.size();
    if (posts_[i]->has_left_by({}) && (!has_caller || posts_[caller]->has_left_by({}))) continue;
    const pool::MethodEntry* running = posts_[i]->running();
    if (running == nullptr && has_caller) running = posts_[caller]->running();
    names.push_back(running == nullptr ? std::string() : running->name);
  }
  return names;
}

// Threads that nothing blocks still need time to notice that they are to end, also when others used all of it up.
static Instant at_least_a_moment(Instant until) { return std::max(until, worker::read_clock() + kMoment); }

Result<void> PoolState::finish(std::chrono::nanoseconds deadline, std::chrono::nanoseconds handlers) {
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
  // One instant for all that follows: threads that do not answer are not waited for one after the other.
  const Instant end = std::max(until, worker::read_clock() + kGoodbye);
  const Instant handlers_end = std::max(until, worker::read_clock() + handlers);
  const bool have_left = leave(end, handlers_end);
  std::vector<std::string> running = handlers_on_workers();
  bool have_handshakes_ended = !handshaker_ || handshaker_->leave(std::max(end, worker::read_clock()));
  if (executor_) {
    for (std::string& name : executor_->stop(at_least_a_moment(handlers_end))) running.push_back(std::move(name));
  }
  placements_->clear(have_left && running.empty() ? pool::Placements::Visitors::are_waited_for
                                                  : pool::Placements::Visitors::may_stay);
  if (owns_crew_) {
    const worker::Crew::Left left = crew_->stop(at_least_a_moment(handlers_end), at_least_a_moment(end));
    have_handshakes_ended &= !left.handshakes;
    if (left.watchdog) running.emplace_back();  // it is inside of the subscriber
  }
  has_closed_.store(true, std::memory_order_release);
  if (!running.empty()) return std::unexpected(left_behind(std::move(running)));
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
