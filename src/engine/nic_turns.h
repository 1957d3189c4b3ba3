// NicTurns: the paths of one engine that wait for their NIC, which sends no faster than its rate
// (Config::nic_bits_per_s).
//
// Whatever elicits acknowledgements is sent on a claim (schedule::NicShaper) of one train at most. Where the NIC has no
// room the path waits in a weighted line, and a timer gives the turns. Acknowledgements alone and packets outside of
// paths (hellos, closing packets) never wait, but are counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/slab.h"
#include "base/time.h"
#include "schedule/nic_shaper.h"
#include "schedule/priority_queue.h"
#include "schedule/timing_wheel.h"
#include "weir/event.h"

namespace weir::engine {

// One per engine whose NIC has a rate; single-threaded.
class NicTurns {
 public:
  static constexpr std::uint32_t kNotWaiting = ~std::uint32_t{0};
  // Of a packet, beside the datagram: UDP and IP headers, and Ethernet's with preamble, checksum and gap.
  static constexpr std::uint64_t header_bytes(bool is_v4) { return 8 + (is_v4 ? 20 : 40) + 38; }
  static constexpr std::uint64_t kLongestTrain = 64'000;

  NicTurns(std::shared_ptr<schedule::NicShaper> nic, std::uint32_t max_paths, std::uint32_t timer_tag)
      : sender_(std::move(nic)), waiters_(max_paths) {
    timer.tag = timer_tag;
  }

  // ---- the turn of one path ----
  void begin(std::uint32_t path, const Counters& counters, bool is_v4) {
    if (path_ != path) settle(0, now_);  // the path that had its turn before has ended itself
    path_ = path;
    header_bytes_ = header_bytes(is_v4);
    begin_bytes_ = counters.bytes_sent;
    begin_packets_ = counters.packets_sent;
    is_held_ = false;
    refused_bytes_ = 0;
  }
  // Whether the path may send one more packet of so many bytes. Claims room at the first one, one train's.
  bool has_room(std::uint64_t packet, const Counters& counters, Instant now) {
    const std::uint64_t need = spent(counters) + packet + header_bytes_;
    if (sender_.claimed() == 0 && (may_go_ == path_ || line_.empty()) &&
        sender_.claim(sender_.nic().train(need, kLongestTrain), now)) {
      now_ = now;
    }
    if (need <= sender_.claimed()) return true;
    is_held_ = true;
    refused_bytes_ = std::max(refused_bytes_, packet);
    return false;
  }
  bool is_held() const { return is_held_; }
  // Counts what the path has sent.
  void end(const Counters& counters, Instant now) {
    const std::uint64_t sent = spent(counters);
    if (sender_.claimed() == 0) {
      if (sent != 0) sender_.charge(sent, now);
    } else {
      settle(sent, now);
    }
    if (may_go_ != path_) return;
    may_go_ = kNotWaiting;
    line_.charge(level_, std::max<std::uint64_t>(sent, 1));
  }

  // ---- the line ----
  // `index`: of the path among those that live. A path that waits already moves to a more urgent level.
  void wait(std::uint32_t path, std::uint32_t index, unsigned level);
  void stop_waiting(std::uint32_t index);
  bool is_waiting(std::uint32_t index) const { return index < places_.size() && places_[index] != kNotWaiting; }
  std::size_t size() const { return line_.size(); }
  std::uint32_t front() const { return line_.front()->path; }
  // The path at the front has its turn, if the NIC has room for the packet that it waits to send. Otherwise retry_at()
  // says when to ask again.
  bool give_turn(Instant now);
  Instant retry_at() const { return sender_.retry_at(); }
  // At the end of collect(): nothing is claimed, and who has nothing to send stands in no line.
  void finish() {
    settle(0, now_);
    may_go_ = kNotWaiting;
    if (line_.empty()) sender_.leave_line();
  }
  // Adds how long some path has waited since the last call.
  void count_wait(Counters& counters, Instant now) {
    if (!waiting_since_.is_never()) counters.nic_wait_ns += static_cast<std::uint64_t>((now - waiting_since_).count());
    if (line_.empty()) {
      waiting_since_ = Instant::never();
    } else {
      counters.nic_waits += waiting_since_.is_never();
      waiting_since_ = now;
    }
  }

  // Packets outside of paths.
  void charge(std::uint64_t bytes, std::uint64_t packets, Instant now) {
    sender_.charge(bytes + packets * header_bytes(true), now);
  }

  schedule::Timer timer;  // for turns
  bool is_due = false;    // it has run out, and collect() has not come since

 private:
  struct Waiter {
    std::uint32_t path = 0;
    std::uint32_t index = 0;
    std::uint64_t bytes = 0;  // of its next packet
    schedule::QueueHook<Waiter> hook;
  };

  std::uint64_t spent(const Counters& counters) const {
    return counters.bytes_sent - begin_bytes_ + (counters.packets_sent - begin_packets_) * header_bytes_;
  }
  void settle(std::uint64_t sent, Instant now) {
    if (sender_.claimed() != 0) sender_.settle(sent, now);
  }

  schedule::NicSender sender_;
  Slab<Waiter> waiters_;
  std::vector<std::uint32_t> places_;  // in waiters_, by the paths' indices; kNotWaiting: in none
  schedule::WeightedQueue<Waiter, &Waiter::hook> line_;
  Instant waiting_since_ = Instant::never();
  std::uint32_t path_ = kNotWaiting;    // whose turn it is
  std::uint32_t may_go_ = kNotWaiting;  // the path that was taken from the front of the line
  unsigned level_ = 0;                  // that it waited at
  bool is_held_ = false;                // there was no room for its next packet
  std::uint64_t refused_bytes_ = 0;     // of that packet
  std::uint64_t header_bytes_ = 0;
  std::uint64_t begin_bytes_ = 0, begin_packets_ = 0;  // the engine's counters when the turn began
  Instant now_{};                                      // of the claim
};

}  // namespace weir::engine
