// The receiver's memory for large messages: who is given some and when it is taken back (docs/protocol.md, rules G-*).
#include <algorithm>
#include <cstddef>
#include <utility>

#include "engine/core.h"

namespace weir::engine {

using transfer::Arrival;

namespace {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
Arrival& arrival_of(token::Ask& ask) {
  static_assert(offsetof(Arrival, ask) == 0);
  return *reinterpret_cast<Arrival*>(&ask);
}
#pragma GCC diagnostic pop

}  // namespace

// Finds out whose memory the large messages of a path take.
void Core::begin_receiving(Path& path, Instant now) {
  LargePath& large = large_of(path);
  if (std::exchange(large.receives, true)) return;
  ++large_receivers;
  // No queue that grants could fill lies between two ends of a loopback interface.
  large.is_remote = !links.of(path.link).is_local;
  if (large.is_remote && grant_pace.set_senders(++remote_receivers)) tell_shares();
  large.member = path.member();
  if (path.initiator) {
    const Credential* const credential = path.peer->credential.at(now);
    if (credential != nullptr && credential->member != 0) {
      large.member = &members.at(member_of_certificate(credential->member));
    }
  }
  if (large.member == nullptr) return grants.open(large.own);
  ++large.member->references;
  if (large.member->large != nullptr) return;
  large.member->large = std::make_unique<token::SenderAccount>();
  grants.open(*large.member->large);
}

buffer::Landing* Core::make_landing(Path& path, const Room& room) {
  const int node = room.numa_node == -1 ? config.numa_node : room.numa_node;
  buffer::Landing* const landing = buffer::make_landing(*config.memory, room.bytes, room.record_bytes, node);
  if (landing == nullptr) return nullptr;
  landing->returns = returned->join();
  landing->charged_bytes = buffer::landing_cost(room.bytes);
  landing->path = path.id;
  landing->path_serial = path.serial;
  landing->member = path.large->member != nullptr ? path.large->member->number : 0;
  landing->purse = room.purse;
  return landing;
}

token::Region* Core::grant_region(Path& path, const Room& room, Instant now) {
  buffer::Landing* const landing = make_landing(path, room);
  if (landing == nullptr) return nullptr;
  token::Region* const region = regions.grant(
      {.landing = landing, .path = path.id, .path_serial = path.serial, .regions = &path.large->regions}, now);
  if (region == nullptr) {
    forget_landing(landing);
    return nullptr;
  }
  events.emit(event::RegionGranted{{}, path.id, region->id, room.bytes});
  path.again.push({.slot = token::RegionId::unpack(region->id).slot,
                   .kind = static_cast<std::uint8_t>(SentKind::region_grant),
                   .generation = token::RegionId::unpack(region->id).generation});
  touch(path);
  arm_regions_timer();
  return region;
}

// All who send large messages to us together are promised a quarter of what our socket can hold, and no more than the
// NIC carries.
std::uint32_t Core::in_flight_promise(const Path& path) const {
  std::uint64_t share = ~std::uint32_t{0};
  if (config.receive_buffer_bytes != 0) {
    std::uint64_t senders = std::max<std::uint64_t>(large_receivers, 1);
    // The others have no region, and are given none before these end.
    if (grant_pace.paces()) senders = std::min<std::uint64_t>(senders, grant_pace.most_at_once() + spare_tokens);
    share = large_promise(config.receive_buffer_bytes) / senders;
  }
  if (grant_pace.paces()) share = std::min(share, grant_pace.share(path.large->grant_round_trip));
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(share, kSmallestInFlightBytes, ~std::uint32_t{0}));
}

// Whether one more message may be written. If not, others end, or are found to stand still.
bool Core::may_grant(Instant now) {
  if (grant_pace.may_begin()) return true;
  if (!pace_timer.armed()) wheel.arm(pace_timer, now + token::GrantPace::kStalled);
  return false;
}

void Core::begin_write(const Path& path, Arrival& arrival) {
  arrival.is_writing = true;
  if (grant_pace.on_begin(path.large->grant_round_trip)) tell_shares();
}

void Core::end_write(Arrival& arrival) {
  if (!std::exchange(arrival.is_writing, false)) return;
  if (grant_pace.on_end()) tell_shares();
  has_ended_write = grant_pace.paces();
}

