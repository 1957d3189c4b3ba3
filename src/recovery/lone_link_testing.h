// A link with a queue, in virtual time, and paths over it: each one has a congestion controller, a pacer, loss
// detection and a receiver that acknowledges as Weir's do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "recovery/ack_policy.h"
#include "recovery/ack_ranges.h"
#include "recovery/congestion.h"
#include "recovery/loss_detector.h"

namespace weir::recovery::testing {

struct LoneLinkOptions {
  std::uint64_t bytes_per_s = 100'000'000 / 8;
  std::uint64_t queue_bytes = 1'000'000;
  Duration base_rtt = std::chrono::milliseconds(40);
  Duration jitter{};                                // of each packet, at random
  Duration ack_gather{};                            // acknowledgements wait in the network and go on together, so often
  std::uint64_t policer_bytes = 0;                  // not 0: a token bucket of so many bytes instead of a queue
  std::uint64_t marking_bytes = ~std::uint64_t{0};  // a longer queue marks packets
  double random_loss = 0;
  std::uint32_t packet_bytes = 1'472;
};

// Discrete events. A path has data always, or as much as `budget` says.
class LoneLinkRun {
 public:
  static constexpr std::uint64_t kEndless = ~std::uint64_t{0};
  static constexpr std::uint64_t kTrainsPerSecond = 4'096;
  static constexpr std::uint64_t kLargestTrain = 64'000;

  struct Path {
    Path(std::unique_ptr<CongestionController> by, Random& random) : controller(std::move(by)), loss(random) {}
    std::unique_ptr<CongestionController> controller;
    LossDetector loss;
    AckRanges received;
    AckPolicy acks;
    Instant largest_received_at{};
    std::uint64_t marks = 0, known_marks = 0;  // that the receiver has counted, that the sender knows of
    std::uint64_t budget = kEndless;
    std::int64_t drained_ns = 0;  // the pacer: when what was sent has drained at the rate
    Instant wakes_at = Instant::never();
    std::uint64_t sent = 0, delivered = 0, dropped = 0;  // bytes
    std::uint64_t largest_burst = 0;                     // bytes sent within a tenth of a millisecond
    std::uint64_t burst = 0;
    Instant burst_began_at{};
  };

  LoneLinkRun(const LoneLinkOptions& options, std::uint64_t seed) : link(options), random_(seed) {}

  template <class Controller>
  Controller& add(std::unique_ptr<Controller> controller) {
    Controller& added = *controller;
    paths_.push_back(std::make_unique<Path>(std::move(controller), random_));
    return added;
  }
  Path& path(std::size_t i) { return *paths_[i]; }
  Random& random() { return random_; }
  Instant now() const { return now_; }

  void run_for(Duration time) {
    run_until([] { return false; }, time);
  }
  // False: that did not become true in so much time.
  bool run_until(const std::function<bool()>& is_done, Duration at_most) {
    const Instant end = now_ + at_most;
    for (std::size_t i = 0; i < paths_.size(); ++i) pump(i);
    while (!is_done()) {
      if (events_.empty() || events_.top().at > end) {
        now_ = end;
        return is_done();
      }
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      handle(event);
    }
    return true;
  }
  // Mean rate of what arrives in so much time.
  double rate_in(std::size_t i, Duration time) {
    const std::uint64_t before = path(i).delivered;
    run_for(time);
    return static_cast<double>(path(i).delivered - before) / (static_cast<double>(time.count()) * 1e-9);
  }

  LoneLinkOptions link;  // may be changed at any time

 private:
  enum class Kind : std::uint8_t { arrive, ack, ack_timer, loss_timer, wake };
  struct Event {
    Instant at;
    std::uint64_t order = 0;
    Kind kind{};
    std::size_t path = 0;
    std::uint64_t number = 0;  // or marks
    bool is_marked = false;
    std::shared_ptr<std::vector<PacketRange>> ranges{};
    Duration delay{};
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  struct Visitor {
    Path& path;
    void acked(std::uint64_t, SentPacket&) {}
    void lost(std::uint64_t, SentPacket& packet) {
      if (path.budget != kEndless) path.budget += packet.bytes;  // it is sent again
    }
    void spurious(std::uint64_t, SentPacket&) {}
  };

  void post(Event event) {
    event.order = ++order_;
    events_.push(std::move(event));
  }
  Duration way() {
    return link.base_rtt / 2 +
           Duration(static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(link.jitter.count()) + 1)));
  }

  void pump(std::size_t index) {
    Path& p = path(index);
    bool is_limited = false;
    while (p.budget >= link.packet_bytes && !p.loss.full()) {
      if (!p.controller->may_send(p.loss.bytes_in_flight())) {
        is_limited = true;
        break;
      }
      const std::uint64_t rate = p.controller->pacing_rate();
      if (rate != 0) {
        if (p.drained_ns > now_.ns) {
          is_limited = true;
          wake_at(index, Instant{p.drained_ns});
          break;
        }
        // A train at a time, as long as the rate fills in a part of a second.
        const std::uint64_t train =
            std::max<std::uint64_t>(std::min(rate / kTrainsPerSecond, kLargestTrain) / link.packet_bytes, 1);
        p.drained_ns = now_.ns;
        for (std::uint64_t i = 0; i < train && p.budget >= link.packet_bytes && !p.loss.full() &&
                                  p.controller->may_send(p.loss.bytes_in_flight());
             ++i) {
          p.drained_ns += static_cast<std::int64_t>(link.packet_bytes * 1e9 / static_cast<double>(rate));
          send(index);
        }
      } else {
        send(index);
      }
    }
    if (!is_limited) p.controller->on_app_limited(p.loss.bytes_in_flight());
    arm(index);
  }

