#include "token/region_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "buffer/work.h"

namespace weir::token {
namespace {

template <Region::Hook Region::*Hook, class List>
void append(List& list, Region& region) {
  Region::Hook& hook = region.*Hook;
  WEIR_CHECK(!hook.linked, "a region is in each list once");
  hook = {.next = nullptr, .previous = list.last, .linked = true};
  (list.last != nullptr ? (list.last->*Hook).next : list.first) = &region;
  list.last = &region;
}

template <Region::Hook Region::*Hook, class List>
void unlink(List& list, Region& region) {
  Region::Hook& hook = region.*Hook;
  if (!hook.linked) return;
  (hook.previous != nullptr ? (hook.previous->*Hook).next : list.first) = hook.next;
  (hook.next != nullptr ? (hook.next->*Hook).previous : list.last) = hook.previous;
  hook = {};
}

void enter_path(PathRegions& regions, Region& region) {
  region.regions = &regions;
  region.of_path = {.next = regions.first, .previous = nullptr, .linked = true};
  if (regions.first != nullptr) regions.first->of_path.previous = &region;
  regions.first = &region;
  ++regions.count;
}

void leave_path(Region& region) {
  if (region.regions == nullptr) return;
  Region::Hook& hook = region.of_path;
  (hook.previous != nullptr ? hook.previous->of_path.next : region.regions->first) = hook.next;
  if (hook.next != nullptr) hook.next->of_path.previous = hook.previous;
  --region.regions->count;
  hook = {};
  region.regions = nullptr;
}

}  // namespace

RegionState next_state(RegionState state, RegionEvent event) {
  using enum RegionState;
  switch (event) {
    case RegionEvent::grant:
      return state == free ? granted : state;
    case RegionEvent::complete:
      return state == granted ? RegionState::complete : state;
    case RegionEvent::take:
      return state == RegionState::complete ? free : state;
    case RegionEvent::revoke:
      return state == granted || state == RegionState::complete ? revoked : state;
    case RegionEvent::quarantine:
      return state == revoked ? quarantined : state;
    case RegionEvent::fence:
      return state == quarantined ? fenced : state;
    case RegionEvent::lose_hope:
      return state == quarantined ? leaked : state;
    case RegionEvent::give_back:
      return state == fenced ? free : state;
    case RegionEvent::run_out_of_ids:
      return state == free ? leaked : state;
  }
  return state;
}

RegionTable::RegionTable(Options options)
    : options_(options),
      slots_(std::min(options.max_regions, kMaxRegionSlots)),
      latest_{std::numeric_limits<std::int64_t>::min()} {
  options_.max_regions = slots_.max_objects();
  options_.last_generation = std::clamp<std::uint64_t>(options.last_generation, 1, kLastRegionGeneration);
}

RegionTable::~RegionTable() {
  slots_.for_each([](Region& region) {
    if (region.landing != nullptr && region.state != RegionState::leaked) detail::unpin(region.landing);
  });
}

void RegionTable::move(Region& region, RegionEvent event) {
  const RegionState to = next_state(region.state, event);
  WEIR_CHECK(to != region.state, "a region cannot do that in the state it is in");
  --in_state_[static_cast<std::size_t>(region.state)];
  ++in_state_[static_cast<std::size_t>(to)];
  region.state = to;
}

// Callers' clocks may differ by what a turn of the loop takes; the lists must be in order all the same.
Instant RegionTable::advance(Instant now) { return latest_ = std::max(latest_, now); }

Region* RegionTable::grant(const Grant& grant, Instant now) {
  Region* region = free_;
  if (region != nullptr) {
    free_ = region->next_free;
    region->next_free = nullptr;
  } else {
    region = slots_.acquire();
    if (region == nullptr) return nullptr;
    region->id = RegionId{.slot = slots_.index_of(region)}.packed();
    ++in_state_[static_cast<std::size_t>(RegionState::free)];
  }
  RegionId id = RegionId::unpack(region->id);
  ++id.generation;  // free_slot() lets no slot come back without another one
  region->id = id.packed();
  region->landing = grant.landing;
  region->path = grant.path;
  region->path_serial = grant.path_serial;
  region->fence = grant.fence;
  region->side = wire::Side::none;
  region->transfer = 0;
  region->bytes = 0;
  region->renewed_bytes = 0;
  region->tells_share = false;
  region->range_due = kNeverTold;
  move(*region, RegionEvent::grant);
  region->last_write = advance(now);
  region->expires = latest_ + options_.lifetime;
  append<&Region::by_expiry>(by_expiry_, *region);
  if (grant.regions != nullptr) enter_path(*grant.regions, *region);
  ++counters_.granted;
  return region;
}

bool RegionTable::bind(Region& region, const Binding& binding, Instant now) {
  WEIR_CHECK(region.state == RegionState::granted && binding.side != wire::Side::none,
             "a granted region is bound to a transfer");
  if (region.is_bound() || binding.bytes > region.landing->capacity) return false;
  region.side = binding.side;
  region.transfer = binding.transfer;
  region.bytes = binding.bytes;
  region.range_due = binding.bytes > range_step(binding.bytes) ? range_step(binding.bytes) : kNeverTold;
  region.last_write = advance(now);
  append<&Region::by_write>(by_write_, region);
  return true;
}

void RegionTable::touch(Region& region, Instant now) {
  region.last_write = advance(now);
  unlink<&Region::by_write>(by_write_, region);
  append<&Region::by_write>(by_write_, region);
}

void RegionTable::renew(Region& region, Instant now) {
  WEIR_CHECK(region.state == RegionState::granted, "only a granted region is renewed");
  region.expires = advance(now) + options_.lifetime;
  unlink<&Region::by_expiry>(by_expiry_, region);
  append<&Region::by_expiry>(by_expiry_, region);
}

RegionTable::Verdict RegionTable::refuse(const Write& write, const Region* region) {
  WriteRefusal refusal = WriteRefusal::outside;
  if (region == nullptr) {
    const RegionId named = RegionId::unpack(write.region);
    const Region* const slot = slots_.at(named.slot);
    const bool ever =
        slot != nullptr && named.generation != 0 && named.generation <= RegionId::unpack(slot->id).generation;
    refusal = ever ? WriteRefusal::revoked : WriteRefusal::unknown;
  } else if (region->path_serial != write.path_serial) {
    refusal = WriteRefusal::foreign;
  }
  ++counters_.refused[static_cast<std::size_t>(refusal)];
  return {.refusal = refusal};
}

void RegionTable::leave_deadlines(Region& region) {
  unlink<&Region::by_write>(by_write_, region);
  unlink<&Region::by_expiry>(by_expiry_, region);
}

void RegionTable::complete(Region& region) {
  WEIR_CHECK(region.is_covered(), "a region is complete when every byte of its message is there");
  move(region, RegionEvent::complete);
  leave_deadlines(region);
  ++counters_.completed;
}

buffer::Landing* RegionTable::take_landing(Region& region) {
  move(region, RegionEvent::take);
  buffer::Landing* const landing = region.landing;
  region.landing = nullptr;
  free_slot(region);
  return landing;
}

void RegionTable::revoke(Region& region, Instant now) {
  advance(now);
  move(region, RegionEvent::revoke);
  leave_deadlines(region);
  ++counters_.revoked;
  move(region, RegionEvent::quarantine);
  switch (region.fence.kind) {
    case Fence::Kind::immediate:
      on_fenced(region);
      break;
    case Fence::Kind::peer_acknowledged:
      break;
    case Fence::Kind::none:
      move(region, RegionEvent::lose_hope);
      region.coverage.clear(ranges_);
      leave_path(region);
      ++counters_.leaked;
      break;
  }
}

bool RegionTable::on_fenced(const Acknowledgement& acknowledgement) {
  Region* const region = slots_.at(RegionId::unpack(acknowledgement.region).slot);
  if (region == nullptr || region->id != acknowledgement.region || region->state != RegionState::quarantined ||
      region->path_serial != acknowledgement.path_serial) {
    return false;
  }
  on_fenced(*region);
  return true;
}

void RegionTable::on_fenced(Region& region) {
  move(region, RegionEvent::fence);
  buffer::Landing* const landing = region.landing;
  region.landing = nullptr;
  move(region, RegionEvent::give_back);
  free_slot(region);
  detail::unpin(landing);  // last: whoever is told that it came back may grant again
}

void RegionTable::free_slot(Region& region) {
  region.coverage.clear(ranges_);
  buffer::count(buffer::work.moved_bytes, std::exchange(region.moved_bytes, 0));
  leave_deadlines(region);
  leave_path(region);
  if (RegionId::unpack(region.id).generation >= options_.last_generation) [[unlikely]] {
    move(region, RegionEvent::run_out_of_ids);
    ++counters_.out_of_generations;
    return;
  }
  region.next_free = free_;  // last out, first in: few slots are in use, and peers remember few
  free_ = &region;
}

void RegionTable::end_path(PathRegions& regions, Instant now) {
  while (Region* const region = regions.first) {
    if (region->state == RegionState::granted || region->state == RegionState::complete) revoke(*region, now);
    if (regions.first == region) leave_path(*region);
  }
}

Instant RegionTable::next_deadline() const {
  Instant deadline = Instant::never();
  if (by_write_.first != nullptr) deadline = idle_at(*by_write_.first);
  if (by_expiry_.first != nullptr) deadline = earliest(deadline, by_expiry_.first->expires);
  return deadline;
}

bool RegionTable::is_due(const Region& region, Due reason, Instant now) const {
  if (reason == Due::expired) return region.expires <= now;
  return region.by_write.linked && idle_at(region) <= now;
}

RegionTable::Due RegionTable::due_reason(const Region& region, Instant now) const {
  return is_due(region, Due::idle, now) ? Due::idle : Due::expired;
}

Region* RegionTable::next_due(Instant now) const {
  if (by_expiry_.first != nullptr && by_expiry_.first->expires <= now) return by_expiry_.first;
  if (by_write_.first != nullptr && idle_at(*by_write_.first) <= now) return by_write_.first;
  return nullptr;
}

}  // namespace weir::token
