#include "engine/shared_links.h"

#include <algorithm>
#include <bit>

namespace weir::engine {

namespace {

constexpr std::size_t kPrefixV4 = 12 + 3;  // bytes; an IPv4 address is kept as an IPv6 one
constexpr std::size_t kPrefixV6 = 8;

std::array<std::uint8_t, 16> prefix_of(const Address& address) {
  std::array<std::uint8_t, 16> prefix{};
  std::copy_n(address.ip.begin(), address.is_v4() ? kPrefixV4 : kPrefixV6, prefix.begin());
  return prefix;
}

}  // namespace

std::uint8_t SharedLinks::join(const Address& remote) {
  const std::array<std::uint8_t, 16> prefix = prefix_of(remote);
  std::size_t unused = links_.size();
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (links_[i]->prefix == prefix) {
      ++links_[i]->paths;
      return static_cast<std::uint8_t>(i);
    }
    if (links_[i]->paths == 0 && (unused == links_.size() || links_[i]->last_left < links_[unused]->last_left))
      unused = i;
  }
  std::size_t chosen = unused;
  if (links_.size() < kMaxLinks) {
    chosen = links_.size();
    links_.emplace_back();
  } else if (unused == links_.size()) {
    chosen = AddressHash{}({.ip = prefix}) % kMaxLinks;
    ++links_[chosen]->paths;
    return static_cast<std::uint8_t>(chosen);
  }
  links_[chosen] = std::make_unique<SharedLink>(recovery::Bottleneck::Options{}, random_);
  links_[chosen]->prefix = prefix;
  links_[chosen]->paths = 1;
  return static_cast<std::uint8_t>(chosen);
}

void SharedLinks::leave(std::uint8_t link, std::uint64_t bytes_in_flight, Instant now) {
  SharedLink& left = *links_[link];
  if (bytes_in_flight != 0) on_outcome(link, {.left_bytes = bytes_in_flight}, now);
  --left.paths;
  left.last_left = now;
}

void SharedLinks::wait(std::uint8_t link, std::uint32_t path, unsigned level, bool asks, std::uint32_t& place) {
  SharedLink& shared = *links_[link];
  LinkWaiter* waiter = nullptr;
  if (place == kNotWaiting) {
    waiter = waiters_.acquire();
    waiter->path = path;
    place = waiters_.index_of(waiter);
  } else {
    waiter = waiters_.at(place);
    if (waiter->asks == asks && waiter->hook.level <= level) return;
    line_of(shared, *waiter).remove(*waiter);
  }
  waiter->asks = asks;
  line_of(shared, *waiter).push_back(*waiter, level);
}

void SharedLinks::stop_waiting(std::uint8_t link, std::uint32_t& place) {
  if (place == kNotWaiting) return;
  LinkWaiter* const waiter = waiters_.at(place);
  line_of(*links_[link], *waiter).remove(*waiter);
  waiters_.release(waiter);
  place = kNotWaiting;
}

recovery::Bottleneck::Stamp SharedLinks::on_sent(std::uint8_t link, std::uint64_t bytes, Instant now) {
  SharedLink& shared = *links_[link];
  used_ |= std::uint64_t{1} << link;
  shared.pacer.on_sent(bytes, now);
  return shared.model.on_sent(bytes, now);
}

void SharedLinks::on_outcome(std::uint8_t link, const recovery::Bottleneck::Outcome& outcome, Instant now) {
  SharedLink& shared = *links_[link];
  shared.model.on_outcome(outcome, now);
  pace(shared);
}

void SharedLinks::on_marked(std::uint8_t link, std::uint64_t bytes, Instant now) {
  SharedLink& shared = *links_[link];
  shared.model.on_marked(bytes, now);
  pace(shared);
}

void SharedLinks::pace(SharedLink& link) {
  const std::uint64_t rate = link.model.pacing_rate();
  if (rate == link.pacer.rate()) return;
  link.pacer.set_rate(rate);
  link.pacer.set_burst(std::min(rate / kTrainsPerSecond, kLargestTrain));
}

void SharedLinks::end_turn() {
  for (; used_ != 0; used_ &= used_ - 1) {
    SharedLink& link = *links_[static_cast<std::size_t>(std::countr_zero(used_))];
    if (link.line.empty()) link.model.on_nothing_to_send();
    if (link.asking.empty()) link.replies.on_nothing_to_ask();
  }
}

Instant SharedLinks::next_turn(Instant now) const {
  Instant next = Instant::never();
  for (const auto& link : links_) next = earliest(next, link->next_turn(now));
  return next;
}

}  // namespace weir::engine
