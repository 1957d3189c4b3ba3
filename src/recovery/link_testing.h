// A link with a queue, in virtual time, and senders that share it: each one is a Bottleneck with a pacer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <vector>

#include "base/random.h"
#include "base/time.h"
#include "recovery/bottleneck.h"

namespace weir::recovery::testing {

struct LinkOptions {
  std::uint64_t bytes_per_s = 250'000'000 / 8;
  std::uint64_t queue_bytes = 64 * 1024;
  Duration base_rtt = std::chrono::microseconds(100);
  Duration jitter = std::chrono::microseconds(50);    // of each way, at random
  Duration ack_delay = std::chrono::milliseconds(1);  // acknowledgements go out together, at most so late
  std::uint32_t packets_per_ack = 2;
  double random_loss = 0;
  std::uint32_t packet_bytes = 1'500;
};

struct SenderReport {
  std::uint64_t sent = 0, delivered = 0, dropped = 0;  // bytes
};

// Discrete events; a sender has data always, or as much as `budget` says.
class SharedLinkRun {
 public:
  SharedLinkRun(const LinkOptions& options, std::size_t senders, std::uint64_t seed)
      : options_(options), random_(seed) {
    for (std::size_t i = 0; i < senders; ++i) senders_.push_back(std::make_unique<Sender>());
  }

  struct Sender {
    Sender() : model({}) {}
    Bottleneck model;
    SenderReport report;
    std::uint64_t budget = ~std::uint64_t{0};
    std::int64_t drained_ns = 0;  // the pacer: when what was sent has drained at the rate
    Bottleneck::Stamp acked_stamp = 0;
    std::uint64_t unacked_bytes = 0, unacked_packets = 0;
    Bottleneck::Stamp unacked_stamp = 0;
    Instant unacked_sent_at{}, unacked_arrived_at{};
    bool ack_armed = false;
    Instant wakes_at = Instant::never();
  };

  Sender& sender(std::size_t i) { return *senders_[i]; }
  std::size_t size() const { return senders_.size(); }
  Instant now() const { return now_; }
  std::uint64_t longest_queue() const { return longest_queue_; }
  void forget_longest_queue() { longest_queue_ = 0; }

  void run_for(Duration time) {
    const Instant end = now_ + time;
    for (std::size_t i = 0; i < senders_.size(); ++i) pump(i);
    while (!events_.empty() && events_.top().at <= end) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      handle(event);
    }
    now_ = end;
  }

 private:
  enum class Kind : std::uint8_t { arrive, ack, ack_timer, loss, wake };
  struct Event {
    Instant at;
    std::uint64_t order;
    Kind kind;
    std::uint32_t sender;
    std::uint64_t bytes;
    std::uint32_t packets;
    Bottleneck::Stamp stamp;
    Instant sent_at;
    Duration held{};
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };

