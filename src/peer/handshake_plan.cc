#include "peer/handshake_plan.h"

#include <algorithm>

#include "base/check.h"

namespace weir::peer {

HandshakePlan::HandshakePlan(const Options& options) : options_(options), random_(options.host_random) {
  WEIR_CHECK(options.max_running > 0 && options.max_queued > 0, "room for one handshake at least");
  WEIR_CHECK(options.max_addresses >= options.max_running + options.max_queued,
             "every handshake that runs or is queued needs an address");
  WEIR_CHECK(options.first_backoff > Duration::zero() && options.longest_backoff >= options.first_backoff,
             "a backoff that grows");
  WEIR_CHECK(options.period >= kShortestPeriod, "a period of at least kShortestPeriod");
}

HandshakePlan::Entry* HandshakePlan::find(const Address& address) {
  const auto at = entries_.find(address);
  return at == entries_.end() ? nullptr : &at->second;
}

HandshakePlan::Entry* HandshakePlan::use(const Address& address, Instant now) {
  Entry* entry = find(address);
  if (entry == nullptr) {
    if (entries_.size() >= options_.max_addresses && !make_room()) return nullptr;
    entry = &entries_[address];
    entry->recency = recency_.insert(recency_.end(), address);
  } else {
    recency_.splice(recency_.end(), recency_, entry->recency);
  }
  entry->touched = now;
  return entry;
}

// Gives up the longest unused one that is neither running nor queued. Those are fewer than all, by the options.
bool HandshakePlan::make_room() {
  for (const Address& address : recency_) {
    const auto at = entries_.find(address);
    if (at->second.state != State::idle || at->second.wanted) continue;  // somebody waits for the latter
    drop(at);
    return true;
  }
  return false;
}

void HandshakePlan::drop(Entries::iterator at) {
  if (!at->second.deadline.is_never()) deadlines_.erase({at->second.deadline, at->first});
  recency_.erase(at->second.recency);
  entries_.erase(at);
  ++stats_.forgotten;
}

bool HandshakePlan::enqueue(const Address& address, Entry& entry, Instant now) {
  if (queue_.size() >= options_.max_queued) {
    ++stats_.overloaded;
    return false;
  }
  queue_.push_back(address);
  entry.state = State::queued;
  entry.wanted = false;
  entry.queued_at = now;
  return true;
}

void HandshakePlan::leave_queue(const Address& address, Entry& entry) {
  std::erase(queue_, address);
  entry.state = State::idle;
}

HandshakePlan::Answer HandshakePlan::want(const Address& address, Instant now) {
  Entry* entry = use(address, now);
  if (entry == nullptr) {
    ++stats_.overloaded;
    return Answer::overloaded;
  }
  Answer answer = Answer::running;
  if (entry->state == State::idle && entry->again_at > now) {
    entry->wanted = true;
    answer = Answer::backing_off;
  } else if (entry->state == State::idle) {
    answer = enqueue(address, *entry, now) ? Answer::queued : Answer::overloaded;
  }
  reschedule(address, *entry);
  return answer;
}

void HandshakePlan::touch(const Address& address, Instant now) {
  Entry* entry = find(address);
  if (entry == nullptr) return;
  use(address, now);
  // Where it only waits to be forgotten, that is put right when the time comes: touches are frequent.
}

bool HandshakePlan::suspect(const Address& address, Instant now) {
  Entry* entry = find(address);
  // The interval is for handshakes that succeed. After one that failed the backoff decides, and a suspicion meanwhile
  // makes the next one begin when that ends.
  const bool has_failed = entry != nullptr && entry->state == State::idle && entry->failures != 0;
  if (has_failed && entry->again_at > now) {
    entry->wanted = true;
    reschedule(address, *entry);
  }
  bool follows =
      entry == nullptr ||
      (entry->state == State::idle && entry->again_at <= now &&
       (has_failed || entry->suspicions_paid <= now + (options_.suspicion_burst - 1) * options_.suspicion_interval));
  if (follows) {
    entry = use(address, now);
    follows = entry != nullptr && enqueue(address, *entry, now);
    if (follows) entry->suspicions_paid = std::max(entry->suspicions_paid, now) + options_.suspicion_interval;
    if (entry != nullptr) reschedule(address, *entry);
  }
  ++(follows ? stats_.suspicions_followed : stats_.suspicions_dropped);
  return follows;
}

Duration HandshakePlan::suspicion_delay() {
  // jittered() takes up to half away.
  return options_.suspicion_interval / 2 + jittered(options_.suspicion_interval);
}

bool HandshakePlan::hurry(const Address& address, Instant now) {
  Entry* entry = find(address);
  if (entry == nullptr || entry->state != State::idle || entry->failures == 0) return false;
  entry->failures = 0;
  entry->again_at = kLongAgo;
  const bool follows = enqueue(address, *entry, now);
  reschedule(address, *entry);
  return follows;
}

std::optional<Address> HandshakePlan::next(Instant now) {
  // Ends: what is due gets a later deadline, or none.
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const Address address = deadlines_.begin()->second;
    on_deadline(address, now);
  }
  if (queue_.empty() || running_ >= options_.max_running) return std::nullopt;
  const Address address = queue_.front();
  queue_.pop_front();
  Entry& entry = *find(address);
  entry.state = State::running;
  ++running_;
  ++stats_.started;
  reschedule(address, entry);
  return address;
}

