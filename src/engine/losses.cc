// What became of our packets: acknowledged, lost, or nobody knows yet.
#include <algorithm>

#include "engine/core.h"

namespace weir::engine {

namespace {

// What the loss detector finds out about our packets, turned into work for the path.
struct LossVisitor {
  Core& core;
  Path& path;
  Instant now;

  void acked(std::uint64_t number, recovery::SentPacket& packet) {
    if (packet.mtu_probe) [[unlikely]] {
      if (path.mtu.on_probe_acked(packet.bytes, now)) {
        path.congestion.set_mtu(path.mtu.current());
        core.events.emit(event::MtuChanged{{}, path.id, path.mtu.current()});
      }
    } else {
      path.mtu.on_packet_acked(number, packet.bytes, now);
    }
    if (!path.key_confirmed && number >= path.key_first_number) [[unlikely]] {
      path.key_confirmed = true;
      if (const std::uint32_t id = path.keys.send_id(); id != 0) {
        // What was sealed under the keys before is acknowledged by now, or comes again under this one.
        path.again.push({.kind = static_cast<std::uint8_t>(SentKind::retire), .generation = id});
        core.touch(path);
      }
    }
    if (packet.ack_largest != recovery::kNoPacket) path.received.prune_below(packet.ack_largest);
    const std::uint64_t frames_end = packet.frames_begin + packet.frames_count;
    for (std::uint64_t i = packet.frames_begin; i != frames_end; ++i) acked_frame(path.frames[i]);
    if (packet.repeated) [[unlikely]]
      core.events.counters.bytes_in_vain += packet.bytes;
  }

  void acked_frame(const SentFrame& frame) {
    if (frame.what() == SentKind::reply) {
      core.on_reply_acked(path, frame, now);
    } else if (frame.what() == SentKind::request) {
      if (core.calls_telling != 0) [[unlikely]]
        core.on_request_acked(path, frame);
    } else if (frame.what() == SentKind::cancel) {
      // The peer knows; only now may the slot name another call. A repeated frame frees it once.
      if (path.calls.free_held(frame.slot, frame.generation) && path.peer->has_queued()) core.touch(path);
    } else if (frame.what() == SentKind::path) {
      path.announce_path = false;
    }
  }

  void lost(std::uint64_t number, recovery::SentPacket& packet) {
    path.ecn.on_lost(packet.ecn);
    if (!packet.mtu_probe) {
      path.mtu.on_packet_lost(number, packet.bytes, now);
    } else if (path.mtu.on_probe_lost(packet.bytes, now)) {
      path.congestion.set_mtu(path.mtu.current());
      core.events.emit(event::MtuChanged{{}, path.id, path.mtu.current()});
    }
    if (packet.repeated) {  // a later packet has its frames
      packet.frames_count = 0;
    } else if (packet.frames_count != 0) {
      packet.frames_begin = send_again(packet);
    }
  }

  // What has not gone out again need not.
  void spurious(std::uint64_t number, const recovery::SentPacket& packet) {
    path.mtu.on_packet_acked(number, packet.bytes, now);
    if (packet.repeated) core.events.counters.bytes_in_vain += packet.bytes;
    if (packet.frames_count == 0 || (packet.has_slices && path.large == nullptr)) return;
    FrameRing& again = packet.has_slices ? path.large->again : path.again;
    std::uint32_t gone = 0;
    for (std::uint64_t i = packet.frames_begin; i != packet.frames_begin + packet.frames_count; ++i) {
      if (!again.contains(i)) {
        ++gone;
        continue;
      }
      const SentFrame frame = again[i];
      again.cancel(i);
      acked_frame(frame);
    }
    core.events.counters.bytes_in_vain += std::uint64_t{packet.bytes} * gone / packet.frames_count;
  }

  // Returns where the frames are in their queue.
  std::uint64_t send_again(recovery::SentPacket& packet) {
    packet.has_slices = path.frames[packet.frames_begin].what() == SentKind::slice;  // these have packets of their own
    FrameRing& again = packet.has_slices ? core.large_of(path).again : path.again;
    const std::uint64_t begin = again.end();
    for (std::uint32_t i = 0; i < packet.frames_count; ++i) again.push(path.frames[packet.frames_begin + i]);
    return begin;
  }
};

// Everything outstanding was sent to an address that is gone.
struct AbandonVisitor {
  Core& core;
  Path& path;
  Instant now;