// The rest is on its way: when the first bytes of the next message come it has left every queue.
void Core::end_write_soon(Path& path, const token::Region& region) {
  if (region.bytes - region.coverage.bytes() > grant_pace.tail(path.large->grant_round_trip)) return;
  Arrival* const arrival = find_arrival(path, region.side, wire::TransferId::unpack(region.transfer));
  if (arrival == nullptr || !arrival->is_writing) return;
  end_write(*arrival);
  touch(path);
}

// A grant that comes again changes nothing but what its sender may have in flight.
// A peer that takes nothing has one grant waiting for each region, however often the share changes.
void Core::tell_share(Path& path, std::uint64_t region) {
  token::Region* const found = regions.find(region);
  if (found == nullptr || std::exchange(found->tells_share, true)) return;
  const token::RegionId id = token::RegionId::unpack(region);
  path.again.push(
      {.slot = id.slot, .kind = static_cast<std::uint8_t>(SentKind::region_grant), .generation = id.generation});
  touch(path);
}

void Core::tell_shares() {
  arrivals.for_each([&](const Arrival& arrival) {
    if (arrival.region != wire::kNoRegion) tell_share(*find_path(arrival.path), arrival.region);
  });
}

// The first bytes that a grant has brought. (The round trip that acknowledgements show has their delay in it: who is
// written to sends little else that is acknowledged.)
void Core::on_first_bytes(Path& path, const token::Region& region, Instant now) {
  const Arrival* const arrival = find_arrival(path, region.side, wire::TransferId::unpack(region.transfer));
  if (arrival == nullptr || arrival->cargo.region != wire::kNoRegion) return;  // it came with a token, without a grant
  if (grant_pace.on_first_bytes()) tell_shares();
  LargePath& large = *path.large;
  const Duration since_grant = std::max(now - region.last_write, Duration{1});
  const Duration took = grant_pace.judge(since_grant);
  const bool was_known = large.grant_round_trip != Duration{};
  grant_pace.on_round_trip(since_grant, was_known ? std::min(large.grant_round_trip, took) : took);
  if (was_known && large.grant_round_trip <= took) return;
  large.grant_round_trip = took;
  if (!was_known && took > 2 * token::GrantPace::kUnknownRoundTrip) tell_share(path, region.id);
}

void Core::on_pace_timer(Instant now) {
  std::uint32_t stalled = 0;
  arrivals.for_each([&](const Arrival& arrival) {
    const token::Region* const region = arrival.is_writing ? regions.find(arrival.region) : nullptr;
    if (region != nullptr && now - region->last_write >= token::GrantPace::kStalled) ++stalled;
  });
  grant_pace.set_stalled(stalled);
  serve_asks(now);
}

// A landing that never was anybody's: what was reserved for it is still the caller's to give back.
void Core::forget_landing(buffer::Landing* landing) {
  landing->charged_bytes = 0;
  detail::unpin(landing);
}

// It has no use for memory any more, or had its own: another message of its sender may take its place.
void Core::leave_line(Path& path, token::Ask& ask) {
  if (ask.place != token::Ask::Place::held) grants.withdraw(ask);
  LargePath& large = *path.large;
  large.ahead.leave(ask);
  if (large.ahead.held() == 0 || large.serves_held) return;
  large.serves_held = true;
  held_asks.push_back(path.id);
  touch(path);
}

// Messages that waited for earlier ones of their sender. Not before the handlers of these have run: what they free is
// what is granted next, while a cache still has it.
void Core::serve_held_asks(Instant now) {
  for (std::size_t i = 0; i < held_asks.size(); ++i) {  // more may come
    Path* const path = find_path(held_asks[i]);
    if (path == nullptr || path->large == nullptr) continue;
    path->large->serves_held = false;
    while (token::Ask* const ask = path->large->ahead.next()) wait_for_memory(*path, arrival_of(*ask), now);
  }
  held_asks.clear();
}

// Whoever's turn it is, as far as there is memory.
void Core::serve_asks(Instant now) {
  has_ended_write = false;
  while (grants.is_ready() && may_grant(now)) {
    token::Ask* const ask = grants.next();
    if (ask == nullptr) return;
    Arrival& arrival = arrival_of(*ask);
    Path& path = *find_path(arrival.path);
    token::Region* const region = grant_region(path,
                                               {.bytes = arrival.cargo.body_bytes,
                                                .record_bytes = arrival.cargo.record_bytes,
                                                .purse = ask->purse,
                                                .numa_node = arrival.numa_node},
                                               now);
    if (region == nullptr) {
      // The system has less memory than we were told we may use.
      grants.release(*ask->account, ask->purse, ask->bytes);
      refuse_arrival(path, arrival.transfer, arrival.call, arrival.id, Code::overloaded, now);
      continue;
    }
    bind_region(path, arrival, *region, now);
    if (arrival.cargo.wants_token && ask->purse == 0) grant_token(path, arrival, now);
  }
}

