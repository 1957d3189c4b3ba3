#include "engine/shared_links.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace weir::engine {

namespace {

using recovery::Bottleneck;

constexpr std::size_t kPrefixV4 = 12 + 3;  // bytes; an IPv4 address is kept as an IPv6 one
constexpr std::size_t kPrefixV6 = 8;
constexpr std::uint8_t kLoopbackV4 = 127;

std::array<std::uint8_t, 16> prefix_of(const Address& address) {
  std::array<std::uint8_t, 16> prefix{};
  std::copy_n(address.ip.begin(), address.is_v4() ? kPrefixV4 : kPrefixV6, prefix.begin());
  return prefix;
}

bool is_loopback(const Address& address) {
  if (address.is_v4()) return address.ip[12] == kLoopbackV4;
  std::array<std::uint8_t, 16> loopback{};
  loopback.back() = 1;
  return std::equal(loopback.begin(), loopback.end(), address.ip.begin());
}

}  // namespace

Instant SharedLink::next_turn(Instant now) const {
  if (line.empty() && asking.empty()) return Instant::never();
  if (!is_shared()) return now;
  const Instant full = line.empty() ? Instant::never() : silent_at();
  const Instant next = model.has_room() ? pacer.next_send(now) : full;
  // Who asks sends, too, and after those who only send.
  return line.empty() ? std::max(next, replies->next_ask(now)) : next;
}

Instant SharedLink::silent_at() const {
  const Duration round = model.round_time();
  const Duration one =
      round == Duration{0} ? Duration(kUnknownSilence) : std::max<Duration>(kSilentRounds * round, kShortestSilence);
  const Duration wait = std::min<Duration>(one * (1 << std::min(silences_row, kMostDoublings)), kLongestSilence);
  return heard_at + std::max<Duration>(wait, kFewestSilentRounds * round);
}

void SharedLinks::look_for_silence(SharedLink& link, Instant now) {
  if (link.line.empty() || link.model.has_room() || link.silent_at() > now) return;
  link.model.on_silence(link.silences_row == 0, now);
  link.heard_at = now;
  ++link.silences;
  link.silences_row = static_cast<std::uint8_t>(link.silences_row + (link.silences_row < SharedLink::kMostDoublings));
}

// What was sent before the link became silent does not count any more.
void SharedLinks::enter_silence(const SharedLink& link, LinkShare& share) {
  if (share.silences == link.silences) return;
  share.silences = link.silences;
  share.bytes = 0;
}

void SharedLinks::join(LinkShare& share, const Address& remote) {
  const std::array<std::uint8_t, 16> prefix = prefix_of(remote);
  share = {};
  std::size_t chosen = links_.size();
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (links_[i]->prefix == prefix) {
      chosen = i;
      break;
    }
    const bool is_unused = links_[i]->paths == 0;
    if (is_unused && (chosen == links_.size() || links_[i]->last_left < links_[chosen]->last_left)) chosen = i;
  }
  if (chosen == links_.size() && links_.size() == kMaxLinks) {
    chosen = AddressHash{}({.ip = prefix}) % kMaxLinks;
  } else if (chosen == links_.size() || links_[chosen]->prefix != prefix) {
    if (links_.size() < kMaxLinks) {
      chosen = links_.size();
      links_.emplace_back();
    }
    noted_ &= ~(std::uint64_t{1} << chosen);  // of the link before
    used_ &= ~(std::uint64_t{1} << chosen);
    // Only one of them may begin with all that the interface sends.
    links_[chosen] = std::make_unique<SharedLink>(Bottleneck::Options{.nic_rate = chosen == 0 ? nic_rate_ : 0});
    links_[chosen]->prefix = prefix;
    links_[chosen]->is_local = is_loopback(remote);
  }
  ++links_[chosen]->paths;
  share.link = static_cast<std::uint8_t>(chosen);
  share.silences = links_[chosen]->silences;
}

void SharedLinks::leave(LinkShare& share, Instant now) {
  stop_waiting(share);
  on_silence(share, now);
  SharedLink& link = of(share);
  --link.paths;
  link.last_left = now;
}

void SharedLinks::wait(LinkShare& share, std::uint32_t path, unsigned level, bool asks, bool goes_on) {
  SharedLink& link = of(share);
  LinkWaiter* waiter = nullptr;
  if (share.place == LinkShare::kNotWaiting) {
    waiter = waiters_.acquire();
    WEIR_CHECK(waiter != nullptr, "a path waits once");
    waiter->path = path;
    share.place = waiters_.index_of(waiter);
  } else {
    waiter = waiters_.at(share.place);
    if (waiter->asks == asks && waiter->hook.level <= level) return;
    line_of(link, *waiter).remove(*waiter);
  }
  waiter->asks = asks;
  if (goes_on) {
    line_of(link, *waiter).push_front(*waiter, level);
  } else {
    line_of(link, *waiter).push_back(*waiter, level);
  }
}

void SharedLinks::stop_waiting(LinkShare& share) {
  if (share.place == LinkShare::kNotWaiting) return;
  LinkWaiter* const waiter = waiters_.at(share.place);
  line_of(of(share), *waiter).remove(*waiter);
  waiters_.release(waiter);
  share.place = LinkShare::kNotWaiting;
}

void SharedLinks::count_delivered(SharedLink& link, std::uint64_t bytes) {
  link.epoch_bytes += bytes;
  if (link.epoch_bytes < SharedLink::kEpochPackets * Bottleneck::Options{}.packet_bytes) return;
  link.epoch_bytes = 0;
  ++link.epoch;
}

