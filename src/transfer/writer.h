// Writer: the sender's half of a large message, from the packet that opens it until the receiver has all of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "schedule/priority_queue.h"
#include "schedule/timing_wheel.h"
#include "transfer/cargo.h"
#include "wire/large_frame.h"

namespace weir::transfer {

struct IncomingTransfer;
struct OutgoingCall;

// Lives in a slab of one engine. It writes for one request or one reply.
struct Writer {
  enum class State : std::uint8_t {
    asking,   // for a region
    writing,  // in its path's queue
    written,  // all of it was sent; some of it may have to be sent again
  };

  OutgoingCall* call = nullptr;
  IncomingTransfer* transfer = nullptr;
  Cargo* cargo = nullptr;
  std::uint64_t region = wire::kNoRegion;
  std::uint32_t path = 0;
  std::uint64_t next = 0;    // first byte that was never sent into this region
  std::uint32_t serial = 0;  // of this region's turn: slices of an earlier one are not sent again
  std::uint8_t priority = 0;
  State state = State::asking;
  std::uint8_t lost_count = 0;  // regions that were taken back
  bool was_written = false;     // all of it was sent at least once
  bool has_waited = false;      // its rest, for those of others
  bool is_counted = false;      // among what its peer's replies hold:
  std::uint64_t counted_bytes = 0;
  schedule::QueueHook<Writer> hook;
  Instant born{};                 // of a reply
  std::uint32_t sent_slices = 0;  // also those that were sent again
  std::uint32_t seen_slices = 0;  // of these, when its timer last fired
  std::uint32_t seen_others = 0;  // of all of its path, likewise
  std::uint64_t seen_bytes = 0;   // of all of its path that were new, likewise
  schedule::Timer timer;          // a reply that nobody fetches
  schedule::Timer pause;          // until it asks for a region again
  // That were taken back: the grant of one may arrive after the word that it is gone.
  static constexpr std::uint8_t kMaxLostRegions = 8;
  std::array<std::uint64_t, kMaxLostRegions> lost_regions{};

  bool has_lost(std::uint64_t which) const {
    return std::find(lost_regions.begin(), lost_regions.begin() + lost_count, which) !=
           lost_regions.begin() + lost_count;
  }
  bool is_reply() const { return transfer != nullptr; }
};

}  // namespace weir::transfer