bool Core::may_serve_awaited() const {
  return config.is_awaited != nullptr && grants.waiting(token::kReplyPurse) != 0 &&
         grants.used(token::kAwaitedPurse) == 0 && grants.waiting(token::kAwaitedPurse) == 0;
}

// A reply that waits for memory gets that for awaited replies, if the application waits for it (rule G-3). False: it
// still waits.
bool Core::serve_if_awaited(Path& path, Arrival& arrival, Instant now) {
  if (!may_serve_awaited() || !config.is_awaited(*arrival.call)) return false;
  leave_line(path, arrival.ask);
  arrival.ask.purse = token::kAwaitedPurse;
  grants.ask(arrival.ask);
  serve_asks(now);
  return true;
}

// The memory for awaited replies is free, or the application has begun to wait for a call. The most urgent reply is
// first, and of these the one that was opened first.
void Core::serve_awaited(Instant now) {
  while (may_serve_awaited()) {
    Arrival* first = nullptr;
    arrivals.for_each([&](Arrival& arrival) {
      if (!arrival.is_reply() || !arrival.ask.is_waiting() || !config.is_awaited(*arrival.call)) return;
      const auto rank = [](const Arrival& of) { return std::pair(of.ask.priority, of.number); };
      if (first == nullptr || rank(arrival) < rank(*first)) first = &arrival;
    });
    if (first == nullptr) return;
    serve_if_awaited(*find_path(first->path), *first, now);
  }
}

// Another region for this sender's next message, if memory is plentiful: it is expected to be like this one.
void Core::grant_token(Path& path, const Arrival& like, Instant now) {
  const std::uint64_t capacity = token::token_capacity(like.cargo.body_bytes);
  token::SenderAccount& account = path.large->account();
  const std::uint64_t cost = buffer::landing_cost(capacity);
  // A message that has a region ahead of need comes without being asked for: not where many come already.
  if (grant_pace.paces() && large_receivers > grant_pace.most_writes()) return;
  // Those that wait before the line come first.
  if (capacity == 0 || path.large->ahead.held() != 0 || !grants.may_speculate(account, 0, cost)) return;
  grants.speculate(account, 0, cost);
  if (grant_region(path, {.bytes = capacity, .numa_node = like.numa_node}, now) != nullptr) {
    ++spare_tokens;
    ++path.large->spare_tokens;
    return;
  }
  grants.end_speculation(account);
  grants.release(account, 0, cost);
}

// Somebody waits for memory: what was given ahead of need, to whomever, is taken back.
void Core::revoke_spare_tokens(Instant now) {
  paths.for_each([&](Path& path) {
    if (path.large == nullptr || path.large->spare_tokens == 0) return;
    regions.for_each_of_path(path.large->regions, [&](token::Region& region) {
      if (region.state == token::RegionState::granted && !region.is_bound()) revoke_region(path, region, now);
    });
  });
}

// A region that was granted ahead of need is used now, or is taken back.
void Core::end_speculation(Path& path) {
  grants.end_speculation(path.large->account());
  --path.large->spare_tokens;
  --spare_tokens;
}

// Takes a region back from its sender, who is told. Its message, if there is one, waits for the sender to ask again.
void Core::revoke_region(Path& path, token::Region& region, Instant now) {
  const wire::TransferId id = wire::TransferId::unpack(region.transfer);
  events.emit(event::RegionRevoked{{}, path.id, region.id, region.is_bound() ? region.transfer : 0});
  const token::RegionId name = token::RegionId::unpack(region.id);
  if (region.is_bound()) {
    path.again.push({.slot = id.slot,
                     .kind = static_cast<std::uint8_t>(SentKind::region_revoke),
                     .offset = static_cast<std::uint16_t>(region.side),
                     .generation = id.generation});
    if (Arrival* const arrival = find_arrival(path, region.side, id)) {
      end_write(*arrival);
      arrival->lost_region = region.id;
      arrival->region = wire::kNoRegion;
      leave_line(path, arrival->ask);
      arrival->timer.tag = static_cast<std::uint32_t>(TimerKind::arrival);
      wheel.arm(arrival->timer, now + std::max<Duration>(kLongestUnasked, 2 * config.timeouts.silence));
    }
  } else {
    end_speculation(path);
    path.again.push(
        {.slot = name.slot, .kind = static_cast<std::uint8_t>(SentKind::token_revoke), .generation = name.generation});
  }
  touch(path);
  regions.revoke(region, now);
}

