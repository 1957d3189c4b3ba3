#include "sim/host.h"

#include <algorithm>
#include <utility>

#include "sim/random_stream.h"

namespace weir::sim {

Host::Process::Process(Host& host, std::uint32_t life)
    : entropy(stream_seed(host.world_.seed, "entropy", std::uint64_t{host.id_} << 32 | life)),
      watch(host.world_, host.id_),
      link(host.world_.network, host.world_.queue, host.id_, host.link_options_, [&host] { host.wake(); }),
      engine(host.config_, entropy, &watch,
             stream_seed(host.world_.seed, "engine", std::uint64_t{host.id_} << 32 | life), host.world_.now()),
      seat(engine, link, burst) {}

Host::Host(World& world, HostId id, engine::EngineConfig config, const SimLink::Options& link_options,
           Application& application)
    : world_(world), id_(id), config_(std::move(config)), link_options_(link_options), application_(application) {}

Host::~Host() {
  if (is_up()) crash();
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
  next_poll_ = Instant::never();
  ++poll_ticket_;
  application_.on_stop(id_);
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
  when = std::max(when, stalled_until_);
  if (when >= next_poll_) return;
  next_poll_ = when;
  world_.queue.at(when, [this, ticket = ++poll_ticket_] {
    if (ticket == poll_ticket_ && is_up()) poll();
  });
}

void Host::poll() {
  ++polls_;
  next_poll_ = Instant::never();
  Process& process = *process_;
  const Instant soon = world_.now() + kPollDelay;
  process.seat.poll_once(world_.now());
  if (process.seat.is_blocked()) poll_at(std::max(process.link.writable_at(), soon));
  if (process.link.has_arrivals()) poll_at(soon);
  poll_at(std::max(process.seat.next_deadline(), soon));
}

}  // namespace weir::sim