void HandshakePlan::on_deadline(const Address& address, Instant now) {
  const auto at = entries_.find(address);
  Entry& entry = at->second;
  const bool used = now - entry.touched < options_.idle;
  const bool renewal = entry.live && entry.renew_at <= now;
  if (!used && !entry.wanted) return drop(at);
  if (!entry.wanted && !renewal) return reschedule(address, entry);  // it was used since the deadline was set
  if (!enqueue(address, entry, now)) {
    entry.again_at = now + jittered(options_.first_backoff);
  } else if (renewal) {
    ++stats_.renewals;
  }
  reschedule(address, entry);
}

void HandshakePlan::on_success(const Address& address, Instant end, Instant now) {
  Entry* entry = find(address);
  if (entry == nullptr || entry->state != State::running) return;
  --running_;
  ++stats_.succeeded;
  entry->state = State::idle;
  renew(address, *entry, end, now);
}

void HandshakePlan::on_renewed(const Address& address, Instant end, Instant now) {
  Entry* entry = use(address, now);
  if (entry == nullptr) return;  // no room: it will be asked for when it is needed
  if (entry->state == State::queued) leave_queue(address, *entry);
  renew(address, *entry, end, now);
}

void HandshakePlan::renew(const Address& address, Entry& entry, Instant end, Instant now) {
  entry.failures = 0;
  entry.wanted = false;
  entry.again_at = kLongAgo;
  entry.live = true;
  entry.renew_at = now + renewal_delay(address, end.is_never() ? options_.period * 2 : end - now);
  reschedule(address, entry);
}

void HandshakePlan::on_failure(const Address& address, Instant now) {
  Entry* entry = find(address);
  if (entry == nullptr || entry->state != State::running) return;
  --running_;
  ++stats_.failed;
  entry->state = State::idle;
  Duration backoff = options_.first_backoff;
  for (std::uint32_t i = 0; i < entry->failures && backoff < options_.longest_backoff; ++i) backoff *= 2;
  if (backoff < options_.longest_backoff) ++entry->failures;
  entry->again_at = now + jittered(std::min(backoff, options_.longest_backoff));
  reschedule(address, *entry);
}

// The one deadline of an entry: when it may start what it waits for, or else when it might be forgotten.
void HandshakePlan::reschedule(const Address& address, Entry& entry) {
  Instant deadline = Instant::never();
  if (entry.state == State::idle) {
    const Instant unused = std::max(entry.touched + options_.idle, entry.again_at);
    deadline = unused;
    if (entry.live) deadline = std::max(entry.renew_at, entry.again_at);
    if (entry.wanted) deadline = entry.again_at;
  }
  if (deadline == entry.deadline) return;
  if (!entry.deadline.is_never()) deadlines_.erase({entry.deadline, address});
  if (!deadline.is_never()) deadlines_.insert({deadline, address});
  entry.deadline = deadline;
}

Instant HandshakePlan::next_deadline() const {
  Instant next = deadlines_.empty() ? Instant::never() : deadlines_.begin()->first;
  if (!queue_.empty() && running_ < options_.max_running) {
    next = earliest(next, entries_.find(queue_.front())->second.queued_at);
  }
  return next;
}

// Half of it for certain, the rest by chance: hosts that failed together come back apart.
Duration HandshakePlan::jittered(Duration backoff) {
  return Duration{backoff.count() -
                  static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(backoff.count()) / 2))};
}

Duration HandshakePlan::renewal_delay(const Address& address, Duration life) const {
  Random point{options_.host_random ^ AddressHash{}(address)};
  const Duration period = std::min(options_.period, std::max(life / 2, options_.shortest_renewal));
  const auto quarter = static_cast<std::uint64_t>(std::max(period, kShortestPeriod).count()) / 4;
  return Duration{static_cast<std::int64_t>(3 * quarter + point.below(quarter))};
}

}  // namespace weir::peer
