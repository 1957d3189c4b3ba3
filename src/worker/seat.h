// Seat: one engine and the link that carries its packets, turned by whoever hosts it. The worker and the simulator call
// the same poll_once().
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/fork_guard.h"
#include "base/time.h"
#include "engine/engine.h"
#include "link/link.h"
#include "worker/pollable.h"

namespace weir::worker {

// Room for one received burst. Datagrams live within one poll_once(), so all seats of one thread share one.
struct Burst {
  Burst() { datagrams.reserve(link::kReceiveBurst); }
  std::vector<link::Datagram> datagrams;
};

// The engine's train as a link takes it. Points to the same memory.
link::Train train_for_link(const engine::Train& train);

// What feeds a seat from outside. Called by the seat's thread only.
class SeatHost {
 public:
  virtual ~SeatHost() = default;
  // Gives the engine what other threads submitted, up to a bound. True if there was anything.
  virtual bool drain(Instant now) = 0;
  // Handlers and completions of this turn have run: hand over what they left for other threads.
  virtual void flush(Instant now) = 0;
  // The link has no buffer to receive into, because somebody keeps them all.
  virtual bool is_starved() const { return false; }
  // The thread that turned the seat does so no more; another one may.
  virtual void let_go() {}
};

// Owns neither engine nor link; has no thread, no clock and, in the steady state, allocates nothing. One thread at a
// time may call it.
class Seat final : public Pollable {
 public:
  // `host` may be null.
  Seat(engine::Engine& engine, link::Link& link, Burst& burst, SeatHost* host = nullptr);
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  // One turn: take submissions, receive a burst, fire timers; deliver, collect and send, also in between. After a long
  // absence all that waits in the link is received before the timers are fired. True if anything was done or more can
  // be done at once.
  bool poll_once(Instant now) override;

  Instant next_deadline() const override;
  int descriptor() const override { return link_.descriptor(); }
  bool is_blocked() const override { return first_unsent_ < trains_.size(); }
  bool is_starved() const override { return is_starved_; }
  void note_error() override { link_.note_error(); }
  void let_go() override {
    if (host_ != nullptr) host_->let_go();
  }

  engine::Engine& engine() { return engine_; }
  link::Link& link() { return link_; }

 private:
  static constexpr int kMaxUnreachables = 64;  // reports taken in one turn
  static constexpr Duration kStarvedWait = std::chrono::milliseconds(1);
  static constexpr int kMaxRounds = 64;                                // of collecting and sending in one turn
  static constexpr Duration kAbsence = std::chrono::milliseconds(10);  // timers are late by so much
  static constexpr int kMaxBursts = 256;                               // that are read before they are looked at
  // A chunk of a burst, answered together: so many bytes if they hold so many messages, or so many bytes at the most.
  static constexpr std::size_t kChunkBytes = 16 * 1024;
  static constexpr std::size_t kChunkMessages = 64;
  static constexpr std::size_t kLargestChunkBytes = 256 * 1024;

  void catch_up(Instant now);
  bool receive(Instant now);
  bool deliver_and_transmit(Instant now);
  bool transmit(Instant now);
  bool send_pending(Instant now);

  const ForkGuard fork_guard_;
  engine::Engine& engine_;
  link::Link& link_;
  Burst& burst_;
  SeatHost* host_;
  std::vector<engine::Train> trains_;     // what the engine gave, until all of it is sent
  std::vector<link::Train> link_trains_;  // the same, as the link wants it
  std::vector<link::SendStatus> statuses_;
  std::size_t first_unsent_ = 0;
  bool is_starved_ = false;
  Instant fed_at_{};  // when a starved seat looks again
};

}  // namespace weir::worker
