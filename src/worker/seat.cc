#include "worker/seat.h"

#include <span>

namespace weir::worker {
namespace {

constexpr std::size_t kUsualTrains = 64;

engine::TrainFate fate_of(link::SendStatus status) {
  switch (status) {
    case link::SendStatus::sent:
      return engine::TrainFate::sent;
    case link::SendStatus::too_big:
      return engine::TrainFate::too_big;
    case link::SendStatus::unreachable:
      return engine::TrainFate::unreachable;
    case link::SendStatus::would_block:
    case link::SendStatus::failed:
      break;
  }
  return engine::TrainFate::failed;
}

}  // namespace

link::Train train_for_link(const engine::Train& train) {
  return {.to = train.to,
          .ecn = static_cast<link::Ecn>(train.ecn),
          .bytes = train.bytes,
          .segment_size = train.segment_size,
          .segments = train.segments};
}

Seat::Seat(engine::Engine& engine, link::Link& link, Burst& burst, SeatHost* host)
    : engine_(engine), link_(link), burst_(burst), host_(host) {
  trains_.reserve(kUsualTrains);
  link_trains_.reserve(kUsualTrains);
  statuses_.reserve(kUsualTrains);
}

bool Seat::poll_once(Instant now) {
  if (fork_guard_.is_in_child()) [[unlikely]]
    return false;
  Counters& counters = engine_.events().counters;
  ++counters.polls;
  bool busy = false;
  const Instant due = engine_.next_deadline();
  if (due <= now && now - due >= kAbsence) [[unlikely]] {
    catch_up(now);
    if (fork_guard_.is_in_child()) return false;  // a handler forked, and returned in the child
  }
  if (host_ != nullptr && host_->drain(now)) busy = true;
  if (receive(now)) busy = true;
  // What has come is read before any timer says that it did not come.
  if (due <= now) {
    if (fork_guard_.is_in_child()) [[unlikely]]
      return false;  // a handler forked, and returned in the child
    engine_.on_timeout(now);
    busy = true;
  }
  if (deliver_and_transmit(now)) busy = true;
  // Only now: requests and replies were read from the receive buffers while they were delivered.
  link_.recycle();
  return busy;
}

// This thread was away for long. All that has come meanwhile is read before any timer says that it did not come.
void Seat::catch_up(Instant now) {
  engine_.set_catching_up(true);
  for (int burst = 0; burst < kMaxBursts && receive(now); ++burst) {
    deliver_and_transmit(now);
    if (fork_guard_.is_in_child()) return;
    link_.recycle();
  }
  engine_.set_catching_up(false);
}

bool Seat::deliver_and_transmit(Instant now) {
  bool busy = engine_.deliver(now) != 0;
  if (fork_guard_.is_in_child()) [[unlikely]]
    return false;  // a handler forked, and returned in the child
  if (host_ != nullptr) host_->flush(now);
  for (int round = 0; round < kMaxRounds && transmit(now); ++round) {
    busy = true;
    // The rest of a train that was cut short waits a turn: what has come meanwhile may be more urgent.
    if (engine_.has_cut_short()) break;
  }
  return busy;
}

bool Seat::receive(Instant now) {
  burst_.datagrams.clear();
  ++engine_.events().counters.receive_calls;
  link_.receive(burst_.datagrams);
  std::size_t taken = 0;
  for (const link::Datagram& datagram : burst_.datagrams) {
    // What the first part of a burst asked for is answered before the rest is looked at: the peer works on the answers
    // while we work on the rest. Two peers that hand each other everything at once would take turns instead.
    // Few large messages are taken together, though: an answer of its own to each would cost more than the wait.
    if ((taken + datagram.bytes.size() > kChunkBytes && engine_.undelivered() >= kChunkMessages) ||
        taken > kLargestChunkBytes) {
      deliver_and_transmit(now);
      if (fork_guard_.is_in_child()) [[unlikely]]
        return false;
      taken = 0;
    }
    taken += datagram.bytes.size();
    engine_.on_datagram(datagram.bytes, datagram.from, static_cast<std::uint8_t>(datagram.ecn), datagram.buffer, now);
  }
  link::Unreachable report;
  for (int i = 0; i < kMaxUnreachables && link_.take_unreachable(report); ++i) {
    engine_.on_unreachable(report.who, report.quoted_bytes(), now);
  }
  is_starved_ = burst_.datagrams.empty() && host_ != nullptr && host_->is_starved();
  if (is_starved_) [[unlikely]]
    fed_at_ = now + kStarvedWait;
  return !burst_.datagrams.empty();
}

bool Seat::transmit(Instant now) {
  if (is_blocked()) return send_pending(now);
  if (!engine_.has_work()) return false;
  trains_.clear();
  link_trains_.clear();
  first_unsent_ = 0;
  engine_.collect(trains_, now);
  if (trains_.empty()) return false;
  for (const engine::Train& train : trains_) link_trains_.push_back(train_for_link(train));
  statuses_.resize(trains_.size());
  return send_pending(now);
}

bool Seat::send_pending(Instant now) {
  ++engine_.events().counters.send_calls;
  const std::span<link::Train> pending = std::span{link_trains_}.subspan(first_unsent_);
  const std::size_t consumed = link_.send(pending, statuses_);
  for (std::size_t i = 0; i < consumed; ++i) {
    engine_.on_train_fate(trains_[first_unsent_ + i], fate_of(statuses_[i]), now);
  }
  first_unsent_ += consumed;
  return consumed != 0;
}

Instant Seat::next_deadline() const {
  // While the link is full the engine is not asked for more, so its readiness does not count.
  if (!is_blocked() && engine_.has_work()) return Instant{};
  return is_starved_ ? earliest(fed_at_, engine_.next_deadline()) : engine_.next_deadline();
}

}  // namespace weir::worker