void SharedLinks::enter_epoch(const SharedLink& link, LinkShare& share) {
  if (share.epoch == link.epoch) return;
  share.epoch = link.epoch;
  share.losses = share.missing = 0;
}

// A round trip shows both queues, that of what is sent and that of the replies. The one with much less on the way is
// not to blame.
void SharedLinks::judge_rtt(SharedLink& link, Bottleneck::Outcome& outcome, Instant now) {
  if (link.replies == nullptr) return;
  const std::uint64_t sent = link.model.in_flight();
  const std::uint64_t asked = link.replies->model().in_flight();
  Bottleneck::Outcome sample{.rtt = outcome.rtt, .prompt_rtt = outcome.prompt_rtt, .path_rtt = outcome.path_rtt};
  if (asked * SharedLink::kMuchLess < sent) sample.prompt_rtt = Duration{0};
  link.replies->on_rtt(sample, now);
  if (sent * SharedLink::kMuchLess < asked) outcome.prompt_rtt = Duration{0};
}

Bottleneck::Stamp SharedLinks::note_sent(SharedLink& link, LinkShare& share, std::uint32_t bytes, Instant now) {
  used_ |= std::uint64_t{1} << share.link;
  enter_silence(link, share);
  if (link.model.in_flight() == 0) link.heard_at = now;
  share.bytes += bytes;
  link.pacer.on_sent(bytes, now);
  return link.model.on_sent(bytes, now);
}

void SharedLinks::take_outcome(SharedLink& link, LinkShare& share, std::uint64_t on_the_way,
                               Bottleneck::Outcome& outcome, Instant now) {
  is_due_ = true;
  enter_silence(link, share);
  if (outcome.delivered_bytes != 0) {
    link.heard_at = now;
    link.silences_row = 0;
  }
  const auto left = share.bytes - static_cast<std::uint32_t>(std::min<std::uint64_t>(share.bytes, on_the_way));
  count_delivered(link, outcome.delivered_bytes);
  if (outcome.rtt > Duration{0}) {
    const std::int64_t rtt_ns = std::clamp<std::int64_t>(outcome.prompt_rtt.count(), 1, LinkShare::kNoRtt);
    share.least_rtt_ns = std::min(share.least_rtt_ns, static_cast<std::uint32_t>(rtt_ns));
    outcome.path_rtt = Duration(share.least_rtt_ns);
    judge_rtt(link, outcome, now);
  }
  if (outcome.spurious_packets != 0) {  // as many as counted as lost
    enter_epoch(link, share);
    outcome.spurious_packets = std::min<std::uint32_t>(outcome.spurious_packets, share.losses);
    share.losses = static_cast<std::uint8_t>(share.losses - outcome.spurious_packets);
  }
  if (outcome.lost_packets != 0) {
    enter_epoch(link, share);
    const auto counted = std::min<std::uint32_t>(outcome.lost_packets, SharedLink::kMostLosses - share.losses);
    share.losses = static_cast<std::uint8_t>(share.losses + counted);
    outcome.lost_bytes = outcome.lost_bytes * counted / outcome.lost_packets;
    outcome.lost_packets = counted;
  }
  share.bytes -= left;
  outcome.left_bytes = left;
  link.model.on_outcome(outcome, now);
  pace(link);
}

void SharedLinks::pace(SharedLink& link) {
  const std::uint64_t rate = link.model.pacing_rate();
  if (rate == link.pacer.rate()) return;
  link.pacer.set_rate(rate);
  link.pacer.set_burst(std::min(rate / kTrainsPerSecond, kLargestTrain));
}

void SharedLinks::note_asked(SharedLink& link, transfer::OutgoingCall& call, Instant now) {
  if (link.replies == nullptr) link.replies = std::make_unique<ReplyWindow>(Bottleneck::Options{});
  link.replies->add(call, now);
}

void SharedLinks::note_reply(SharedLink& link, const LinkShare& share, const transfer::OutgoingCall& call,
                             std::uint32_t reply_bytes) {
  count_delivered(link, reply_bytes);
  link.replies->on_reply(call, reply_bytes);
  noted_ |= std::uint64_t{1} << share.link;
}

void SharedLinks::on_missing(LinkShare& share, std::int64_t packets) {
  SharedLink& link = of(share);
  if (!link.is_shared() || link.replies == nullptr) return;
  enter_epoch(link, share);
  const std::int64_t counted =
      std::clamp<std::int64_t>(packets, -std::int64_t{share.missing}, SharedLink::kMostLosses - share.missing);
  share.missing = static_cast<std::uint8_t>(share.missing + counted);
  link.replies->on_missing(counted);
}

void SharedLinks::settle(Instant now) {
  for (; noted_ != 0; noted_ &= noted_ - 1) {
    links_[static_cast<std::size_t>(std::countr_zero(noted_))]->replies->settle(now);
  }
}

void SharedLinks::end_turn() {
  is_due_ = false;
  for (; used_ != 0; used_ &= used_ - 1) {
    SharedLink& link = *links_[static_cast<std::size_t>(std::countr_zero(used_))];
    if (link.line.empty()) link.model.on_nothing_to_send();
    if (link.asking.empty() && link.replies != nullptr) link.replies->on_nothing_to_ask();
  }
}

}  // namespace weir::engine