// ---- deadlines and ends ----

void Core::arm_regions_timer() {
  regions_timer.tag = static_cast<std::uint32_t>(TimerKind::regions);
  const Instant next = regions.next_deadline();
  if (!regions_timer.armed() || next < regions_timer.at) wheel.arm(regions_timer, next);
}

// Whether a message keeps its region although a deadline passed. A timer that is late finds both deadlines passed, and
// asks about each.
bool Core::may_stay(Path& path, token::Region& region, token::RegionTable::Due due, Instant now) {
  const auto purse = static_cast<std::uint8_t>(region.landing->purse);
  const bool is_wanted = grants.waiting(purse == token::kAwaitedPurse ? token::kReplyPurse : purse) != 0;
  const Arrival* const arrival = find_arrival(path, region.side, wire::TransferId::unpack(region.transfer));
  const bool is_late = arrival != nullptr && arrival->transfer != nullptr && arrival->transfer->deadline < now;
  if (due == token::RegionTable::Due::idle) {
    // Messages of one sender come one after the other: a later one waits for the earlier ones. And what its sender may
    // have freed is taken back only for somebody who needs the memory.
    const bool is_idle = now - path.large->last_new_byte >= regions.options().idle_timeout;
    if (is_idle && (!region.is_told() || is_wanted || is_late)) return false;
    regions.excuse(region, now);
    return true;
  }
  // One who writes a byte now and then would keep what others wait for.
  const std::uint64_t there = region.coverage.bytes();
  const bool is_slow = there - region.renewed_bytes < region.bytes / kLeastPartPerLife;
  if ((is_slow && is_wanted) || is_late) return false;
  region.renewed_bytes = there;
  regions.renew(region, now);
  return true;
}

void Core::on_regions_timer(Instant now) {
  regions.expire(now, [&](token::Region& region, token::RegionTable::Due due) {
    Path* const path = find_path(region.path);
    if (path == nullptr || path->serial != region.path_serial) return;
    if (region.is_bound() && may_stay(*path, region, due, now)) return;
    revoke_region(*path, region, now);
  });
  if (regions.next_deadline() < Instant::never()) arm_regions_timer();
}

void Core::end_large(Path& path, Instant now) {
  LargePath& large = *path.large;
  while (large.spare_tokens != 0) end_speculation(path);
  regions.end_path(large.regions, now);
  if (large.own.open) grants.close(large.own);
  if (large.receives) {
    --large_receivers;
    if (large.is_remote) static_cast<void>(grant_pace.set_senders(--remote_receivers));
  }
  if (Member* const member = std::exchange(large.member, nullptr)) {
    WEIR_CHECK(large.arrivals == 0, "a path's messages end before it does");
    leave(*member);
  }
  for (; !large.writing.empty();) large.writing.remove(*large.writing.front());
}

// Memory that applications have let go of, on whatever thread.
void Core::take_returned(Instant now) {
  returned->take(returned_now);
  bool is_awaited_free = false;
  for (const ReturnBox::Item& item : returned_now) {
    is_awaited_free |= item.purse == token::kAwaitedPurse;
    if (item.member != 0) {
      Member* const member = members.find(item.member);
      WEIR_CHECK(member != nullptr, "a member is there for as long as memory is charged to it");
      grants.release(*member->large, static_cast<std::uint8_t>(item.purse), item.bytes);
      forget_if_unused(*member);
      continue;
    }
    Path* const path = find_path(item.path);
    if (path != nullptr && path->serial == item.path_serial && path->large != nullptr && path->large->own.open) {
      grants.release(path->large->own, static_cast<std::uint8_t>(item.purse), item.bytes);
    } else {
      grants.release_closed(static_cast<std::uint8_t>(item.purse), item.bytes);
    }
  }
  returned_now.clear();
  serve_asks(now);
  if (is_awaited_free) serve_awaited(now);
}

}  // namespace weir::engine