  void post(Event event) {
    event.order = ++order_;
    events_.push(event);
  }
  Duration way() {
    return options_.base_rtt / 2 +
           Duration(static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(options_.jitter.count()) + 1)));
  }

  void pump(std::size_t index) {
    Sender& s = *senders_[index];
    while (s.budget >= options_.packet_bytes && s.model.has_room()) {
      const std::uint64_t rate = s.model.pacing_rate();
      if (rate != 0) {
        const std::int64_t burst_ns = 250'000;
        if (s.drained_ns - burst_ns > now_.ns) {
          const Instant at{s.drained_ns - burst_ns};
          if (s.wakes_at > at || s.wakes_at <= now_) {
            s.wakes_at = at;
            post({.at = at, .kind = Kind::wake, .sender = static_cast<std::uint32_t>(index)});
          }
          return;
        }
        s.drained_ns = std::max(s.drained_ns, now_.ns) +
                       static_cast<std::int64_t>(options_.packet_bytes * 1e9 / static_cast<double>(rate));
      }
      send(index);
    }
    if (s.budget < options_.packet_bytes) s.model.on_nothing_to_send();
  }

  void send(std::size_t index) {
    Sender& s = *senders_[index];
    const std::uint32_t bytes = options_.packet_bytes;
    if (s.budget != ~std::uint64_t{0}) s.budget -= bytes;
    s.report.sent += bytes;
    const Bottleneck::Stamp stamp = s.model.on_sent(bytes, now_);
    const Duration service(static_cast<std::int64_t>(bytes * 1e9 / static_cast<double>(options_.bytes_per_s)));
    const std::int64_t waiting_ns = std::max<std::int64_t>(free_at_.ns - now_.ns, 0);
    const auto queued =
        static_cast<std::uint64_t>(static_cast<double>(waiting_ns) * 1e-9 * static_cast<double>(options_.bytes_per_s));
    const Event base{
        .sender = static_cast<std::uint32_t>(index), .bytes = bytes, .packets = 1, .stamp = stamp, .sent_at = now_};
    if (queued + bytes > options_.queue_bytes || random_.chance(options_.random_loss)) {
      s.report.dropped += bytes;
      Event lost = base;
      lost.kind = Kind::loss;
      // Later packets and their acknowledgements show it.
      lost.at = now_ + Duration(waiting_ns) + options_.base_rtt * 2 + options_.ack_delay;
      return post(lost);
    }
    longest_queue_ = std::max(longest_queue_, queued + bytes);
    free_at_ = std::max(free_at_, now_) + service;
    Event arrive = base;
    arrive.kind = Kind::arrive;
    arrive.at = free_at_ + way();
    post(arrive);
  }

  void acknowledge(std::size_t index) {
    Sender& s = *senders_[index];
    if (s.unacked_bytes == 0) return;
    post({.at = now_ + way(),
          .kind = Kind::ack,
          .sender = static_cast<std::uint32_t>(index),
          .bytes = s.unacked_bytes,
          .packets = static_cast<std::uint32_t>(s.unacked_packets),
          .stamp = s.unacked_stamp,
          .sent_at = s.unacked_sent_at,
          .held = now_ - s.unacked_arrived_at});
    s.unacked_bytes = s.unacked_packets = 0;
  }

  void handle(const Event& event) {
    Sender& s = *senders_[event.sender];
    switch (event.kind) {
      case Kind::arrive:
        s.report.delivered += event.bytes;
        s.unacked_bytes += event.bytes;
        ++s.unacked_packets;
        s.unacked_stamp = event.stamp;
        s.unacked_sent_at = event.sent_at;
        s.unacked_arrived_at = now_;
        if (s.unacked_packets >= options_.packets_per_ack) {
          acknowledge(event.sender);
        } else if (!s.ack_armed) {
          s.ack_armed = true;
          post({.at = now_ + options_.ack_delay, .kind = Kind::ack_timer, .sender = event.sender});
        }
        break;
      case Kind::ack_timer:
        s.ack_armed = false;
        acknowledge(event.sender);
        break;
      case Kind::ack:
        s.model.on_outcome({.delivered_bytes = event.bytes,
                            .left_bytes = event.bytes,
                            .newest = event.stamp,
                            .rtt = now_ - event.sent_at,
                            .prompt_rtt = now_ - event.sent_at - event.held},
                           now_);
        pump(event.sender);
        break;
      case Kind::loss:
        s.model.on_outcome(
            {.left_bytes = event.bytes, .lost_bytes = event.bytes, .lost_packets = 1, .lost_sent_at = event.sent_at},
            now_);
        if (s.budget != ~std::uint64_t{0}) s.budget += event.bytes;  // it is sent again
        pump(event.sender);
        break;
      case Kind::wake:
        pump(event.sender);
        break;
    }
  }

  LinkOptions options_;
  Random random_;
  std::vector<std::unique_ptr<Sender>> senders_;
  std::priority_queue<Event> events_;
  std::uint64_t order_ = 0;
  Instant now_{1'000'000};
  Instant free_at_{};
  std::uint64_t longest_queue_ = 0;
};

}  // namespace weir::recovery::testing
