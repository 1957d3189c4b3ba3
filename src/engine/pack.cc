// From queues to packets. One sealed packet carries as many frames as are ready and fit; nothing waits to fill one.
// Packets to one path form a train of equal segments, so that the kernel takes them in one call.
#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "engine/core.h"
#include "engine/packer.h"
#include "engine/train_plan.h"

namespace weir::engine {

namespace {

// The part of a call that the next packet begins with has often left the nearest cache while the call was queued: it is
// fetched while this packet is sealed.
void prefetch_next_part(const OutgoingCall& call) {
  constexpr std::size_t kCacheLine = 64;
  constexpr std::size_t kLongestFetch = 1'536;  // a packet of Ethernet's; the processor sees by itself how it goes on
  const std::byte* const next = call.data() + call.sent_bytes;
  const std::size_t bytes = std::min<std::size_t>(call.bytes - call.sent_bytes, kLongestFetch);
  for (std::size_t i = 0; i < bytes; i += kCacheLine) __builtin_prefetch(next + i);
}

// Frames for which the peer may be waiting.
bool owes_control(const Path& path) {
  return path.probe_wanted || path.probe_response_owed || path.announce_path || path.credit_levels_owed != 0;
}

}  // namespace

unsigned Core::waiting_levels(const Path& path) {
  unsigned levels = path.replies.occupied_levels();
  if (path.partial != nullptr) levels |= 1u << path.partial->priority;
  if (path.peer != nullptr) levels |= path.peer->queue.occupied_levels();  // nested calls, too
  return levels;
}

// Whatever is urgent and comes while a long train is sent waits for its end. What was sent lately is expected again.
bool Core::more_urgent_may_come(unsigned levels, Instant now) const {
  unsigned more_urgent = std::bit_floor(levels);
  more_urgent -= more_urgent != 0;
  if ((levels & more_urgent) != 0) return true;
  for (; more_urgent != 0; more_urgent &= more_urgent - 1) {
    if (level_recent_until[static_cast<unsigned>(std::countr_zero(more_urgent))] > now) return true;
  }
  return false;
}

void Core::remember_levels(unsigned levels, Instant now) {
  for (; levels != 0; levels &= levels - 1) {
    level_recent_until[static_cast<unsigned>(std::countr_zero(levels))] = now + kUrgencyMemory;
  }
}

void Core::pack_path(Path& path, std::vector<Train>& out, Instant now) {
  if (!path.keys.installed()) return;
  if (!is_waiting(path)) path.waiting_since = now;  // silence is counted from what is sent now
  if (path.next_generation > wire::kMaxGeneration && path.outstanding == 0) [[unlikely]] {
    // It has named all the calls that it can: the next ones get a new path.
    tell_health(path, event::PeerHealth::closed);
    send_close(path, wire::CloseReason::idle, now);
    end_path(path, Code::peer_failed, "the path is used up", true, now, 0);
    return;
  }
  std::byte* const train_begin = arena.get() + arena_used;
  std::byte* train_end = train_begin;
  TrainPlan plan;
  std::uint32_t messages_left = kMaxTrainMessages;
  bool more = false;
  const auto mark = path.ecn.mark();
  unsigned levels = 0;  // of the messages in this train
  // The pacer decides about trains, not packets: a train's last packet or two, held back, would cost as much as a
  // train.
  const std::size_t paced_bytes = path.pacer.next_send(now) <= now ? path.pacer.rate() / kTrainsPerSecond : 0;
  for (std::size_t segments = 0; segments < kMaxSegments; ++segments) {
    const bool something = has_something(path);
    const bool path_open =
        (path.probes_owed != 0 ||
         (path.congestion.may_send(path.loss.bytes_in_flight()) &&
          (static_cast<std::size_t>(train_end - train_begin) < paced_bytes || path.pacer.next_send(now) <= now) &&
          path.loss.sent().size() < path.loss.sent().bound() / 2 &&  // the rest is for probes and what elicits nothing
          !path.frames.nearly_full(config.datagram_bytes / wire::kReplyBytes))) &&
        (!something || has_nic_room(path.mtu.current(), now));
    const bool window_open = path_open && (path.probes_owed != 0 || has_turn(path, now));
    const bool ack_due = path.ack_policy.due(now);
    if (!ack_due && (!something || !window_open)) break;

    const bool confirming = path.state == Path::State::confirming;
    // After two timeouts in a row the path may have stopped passing large packets: probe with small ones.
    std::size_t size = path.loss.pto_count() >= 2 ? kBaseDatagramBytes : path.mtu.current();
    if (segments != 0) {
      size = plan.segment();
    } else if (size > kShortTrainBytes && more_urgent_may_come(waiting_levels(path), now)) {
      size = kShortTrainBytes;
    }
    if (train_end + size > arena.get() + kArenaBytes ||
        static_cast<std::size_t>(train_end - train_begin) + size > kMaxTrainBytes) {
      if (segments != 0) {
        more = true;
        break;
      }
    }
    if (static_cast<std::size_t>(train_end - train_begin) + size > kShortTrainBytes && segments != 0 &&
        more_urgent_may_come(levels, now)) [[unlikely]] {
      cut_short = more = true;
      break;
    }
    const std::size_t prefix = wire::kHeaderBytes + (confirming ? path.confirming->prefix.size() : 0);
    std::byte* const text = train_end + prefix;
    const std::uint64_t frames_begin = path.frames.end();
    std::byte* const limit = train_end + size - wire::kTagBytes;
    const auto write_messages = [](Packer& packer) {
      packer.write_again();
      if (!packer.full()) packer.write_replies();
      if (!packer.full()) packer.write_requests();
    };
    const auto pack = [&](bool with_ack) {
      Packer packer(*this, path, text, limit, messages_left, now);
      if (window_open && path.responses_owed != 0) [[unlikely]]
        packer.write_responses();
      if (with_ack) packer.write_ack();
      // An acknowledgement that goes anyway carries control frames, whatever the link says.
      if (path_open) packer.write_control();
      if (window_open) {
        write_messages(packer);
      }
      return packer;
    };
    std::optional<Packer> packed(pack(path.ack_policy.wanted() || ack_due));
    // A message that would have filled the packet alone does not fit beside the acknowledgement, which can wait.
    if (packed->full() && !packed->eliciting() && !ack_due) packed.emplace(pack(false));
    Packer& packer = *packed;
    if (!packer.eliciting() && !ack_due && !path.ping_owed) {
      more = packer.full() && !plan.is_empty();  // it needs a longer packet than this train's are
      break;
    }
    auto end = TrainPlan::End::as_it_is;
    if (packer.full() && packer.eliciting()) {
      const auto bytes = static_cast<std::size_t>(packer.at() + wire::kTagBytes - train_end);
      end = plan.end_of({.bytes = bytes,
                         .size = size,
                         .next_bytes = packer.next_bytes(),
                         .may_split = packer.may_split(),
                         .is_final = segments + 1 == kMaxSegments || packer.messages_left() == 0 || packer.is_last() ||
                                     static_cast<std::size_t>(train_end - train_begin) + 2 * size > kMaxTrainBytes});
      if (end == TrainPlan::End::split) {
        packer.allow_split();
        write_messages(packer);
        end = TrainPlan::End::padded;  // what is left is less than a part
      }
    }
    std::byte* at = packer.at();
    bool eliciting = packer.eliciting();
    if (path.ping_owed && window_open) {
      if (!eliciting && at < limit) {
        at = wire::encode_bare(wire::FrameType::ping, at);
        eliciting = true;
      }
      path.ping_owed = false;
    }
    if (at == text) break;
    std::size_t padding = 0;
    if (end == TrainPlan::End::padded && packer.full()) {
      padding = static_cast<std::size_t>(limit - at);
      std::memset(at, 0, padding);
      at = limit;
    }
    levels |= packer.levels();
    if (path.partial != nullptr) prefetch_next_part(*path.partial);
    seal_packet(path, train_end, prefix, text, at,
                {.frames_begin = frames_begin,
                 .ack_largest = packer.ack_largest(),
                 .frames_count = static_cast<std::uint16_t>(path.frames.end() - frames_begin),
                 .ack_eliciting = eliciting,
                 .in_flight = eliciting,
                 .ecn = mark},
                now);
    if (!packer.has_messages()) ++events.counters.packets_control_only;
    const auto packet_size = static_cast<std::uint32_t>(at + wire::kTagBytes - train_end);
    plan.add(packet_size, padding, packer.ack_largest() != recovery::kNoPacket);
    train_end += packet_size;
    messages_left = packer.messages_left();
    if (messages_left == 0) {
      more = true;
      break;
    }
    if (!packer.full()) break;
    if (!packer.eliciting()) {  // an acknowledgement alone, not filled up: what did not fit starts a new train
      more = true;
      break;
    }
    if (end == TrainPlan::End::last || segments + 1 == kMaxSegments) {
      more = true;
      break;
    }
  }
  if (train_end != train_begin) {
    out.push_back({.to = path.remote,
                   .ecn = static_cast<std::uint8_t>(mark),
                   .bytes = {train_begin, static_cast<std::size_t>(train_end - train_begin)},
                   .segment_size = static_cast<std::uint32_t>(plan.segment()),
                   .path = path.id});
    arena_used += static_cast<std::size_t>(train_end - train_begin);
    remember_levels(levels, now);
  }
  if (more) {
    touch(path);
  } else {
    probe_mtu(path, out, now);
  }
}

void Core::rotate_if_due(Path& path) {
  if (!path.key_confirmed || (path.next_number - path.key_first_number < config.rotate_packets &&
                              path.key_bytes < config.rotate_bytes)) [[likely]]
    return;
  path.keys.rotate();
  path.key_first_number = path.next_number;
  path.key_bytes = 0;
  path.key_confirmed = false;
  events.emit(event::KeyRotated{{}, path.id, path.keys.send_id()});
}

// Header, seal, bookkeeping. `packet` has room for the tag behind `end`.
void Core::seal_packet(Path& path, std::byte* packet, std::size_t prefix, std::byte* text, std::byte* end,
                       recovery::SentPacket record, Instant now) {
  rotate_if_due(path);
  const std::uint64_t number = path.next_number++;
  const bool confirming = prefix != wire::kHeaderBytes;
  wire::encode({.type = confirming ? wire::PacketType::first : wire::PacketType::sealed,
                .key_low = path.key_low(),
                .number_low = static_cast<std::uint32_t>(number & ((1u << wire::kNumberBits) - 1)),
                .path = confirming ? path.id : path.remote_id},
               packet);
  if (confirming)
    std::memcpy(packet + wire::kHeaderBytes, path.confirming->prefix.data(), path.confirming->prefix.size());
  path.keys.send_key().seal(crypto::make_nonce(0, number), {packet, prefix},
                            {text, static_cast<std::size_t>(end - text)}, end);
  record.bytes = static_cast<std::uint32_t>(end + wire::kTagBytes - packet);
  account_sent(path, number, record, now);
}

void Core::account_sent(Path& path, std::uint64_t number, recovery::SentPacket record, Instant now) {
  path.key_bytes += record.bytes;
  if (record.in_flight && !record.mtu_probe && !sends_probes_only(path)) [[likely]]
    record.stamp = links.on_sent(path.link, record.bytes, now);
  path.loss.on_sent(number, record, now);
  if (record.in_flight) {
    path.congestion.on_sent(record.bytes, path.loss.bytes_in_flight(), now);
    path.pacer.on_sent(record.bytes, now);
    if (path.probes_owed != 0) --path.probes_owed;
  }
  path.ecn.on_sent(record.ecn);
  if (record.ack_largest != recovery::kNoPacket) path.ack_policy.on_ack_sent();
  path.last_sent = now;
  ++events.counters.packets_sent;
  events.counters.bytes_sent += record.bytes;
}

void Core::probe_mtu(Path& path, std::vector<Train>& out, Instant now) {
  if (path.state != Path::State::open || (!is_waiting(path) && path.incoming_live == 0)) return;
  if (path.mtu.deadline() > now || !path.congestion.may_send(path.loss.bytes_in_flight())) return;
  const auto size = path.mtu.next_probe(now);
  if (!size) return;
  if (arena_used + *size > kArenaBytes) {
    touch(path);
    return;
  }
  if (!has_nic_room(*size, now)) return;
  std::byte* const packet = arena.get() + arena_used;
  std::byte* const text = packet + wire::kHeaderBytes;
  std::byte* const end = packet + *size - wire::kTagBytes;
  std::memset(text, 0, static_cast<std::size_t>(end - text));
  wire::encode_bare(wire::FrameType::ping, text);
  seal_packet(path, packet, wire::kHeaderBytes, text, end,
              {.frames_begin = path.frames.end(), .mtu_probe = true, .ecn = recovery::EcnMark::none}, now);
  ++events.counters.packets_control_only;
  path.mtu.on_probe_sent(*size, now);
  out.push_back({.to = path.remote, .bytes = {packet, *size}, .segment_size = *size, .path = path.id});
  arena_used += *size;
}

// The paths of this round: those that were passed over last time, then by the most urgent message that each has. Every
// one of them has a train in this round or is passed over, so none waits for ever.
void Core::order_by_urgency() {
  constexpr std::size_t kKeys = schedule::kPriorityLevels + 2;
  std::array<std::size_t, kKeys + 1> begins{};
  urgencies.clear();
  for (const std::uint32_t id : touching) {
    const Path* path = find_path(id);
    std::uint8_t key = kKeys - 1;
    if (path != nullptr) {
      // Acknowledgements alone: last.
      const unsigned levels = waiting_levels(*path) | slice_levels(*path) | 1u << schedule::kPriorityLevels;
      key = path->passed_over ? std::uint8_t{0} : static_cast<std::uint8_t>(1 + std::countr_zero(levels));
    }
    urgencies.push_back(key);
    ++begins[key + 1u];
  }
  for (std::size_t key = 1; key < begins.size(); ++key) begins[key] += begins[key - 1];
  ordered.resize(touching.size());
  for (std::size_t i = 0; i < touching.size(); ++i) ordered[begins[urgencies[i]]++] = touching[i];
  touching.swap(ordered);
}

void Core::collect(std::vector<Train>& out, Instant now) {
  if (fork_guard.is_in_child()) [[unlikely]]
    return;
  arena_used = 0;
  cut_short = false;
  data_segments.clear();
  // What these packets were sent from has left by now.
  release_sent_ranges();
  if (returned->has_some()) take_returned(now);
  if (has_ended_write) serve_asks(now);
  if (!held_asks.empty()) serve_held_asks(now);
  links.settle(now);
  const std::size_t plain_before = plain.size();
  send_plain_datagrams(out);
  if (nic != nullptr && arena_used != 0) nic->charge(arena_used, plain_before - plain.size(), now);
  // One train for each path that has something, so that it leaves at once; those with more come again next time.
  touching.swap(touched);
  if (touching.size() > 1) order_by_urgency();
  for (const std::uint32_t id : touching) {
    Path* path = find_path(id);
    if (path == nullptr || !path->touched) continue;
    path->touched = false;
    path->passed_over = kArenaBytes - arena_used <= 2 * config.datagram_bytes;
    if (path->passed_over) {
      touch(*path);
      continue;
    }
    // Somebody who makes us acknowledge and never acknowledges himself: the record of sent packets is used up.
    if (path->loss.sent().size() + kMaxSegments >= path->loss.sent().bound()) [[unlikely]] {
      tell_health(*path, event::PeerHealth::failed);
      end_path(*path, Code::peer_failed, "the peer acknowledges nothing", false, now);
      continue;
    }
    if (has_ended(*path, now)) [[unlikely]]
      continue;
    if (links.of(path->link).is_free()) begin_turn(*path, touching.size() > 1);
    send_from(*path, out, now);
    turn_of = kNoPath;
  }
  touching.clear();
  serve_lines(out, now);
  if (nic != nullptr) serve_nic_line(out, now);
  links.end_turn();
}

// What the path has to send, most urgent first. A path that its link holds back waits in that link's line.
void Core::send_from(Path& path, std::vector<Train>& out, Instant now) {
  const std::uint32_t id = path.id;
  is_held_by_link = is_held_by_replies = false;
  if (nic != nullptr) nic->begin(id, events.counters, path.remote.is_v4());
  // A slice would take the one packet that may leave whatever the window says, which a response needs.
  const bool slices_first =
      path.responses_owed == 0 && std::countr_zero(slice_levels(path)) < std::countr_zero(waiting_levels(path));
  if (slices_first) pack_slices(path, out, now);
  pack_path(path, out, now);
  if (find_path(id) == nullptr) return;  // a path that is used up ends itself
  if (!slices_first) pack_slices(path, out, now);
  if (nic != nullptr) end_nic_turn(path, now);
  const bool waits_for_link = is_held_by_link && (has_something(path) || has_slices(path));
  if (waits_for_link || (is_held_by_replies && path.peer->has_queued())) {
    const unsigned levels = waiting_levels(path) | slice_levels(path);
    // Control frames alone go first: they are small, and others wait for them.
    const unsigned level = levels == 0 || owes_control(path) ? 0 : static_cast<unsigned>(std::countr_zero(levels));
    // Not after a silence: its peer may be gone.
    const bool goes_on = turn_of == id && path.partial != nullptr && links.of(path.link).silences_row == 0;
    links.wait(path.link, id, level, !waits_for_link, goes_on);
  }
  update_timer(path, now);
}

// Turns for the paths that wait, as long as their link lets something out.
void Core::serve_lines(std::vector<Train>& out, Instant now) {
  if (!links.anyone_waits()) return;
  Instant next = Instant::never();
  for (std::size_t i = 0; i < links.size(); ++i) {
    SharedLink& link = links[static_cast<std::uint8_t>(i)];
    links.look_for_silence(link, now);
    while (link.line.front() != nullptr && link.may_send(now) && has_arena()) serve(link, link.line, out, now);
    if (!link.asking.empty()) link.replies->forget_old(now);
    while (link.asking.front() != nullptr && link.may_ask(now) && link.line.empty() && link.may_send(now) &&
           has_arena()) {
      serve(link, link.asking, out, now);
    }
    next = earliest(next, link.next_turn(now));
  }
  if (!next.is_never() && (!link_timer.armed() || next < link_timer.at)) wheel.arm(link_timer, next);
}

void Core::begin_turn(Path& path, bool among_others) {
  SharedLink& link = links.of(path.link);
  // Of a small window each path has little in any case, and longer turns need fewer acknowledgements.
  constexpr std::uint64_t kLeastWindow = recovery::Bottleneck::Options{}.initial_window;
  link.begin_turn(among_others && link.model.window() >= kLeastWindow, path.partial != nullptr);
  turn_of = path.id;
}

void Core::serve(SharedLink& link, LinkLine& line, std::vector<Train>& out, Instant now) {
  Path& path = *find_path(line.front()->path);
  const bool asks = line.front()->asks;
  const unsigned level = line.front()->hook.level;
  links.stop_waiting(path.link);
  if (has_ended(path, now)) [[unlikely]]
    return;
  const std::uint64_t before = asks ? link.replies->model().in_flight() : link.model.in_flight();
  begin_turn(path, !link.line.empty());
  asks_now = asks ? path.id : kNoPath;
  send_from(path, out, now);
  turn_of = asks_now = kNoPath;
  const std::uint64_t after = asks ? link.replies->model().in_flight() : link.model.in_flight();
  line.charge(level, std::max<std::uint64_t>(after - std::min(before, after), 1));
}

// As many as share the transmit memory fairly with the paths; the others go next time.
void Core::send_plain_datagrams(std::vector<Train>& out) {
  std::size_t taken = 0;
  while (taken < plain.size() && arena_used + plain[taken].size <= kPlainBytesPerTurn) {
    const Plain& datagram = plain[taken++];
    std::byte* to = arena.get() + arena_used;
    std::memcpy(to, plain_bytes.data() + datagram.begin, datagram.size);
    out.push_back({.to = datagram.to, .bytes = {to, datagram.size}, .segment_size = datagram.size, .path = kNoPath});
    arena_used += datagram.size;
  }
  plain.erase(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(taken));
  if (plain.empty()) plain_bytes.clear();
}

}  // namespace weir::engine
