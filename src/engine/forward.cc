// Datagrams that belong to another engine at the same port (docs/protocol.md, rule P-14). Path numbers and the
// sequences of hello replies name the worker that gave them, so the engine that receives a datagram sees to whom it
// belongs without a key and without a table.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "engine/core.h"
#include "engine/vouched_sources.h"

namespace weir::engine {

PathNumbers::PathNumbers(std::uint32_t max_paths, std::uint32_t workers, std::uint32_t worker)
    : index_bits_(static_cast<std::uint32_t>(std::bit_width(std::max(max_paths, 2u) - 1))),
      index_mask_((std::uint32_t{1} << index_bits_) - 1),
      worker_bits_(workers > 1 ? static_cast<std::uint32_t>(std::bit_width(workers - 1)) : 0u),
      workers_(workers) {
  WEIR_CHECK(worker_bits_ <= kMaxWorkerBits && index_bits_ <= kMaxIndexBits, "path numbers have 32 bits");
  WEIR_CHECK(workers <= 1 || worker < workers, "an engine is one of those that share its port");
  if (worker_bits_ == 0) return;
  worker_mask_ = ~std::uint32_t{0} << (32 - worker_bits_);
  worker_value_ = worker << (32 - worker_bits_);
}

std::uint32_t PathNumbers::make(SlotId id) const {
  // One generation less than the bits could name: a number of ones alone names no path.
  const std::uint32_t generation_bits = 32 - index_bits_ - worker_bits_;
  const std::uint32_t generations = (std::uint32_t{1} << generation_bits) - 1;
  const auto generation = static_cast<std::uint32_t>((id.generation >> 1) % generations);
  return worker_value_ | generation << index_bits_ | id.index;
}

bool Core::forward(std::uint32_t worker, ByteSpan datagram, const Address& from, std::uint8_t ecn, Standing standing,
                   Instant now) {
  // Only so many in a millisecond: whoever knows no key can send datagrams that name any worker. Members do not share
  // their number with strangers.
  if (now - forward_window_start >= std::chrono::milliseconds(1)) {
    forward_window_start = now;
    forwards_of_members = forwards_of_strangers = 0;
  }
  const bool may_go = standing == Standing::member ? ++forwards_of_members <= kMemberForwardsPerMillisecond
                                                   : ++forwards_of_strangers <= kStrangerForwardsPerMillisecond;
  if (!may_go || !config.siblings->forward(worker, datagram, from, ecn, standing)) {
    ++events.counters.forwards_dropped;
    reject(event::Rejection::limit, datagram.size());
    return true;
  }
  // Counted as received by the engine that takes it.
  --events.counters.packets_received;
  events.counters.bytes_received -= datagram.size();
  ++events.counters.datagrams_forwarded;
  return true;
}

bool Core::forward_sealed(std::uint32_t path, ByteSpan datagram, const Address& from, std::uint8_t ecn, Instant now) {
  const std::uint32_t worker = path_numbers.worker_of(path);
  if (is_forwarded || closed || worker >= path_numbers.workers()) return false;
  const Standing standing = config.siblings->vouched().contains(path, from) ? Standing::member : Standing::stranger;
  return forward(worker, datagram, from, ecn, standing, now);
}

// The engines at one port have one cookie, so each of them can judge the prefix of a FIRST packet.
bool Core::forward_first(const wire::DecodedFirst& first, ByteSpan datagram, const Address& from, std::uint8_t ecn,
                         Instant now) {
  const std::uint64_t worker = first.prefix.sequence >> kSequenceBits;
  if (is_forwarded || closed || worker >= path_numbers.workers()) return false;
  const bool is_member = shared && is_genuine(first, Keying(*shared), random_in_reply(first.prefix.sequence, from));
  const Standing standing = is_member ? Standing::member : Standing::stranger;
  return forward(static_cast<std::uint32_t>(worker), datagram, from, ecn, standing, now);
}

}  // namespace weir::engine