  void wake_at(std::size_t index, Instant at) {
    Path& p = path(index);
    if (p.wakes_at > now_ && p.wakes_at <= at) return;
    p.wakes_at = at;
    post({.at = at, .kind = Kind::wake, .path = index});
  }
  void arm(std::size_t index) {
    const Instant at = path(index).loss.deadline();
    if (!at.is_never()) post({.at = std::max(at, now_ + Duration(1)), .kind = Kind::loss_timer, .path = index});
  }

  void send(std::size_t index) {
    Path& p = path(index);
    const std::uint64_t bytes = link.packet_bytes;
    if (p.budget != kEndless) p.budget -= bytes;
    const std::uint64_t number = p.loss.next_number();
    p.loss.on_sent(number, {.bytes = link.packet_bytes, .frames_count = 1}, now_);
    p.controller->on_sent(bytes, p.loss.bytes_in_flight(), now_);
    p.sent += bytes;
    if (now_ - p.burst_began_at > std::chrono::microseconds(100)) {
      p.burst = 0;
      p.burst_began_at = now_;
    }
    p.largest_burst = std::max(p.largest_burst, p.burst += bytes);

    const double queued = static_cast<double>(std::max<std::int64_t>(free_at_.ns - now_.ns, 0)) * 1e-9 *
                          static_cast<double>(link.bytes_per_s);
    const double room = static_cast<double>(link.policer_bytes != 0 ? link.policer_bytes : link.queue_bytes);
    if (queued + static_cast<double>(bytes) > room || random_.chance(link.random_loss)) {
      p.dropped += bytes;
      return;
    }
    const Duration service(
        static_cast<std::int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(link.bytes_per_s)));
    free_at_ = std::max(free_at_, now_) + service;
    const Instant leaves = link.policer_bytes != 0 ? now_ : free_at_;
    post({.at = leaves + way(),
          .kind = Kind::arrive,
          .path = index,
          .number = number,
          .is_marked = queued > static_cast<double>(link.marking_bytes)});
  }

  void acknowledge(std::size_t index) {
    Path& p = path(index);
    auto ranges = std::make_shared<std::vector<PacketRange>>();
    for (std::size_t i = 0; i < p.received.size(); ++i) ranges->push_back(p.received[i]);
    Instant at = now_ + way();
    if (link.ack_gather.count() != 0) at.ns = (at.ns / link.ack_gather.count() + 1) * link.ack_gather.count();
    post({.at = at,
          .kind = Kind::ack,
          .path = index,
          .number = p.marks,
          .ranges = ranges,
          .delay = now_ - p.largest_received_at});
    p.acks.on_ack_sent();
  }

  void report(std::size_t index, const LossReport& report) {
    Path& p = path(index);
    CongestionController& controller = *p.controller;
    if (report.lost_packets != 0) {
      controller.on_lost({.bytes = report.lost_bytes,
                          .packets = report.lost_packets,
                          .events = report.loss_events,
                          .largest_sent_at = report.largest_lost_sent_at},
                         now_);
    }
    if (report.persistent_congestion) controller.on_persistent_congestion(now_);
    if (report.spurious_packets != 0) controller.on_spurious_loss(report.spurious_packets, now_);
    if (report.acked_packets != 0) {
      p.acks.on_round_trip(p.loss.rtt().smoothed());
      controller.on_acked({.bytes = report.acked_bytes,
                           .in_flight_before = report.in_flight_before,
                           .in_flight = p.loss.bytes_in_flight(),
                           .largest_sent_at = report.largest_acked_sent_at,
                           .smoothed_rtt = p.loss.rtt().smoothed(),
                           .prompt_rtt = report.prompt_rtt},
                          now_);
    }
    if (report.action == TimeoutAction::probe) send(index);
  }

  void handle(const Event& event) {
    Path& p = path(event.path);
    switch (event.kind) {
      case Kind::arrive:
        p.delivered += link.packet_bytes;
        p.marks += event.is_marked;
        if (p.received.empty() || event.number > p.received.largest()) p.largest_received_at = now_;
        p.received.insert(event.number);
        p.acks.on_received(event.number, link.packet_bytes, true, event.is_marked, now_);
        if (p.acks.due(now_)) {
          acknowledge(event.path);
        } else {
          post({.at = p.acks.deadline(), .kind = Kind::ack_timer, .path = event.path});
        }
        return;
      case Kind::ack_timer:
        if (p.acks.due(now_)) acknowledge(event.path);
        return;
      case Kind::ack: {
        const LossReport said = p.loss.on_ack(
            {.largest = event.ranges->front().last, .delay = event.delay, .ranges = *event.ranges}, now_, Visitor{p});
        if (event.number > p.known_marks) {
          p.controller->on_ecn_ce(event.number - p.known_marks, said.largest_acked_sent_at, now_);
          p.known_marks = event.number;
        }
        report(event.path, said);
        break;
      }
      case Kind::loss_timer:
        if (p.loss.deadline() > now_) return;
        report(event.path, p.loss.on_timeout(now_, Visitor{p}));
        break;
      case Kind::wake:
        break;
    }
    pump(event.path);
  }

  Random random_;
  std::vector<std::unique_ptr<Path>> paths_;
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0;
  Instant now_{1'000'000'000};
  Instant free_at_{};
};

}  // namespace weir::recovery::testing
