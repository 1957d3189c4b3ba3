// SharedLinks: the links that paths of one engine share, and the paths that wait for room on them (docs/protocol.md,
// rules N-8 to N-13).
//
// Paths to one network prefix (24 bits of an IPv4 address, 64 bits of an IPv6 address) are taken to share a link. The
// link has one model (recovery/bottleneck.h) and one pacer. While the model limits nothing a path sends as its own
// window allows. Otherwise paths that have something to send wait in one weighted line, and each one has a turn of at
// most one train. Each path keeps its own window, too.
//
// A peer may be slow, or hostile. One path has at most a quarter of a window for which others wait, what was not
// acknowledged within a probe timeout does not count any more, and few losses of one path count.
#pragma once

#include <algorithm>
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

// What a path has of its link. The path owns it; SharedLinks keeps it.
struct LinkShare {
  static constexpr std::uint32_t kNotWaiting = ~std::uint32_t{0};
  static constexpr std::uint32_t kNoRtt = ~std::uint32_t{0};

  std::uint32_t place = kNotWaiting;    // in line
  std::uint32_t bytes = 0;              // in the window of the link
  std::uint32_t least_rtt_ns = kNoRtt;  // without the peer's delay, as the peer says
  std::uint16_t epoch = 0;              // of the link, to which the next two belong
  std::uint8_t losses = 0;              // packets that counted
  std::uint8_t missing = 0;             // likewise, of those that the peer sent
  std::uint8_t link = 0;
  std::uint8_t silences = 0;  // of the link, when `bytes` began to count
};

struct SharedLink {
  // Of fewer paths each one's own window is enough.
  static constexpr std::uint32_t kFewestPaths = 4;
  static constexpr std::uint64_t kWindowPart = 4;  // one path has at most so much of a window for which others wait
  static constexpr std::uint64_t kLeastShare = 4 * 1'472;
  static constexpr std::uint64_t kMuchLess = 2;  // one half
  // Packets between two epochs, and how many losses of one path count in one: less than the model takes for too much.
  static constexpr std::uint64_t kEpochPackets = 128;
  static constexpr std::uint8_t kMostLosses = 2;
  static constexpr int kSilentRounds = 8;
  static constexpr Duration kShortestSilence = std::chrono::milliseconds(20);
  static constexpr Duration kUnknownSilence = std::chrono::milliseconds(250);  // before the first round trip
  static constexpr Duration kLongestSilence = std::chrono::seconds(1);
  static constexpr int kFewestSilentRounds = 2;  // where rounds are longer than that
  static constexpr std::uint8_t kMostDoublings = 2;

  explicit SharedLink(const recovery::Bottleneck::Options& options) : model(options) {}

  // No two hosts are at the ends of a loopback interface, and no queue is between.
  bool is_shared() const { return !is_local && paths >= kFewestPaths; }
  // Paths need no turns: nothing has shown a limit, and the window has room.
  bool is_free() const { return !is_shared() || (model.is_searching() && line.empty() && model.has_room()); }
  // One path may send now. `among_others`: a few packets, so that what leaves at once goes several ways. `finishes`: it
  // has sent a part of a message in its last turn, and this turn is for the rest of it.
  void begin_turn(bool among_others, bool finishes) {
    const std::uint64_t most = finishes ? 0 : kLeastShare;
    turn_end = among_others ? model.in_flight() + most : ~std::uint64_t{0};
  }
  bool has_turn_left() const { return model.in_flight() < turn_end; }
  bool may_send(Instant now) const { return !is_shared() || (model.has_room() && pacer.next_send(now) <= now); }
  // `finishes`: the path has sent a part of a message, and is allowed some more.
  bool has_too_much(const LinkShare& share, bool finishes) const {
    return share.silences == silences &&
           share.bytes >= std::max(model.window() / kWindowPart, kLeastShare) + (finishes ? kLeastShare : 0);
  }
  // Requests need no turns.
  bool is_free_to_ask() const { return !is_shared() || replies == nullptr || (replies->is_free() && asking.empty()); }
  bool may_ask(Instant now) const { return !is_shared() || replies == nullptr || replies->may_ask(now); }
  // When a line can go on by time alone. never(): it needs acknowledgements or replies.
  Instant next_turn(Instant now) const;
  // From then on what is on the way is not waited for: the few paths that have filled a small window may have lost it,
  // and their probe timeouts may be long.
  Instant silent_at() const;

  recovery::Bottleneck model;
  schedule::Pacer pacer;
  LinkLine line;                         // paths that wait to send
  std::unique_ptr<ReplyWindow> replies;  // once something was asked for
  LinkLine asking;                       // paths whose next request waits for that window
  std::array<std::uint8_t, 16> prefix{};
  bool is_local = false;
  std::uint32_t paths = 0;
  std::uint64_t turn_end = 0;     // in flight, at which the present turn is over
  std::uint64_t epoch_bytes = 0;  // that came through the link in this epoch
  std::uint16_t epoch = 0;
  Instant last_left{};
  Instant heard_at{};             // or when the first of what is on the way was sent
  std::uint8_t silences = 0;      // ever; wraps around
  std::uint8_t silences_row = 0;  // since something was heard
};

