// SharedLinks: the links that paths of one engine share, and the paths that wait for room on them (docs/protocol.md,
// rules N-8 to N-12).
//
// Paths to one network prefix (24 bits of an IPv4 address, 64 bits of an IPv6 address) are taken to share a link until
// measurements say more. The link has one model of rate and round trip and one pacer. While the model limits nothing a
// path sends as its own window allows. Otherwise paths that have something to send wait in one weighted line, and each
// one has a turn of at most one train.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/address.h"
#include "base/slab.h"
#include "base/time.h"
#include "engine/reply_window.h"
#include "recovery/bottleneck.h"
#include "schedule/pacer.h"
#include "schedule/priority_queue.h"

namespace weir::engine {

// A path that waits for its turn.
struct LinkWaiter {
  std::uint32_t path = 0;
  bool asks = false;  // waits in the line of those who wait for replies
  schedule::QueueHook<LinkWaiter> hook;
};

using LinkLine = schedule::WeightedQueue<LinkWaiter, &LinkWaiter::hook>;

struct SharedLink {
  // Of fewer paths each one's own window is enough.
  static constexpr std::uint32_t kFewestPaths = 4;

  SharedLink(const recovery::Bottleneck::Options& options, Random& random)
      : model(options, random), replies(options, random) {}

  // Paths need no turns: nothing has shown a limit, and the window has room.
  bool is_free() const { return paths < kFewestPaths || (model.is_searching() && line.empty() && model.has_room()); }
  bool may_send(Instant now) const { return paths < kFewestPaths || (model.has_room() && pacer.next_send(now) <= now); }
  // Requests need no turns.
  bool is_free_to_ask() const { return paths < kFewestPaths || (replies.is_free() && asking.empty()); }
  bool may_ask(Instant now) const { return paths < kFewestPaths || replies.may_ask(now); }
  // When a line can go on by time alone. never(): it needs acknowledgements or replies.
  Instant next_turn(Instant now) const {
    if (paths < kFewestPaths && !(line.empty() && asking.empty())) return now;
    const Instant next = line.empty() || !model.has_room() ? Instant::never() : pacer.next_send(now);
    return asking.empty() ? next : earliest(next, replies.next_ask(now));
  }

  recovery::Bottleneck model;
  schedule::Pacer pacer;
  LinkLine line;  // paths that wait to send
  ReplyWindow replies;
  LinkLine asking;  // paths whose next request waits for that window
  std::array<std::uint8_t, 16> prefix{};
  std::uint32_t paths = 0;
  Instant last_left{};
};

// One per engine; single-threaded.
class SharedLinks {
 public:
  static constexpr std::uint8_t kMaxLinks = 64;
  static constexpr std::uint32_t kNotWaiting = ~std::uint32_t{0};
  // A train lasts at most so long at the link's rate, and is one packet at least.
  static constexpr std::uint64_t kTrainsPerSecond = 4'000;
  static constexpr std::uint64_t kLargestTrain = 64 * 1024;

  SharedLinks(Random& random, std::uint32_t max_paths) : random_(random), waiters_(max_paths) {}

  SharedLink& operator[](std::uint8_t link) { return *links_[link]; }
  const SharedLink& operator[](std::uint8_t link) const { return *links_[link]; }
  std::size_t size() const { return links_.size(); }

  // The link to this address. Where there are more prefixes than kMaxLinks some share one.
  std::uint8_t join(const Address& remote);
  void leave(std::uint8_t link, std::uint64_t bytes_in_flight, Instant now);

  // `place` belongs to the path and names its place in line. A path that waits already moves to a more urgent level.
  void wait(std::uint8_t link, std::uint32_t path, unsigned level, bool asks, std::uint32_t& place);
  void stop_waiting(std::uint8_t link, std::uint32_t& place);

  recovery::Bottleneck::Stamp on_sent(std::uint8_t link, std::uint64_t bytes, Instant now);
  void on_outcome(std::uint8_t link, const recovery::Bottleneck::Outcome& outcome, Instant now);
  void on_marked(std::uint8_t link, std::uint64_t bytes, Instant now);
  // What came of requests since the last turn.
  void settle(Instant now) {
    for (const auto& link : links_) link->replies.settle(now);
  }
  // At the end of a turn of sending: links whose paths have nothing more to send.
  void end_turn();
  // Of all lines; never() if none can go on by time alone.
  Instant next_turn(Instant now) const;

 private:
  static LinkLine& line_of(SharedLink& link, const LinkWaiter& waiter) { return waiter.asks ? link.asking : link.line; }
  void pace(SharedLink& link);

  Random& random_;
  std::vector<std::unique_ptr<SharedLink>> links_;
  Slab<LinkWaiter> waiters_;
  std::uint64_t used_ = 0;  // bit per link that something was sent on in this turn
};

}  // namespace weir::engine