  void lost(std::uint64_t, recovery::SentPacket& packet) {
    if (packet.mtu_probe) (void)path.mtu.on_probe_lost(packet.bytes, now);
    if (packet.frames_count != 0 && !packet.repeated) LossVisitor{core, path, now}.send_again(packet);
  }
};

// A probe without frames is enough at first, if its round trip is short beside the wait: mostly the peer was only late,
// and then nothing is sent again.
bool asks_first(const Path& path) {
  constexpr std::int64_t kShortPart = 4;
  return path.state == Path::State::open && path.loss.pto_count() == 1 && path.loss.rtt().has_sample() &&
         kShortPart * path.loss.rtt().smoothed() <= path.loss.pto();
}

// A model's rate is that of the link: a burst waits in its queue.
std::uint64_t burst_of(const Path& path, std::uint64_t rate) {
  const std::uint64_t burst = schedule::Pacer::burst_at(rate);
  return path.congestion.has_model() ? std::min(burst, rate / Core::kTrainsPerSecond) : burst;
}

}  // namespace

void Core::send_outstanding_again(Path& path, Instant now) {
  path.loss.abandon(AbandonVisitor{*this, path, now});
  path.frames.clear();
}

bool Core::on_ack(Path& path, const wire::AckFrame& frame, Instant now) {
  recovery::PacketRange ranges[wire::AckFrame::kMaxRanges];
  for (std::size_t i = 0; i < frame.count; ++i) ranges[i] = {frame.ranges[i].first, frame.ranges[i].last};
  const recovery::AckView view{.largest = frame.largest,
                               .delay = std::chrono::microseconds(frame.delay_us),
                               .ranges = {ranges, frame.count},
                               .has_ecn = frame.has_ecn,
                               .ecn = {.ect0 = frame.ect0, .ect1 = frame.ect1, .ce = frame.ce},
                               .is_stale = is_catching_up};
  const recovery::LossReport report = path.loss.on_ack(view, now, LossVisitor{*this, path, now});
  if (report.status != recovery::AckStatus::ok) return false;
  const std::uint64_t congestion_marks = path.ecn.on_ack(view, report);
  if (congestion_marks != 0) {
    path.congestion.on_ecn_ce(congestion_marks, report.largest_acked_sent_at, now);
    links.on_marked(path.link, std::min(congestion_marks * path.mtu.current(), report.acked_bytes));
    events.emit(event::CongestionChanged{{}, path.id, path.congestion.window(), false, true});
  }
  after_loss_report(path, report, now);
  return true;
}

// N-17: a path that has its link to itself, and fills a part of its window, has a model of the link.
void Core::choose_controller(Path& path, const recovery::AckedBatch& batch) {
  const bool has_model = path.congestion.has_model();
  if (!has_model && batch.in_flight_before < recovery::PathController::kModelledBytes) [[likely]]
    return;
  const SharedLink& link = links.of(path.link);
  const bool is_lone = !link.is_local && !link.is_shared();
  if (is_lone == has_model) return;
  if (is_lone) {
    path.congestion.start_model(batch, random);
  } else {
    path.congestion.stop_model();
  }
}

void Core::after_loss_report(Path& path, const recovery::LossReport& report, Instant now) {
  if (report.rtt_sampled) path.ack_policy.on_round_trip(path.loss.rtt().smoothed());
  links.on_outcome(path.link, path.loss.bytes_on_the_way(),
                   {.delivered_bytes = report.acked_bytes,
                    .lost_bytes = report.lost_bytes,
                    .lost_packets = report.lost_packets,
                    .spurious_packets = report.spurious_packets,
                    .lost_sent_at = report.largest_lost_sent_at,
                    .newest = report.newest_stamp,
                    .rtt = report.rtt_sampled ? path.loss.rtt().latest() : Duration{0},
                    .prompt_rtt = report.prompt_rtt},
                   now);
  if (report.lost_packets != 0) {
    events.emit(event::PacketsLost{{}, path.id, report.lost_packets, report.lost_bytes});
    path.congestion.on_lost({.bytes = report.lost_bytes,
                             .packets = report.lost_packets,
                             .events = report.loss_events,
                             .largest_sent_at = report.largest_lost_sent_at},
                            now);
    events.emit(event::CongestionChanged{{}, path.id, path.congestion.window(), true, false});
  }
  if (report.persistent_congestion) path.congestion.on_persistent_congestion(now);
  if (report.spurious_packets != 0) {
    events.counters.packets_late += report.spurious_packets;
    path.congestion.on_spurious_loss(report.spurious_packets, now);
  }
  events.counters.probes_needless += report.needless_probes;
  if (report.acked_packets != 0) {
    const recovery::AckedBatch batch{.bytes = report.acked_bytes,
                                     .in_flight_before = report.in_flight_before,
                                     .in_flight = path.loss.bytes_in_flight(),
                                     .largest_sent_at = report.largest_acked_sent_at,
                                     .smoothed_rtt = path.loss.rtt().smoothed(),
                                     .prompt_rtt = report.prompt_rtt};
    choose_controller(path, batch);
    path.congestion.on_acked(batch, now);
    const std::uint64_t rate = path.congestion.pacing_rate();
    path.pacer.set_rate(rate);
    path.pacer.set_burst(burst_of(path, rate));
  }
  // Frames of packets that are acknowledged or lost are no longer needed.
  if (path.loss.eliciting_in_flight() == 0) {
    path.frames.clear();
  } else if (const recovery::SentPacket* oldest = path.loss.oldest_outstanding()) {
    path.frames.release_until(oldest->frames_begin);
  }
}

void Core::on_loss_timer(Path& path, Instant now) {
  const recovery::LossReport report = path.loss.on_timeout(now, LossVisitor{*this, path, now});
  if (report.action == recovery::TimeoutAction::probe) {
    links.on_silence(path.link, now);
    events.emit(event::ProbeTimeout{{}, path.id, path.loss.pto_count()});
    path.probes_owed = 1;
    path.ping_owed = true;
    if (!asks_first(path)) repeat_oldest(path, now);
    // One that is heard has not restarted.
    const Duration silent = now - std::max(path.last_received, path.waiting_since);
    if (path.state == Path::State::open && path.loss.pto_count() >= kRestartSuspicion &&
        silent >= kRestartSuspicion * path.loss.pto()) {
      doubt_incarnation(path, now);
    }
    repeat_hello(path, now);
  }
  after_loss_report(path, report, now);
}

// A probe best repeats what has waited longest; the original may still be acknowledged.
void Core::repeat_oldest(Path& path, Instant now) {
  if (!path.again.empty() || (path.large != nullptr && !path.large->again.empty())) return;
  const recovery::SentPacket* const oldest = path.loss.take_for_repetition();
  if (oldest == nullptr) return;
  recovery::SentPacket copy = *oldest;  // the packet itself is not lost: its frames stay where they are
  LossVisitor{*this, path, now}.send_again(copy);
}

// The peer has room for all that was sent to it. It had none for what it did not acknowledge, and waits for that: the
// probe timeout may be long by now.
void Core::on_room(Path& path, Instant now) {
  if (path.loss.pto_count() == 0 || path.loss.eliciting_in_flight() == 0) return;
  path.probes_owed = 1;
  repeat_oldest(path, now);
  touch(path);
}

// Has the peer restarted? A second hello finds out.
void Core::doubt_incarnation(Path& path, Instant now) {
  if (path.peer == nullptr || path.draining || path.peer->candidate != kNoPath || path.peer->saying_hello()) return;
  start_hello(*path.peer, now);
}

// A path probes its peer. A new process does not answer the probe of a path that is being confirmed, but a hello. If
// one is under way, it goes along: its own repetitions may have become rare.
void Core::repeat_hello(Path& path, Instant now) {
  if (path.state == Path::State::confirming && path.peer->saying_hello()) send_hello(*path.peer, now);
}

// A new process drops the `first` packets that were meant for the one before, so the probe timeout of a path that is
// being confirmed is reason enough. It is counted from what was last heard: a caller that keeps sending puts off its
// probes. The same process may answer the hello, and yet not hear the packets: it is asked less and less often.
void Core::doubt_while_confirming(Path& path, Instant now) {
  if (path.confirming == nullptr || path.confirming->doubt_at > now) return;
  const Duration silent = now - std::max(path.last_received, path.waiting_since);
  path.confirming->doubt_at = now + std::clamp<Duration>(2 * silent, kFirstHelloRetry, kLongestHelloRetry);
  doubt_incarnation(path, now);
}

}  // namespace weir::engine