// One per engine; single-threaded.
class SharedLinks {
 public:
  static constexpr std::uint8_t kMaxLinks = 64;
  // A train lasts at most so long at the link's rate, and is one packet at least.
  static constexpr std::uint64_t kTrainsPerSecond = 4'000;
  static constexpr std::uint64_t kLargestTrain = 64 * 1024;

  // `nic_rate`: bytes per second that the host's interface carries; 0: not known.
  explicit SharedLinks(std::uint32_t max_paths, std::uint64_t nic_rate = 0)
      : nic_rate_(nic_rate), waiters_(max_paths) {}

  SharedLink& operator[](std::uint8_t link) { return *links_[link]; }
  const SharedLink& operator[](std::uint8_t link) const { return *links_[link]; }
  SharedLink& of(const LinkShare& share) { return *links_[share.link]; }
  std::size_t size() const { return links_.size(); }
  bool anyone_waits() const { return waiters_.live() != 0; }
  // Paths that wait may have their turns now: time has passed, or something has come since the last turn of sending.
  bool has_turns() const { return anyone_waits() && (is_due_ || noted_ != 0); }
  void note_due() { is_due_ = true; }

  // The path goes to this address. Where there are more prefixes than kMaxLinks some share a link.
  void join(LinkShare& share, const Address& remote);
  void leave(LinkShare& share, Instant now);

  // A path that waits already moves to a more urgent level, or to the other line. `goes_on`: it has sent a part of a
  // message, and is the next of its level.
  void wait(LinkShare& share, std::uint32_t path, unsigned level, bool asks, bool goes_on = false);
  void stop_waiting(LinkShare& share);

  // ---- what the path sends ----
  recovery::Bottleneck::Stamp on_sent(LinkShare& share, std::uint32_t bytes, Instant now) {
    SharedLink& link = of(share);
    return link.is_shared() ? note_sent(link, share, bytes, now) : 0;
  }
  // `on_the_way`: what the path has sent and neither heard of nor given up. `outcome.left_bytes` is not read.
  void on_outcome(LinkShare& share, std::uint64_t on_the_way, recovery::Bottleneck::Outcome outcome, Instant now) {
    SharedLink& link = of(share);
    if (link.is_shared() || share.bytes != 0) take_outcome(link, share, on_the_way, outcome, now);
  }
  // Nothing was heard for a probe timeout: what was sent before is in no queue any more.
  void on_silence(LinkShare& share, Instant now) { on_outcome(share, 0, {}, now); }
  void on_marked(LinkShare& share, std::uint64_t bytes) {
    if (of(share).is_shared()) of(share).model.on_marked(bytes);
  }

  // ---- what the path asks for ----
  void on_asked(LinkShare& share, transfer::OutgoingCall& call, Instant now) {
    SharedLink& link = of(share);
    call.reply_units = 0;
    call.reply_stamp = 0;
    if (link.is_shared()) note_asked(link, call, now);
  }
  // The call is over. `reply_bytes`: of its reply.
  void on_reply(LinkShare& share, const transfer::OutgoingCall& call, std::uint32_t reply_bytes) {
    if (call.reply_stamp != 0) note_reply(of(share), share, call, reply_bytes);
  }
  // It ended without one.
  void on_end(LinkShare& share, const transfer::OutgoingCall& call) {
    if (call.reply_stamp == 0) return;
    of(share).replies->on_end(call);
    noted_ |= std::uint64_t{1} << share.link;
  }
  // Packets of the peer before the newest one have not come; negative: one of them has, after all.
  void on_missing(LinkShare& share, std::int64_t packets);

  // What came of requests since the last turn.
  void settle(Instant now);
  // Before turns are given: a link with a full window that is silent lets paths send again.
  void look_for_silence(SharedLink& link, Instant now);
  // At the end of a turn of sending: links whose paths have nothing more to send.
  void end_turn();

 private:
  static LinkLine& line_of(SharedLink& link, const LinkWaiter& waiter) { return waiter.asks ? link.asking : link.line; }
  static void count_delivered(SharedLink& link, std::uint64_t bytes);
  static void enter_silence(const SharedLink& link, LinkShare& share);
  static void enter_epoch(const SharedLink& link, LinkShare& share);
  static void judge_rtt(SharedLink& link, recovery::Bottleneck::Outcome& outcome, Instant now);
  static void pace(SharedLink& link);
  recovery::Bottleneck::Stamp note_sent(SharedLink& link, LinkShare& share, std::uint32_t bytes, Instant now);
  void take_outcome(SharedLink& link, LinkShare& share, std::uint64_t on_the_way,
                    recovery::Bottleneck::Outcome& outcome, Instant now);
  void note_asked(SharedLink& link, transfer::OutgoingCall& call, Instant now);
  void note_reply(SharedLink& link, const LinkShare& share, const transfer::OutgoingCall& call,
                  std::uint32_t reply_bytes);

  const std::uint64_t nic_rate_;
  std::vector<std::unique_ptr<SharedLink>> links_;
  Slab<LinkWaiter> waiters_;  // one per path at most
  std::uint64_t used_ = 0;    // bit per link that something was sent on in this turn
  bool is_due_ = false;
  std::uint64_t noted_ = 0;  // bit per link whose window of replies has to be settled
};

}  // namespace weir::engine
