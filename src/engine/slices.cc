// Slices of large messages, on their way into data packets. A slice is sent from where its payload lies: only the head
// of a packet is built here, and the link gathers both.
#include <algorithm>
#include <cstring>

#include "engine/core.h"
#include "engine/packer.h"
#include "engine/train_plan.h"

namespace weir::engine {

using transfer::Writer;

namespace {

// A slice as it is named by a SentFrame: the writer's slot, the serial of its region, where it begins and how long it
// is.
constexpr unsigned kOffsetBits = 64 - Core::kWriterSerialBits;
constexpr std::uint64_t kOffsetMask = (std::uint64_t{1} << kOffsetBits) - 1;
static_assert(buffer::kLargestRecordBytes <= 0xffff);

// A slice that ends here carries its record's tag.
bool needs_tag(const transfer::Cargo& cargo, std::uint64_t end) {
  return !cargo.sealed->adopted && (end == cargo.bytes || end % cargo.sealed->record_bytes == 0);
}

// Of what size the packets of a train are that begins with this slice: the largest, or, where the ends of the message's
// records would leave much of those empty, as many smaller ones that the slices of its record fill.
std::size_t packet_for(const transfer::Cargo& cargo, std::uint64_t offset, std::size_t largest) {
  constexpr std::size_t kHead = wire::kHeaderBytes + wire::kTextLengthBytes + wire::kSliceBytes + wire::kTagBytes;
  constexpr std::uint64_t kEmptyPart = 64;
  const std::uint32_t record_bytes = cargo.sealed->record_bytes;
  const std::uint64_t room = largest - kHead;
  const auto packets_for = [&](std::uint64_t record) { return (record + wire::kSliceTagBytes + room - 1) / room; };
  const auto empty = [&](std::uint64_t record) { return packets_for(record) * room - record - wire::kSliceTagBytes; };
  const std::uint64_t rest = cargo.bytes % record_bytes;
  const std::uint64_t all = cargo.bytes / record_bytes * empty(record_bytes) + (rest == 0 ? 0 : empty(rest));
  if (all * kEmptyPart <= cargo.bytes) return largest;
  const std::uint64_t record =
      std::min<std::uint64_t>(cargo.bytes - offset / record_bytes * record_bytes, record_bytes);
  const std::uint64_t packets = packets_for(record);
  if (packets == 1) return largest;
  // Acknowledgements ride along, as far as they do not cost a packet.
  constexpr std::size_t kAcknowledgements = 128;
  return kHead + std::min(room, (record + wire::kSliceTagBytes + kAcknowledgements + packets - 1) / packets);
}

// Of a train that goes on with this slice.
std::size_t expected_bytes(const Core::Slice& next, std::size_t train_bytes, std::size_t longest) {
  const std::uint64_t left = std::min<std::uint64_t>(next.length, next.writer->cargo->bytes - next.offset);
  return std::min<std::uint64_t>(train_bytes + left, longest);
}

}  // namespace

bool Core::next_slice(Path& path, Slice& slice) {
  LargePath& large = *path.large;
  while (!large.again.empty()) {
    const SentFrame frame = large.again[large.again.begin()];
    if (frame.what() == SentKind::nothing) {
      large.again.pop();
      continue;
    }
    Writer* const writer = writers.at(frame.slot);
    if (writer != nullptr && writer->path == path.id && writer->region != wire::kNoRegion &&
        writer->serial == static_cast<std::uint32_t>(frame.generation >> kOffsetBits)) {
      // What the receiver has said that it has is not sent again, and may be free.
      const std::uint64_t offset = frame.generation & kOffsetMask, end = offset + frame.length;
      const std::uint64_t acknowledged = writer->cargo->acknowledged;
      if (offset >= acknowledged) [[likely]] {
        slice = {.writer = writer, .offset = offset, .length = frame.length, .is_again = true};
        return true;
      }
      if (end > acknowledged) {
        large.again.push({.slot = frame.slot,
                          .kind = frame.kind,
                          .length = static_cast<std::uint16_t>(end - acknowledged),
                          .generation = frame.generation - offset + acknowledged});
      }
    }
    large.again.pop();  // it was acknowledged as a whole, cancelled, or its region was taken back
  }
  Writer* const writer = large.writing.front();
  if (writer == nullptr) return false;
  slice = {.writer = writer, .offset = writer->next, .length = ~std::uint32_t{0}, .is_again = false};
  return true;
}

// Where a packet is a train, the small rest of a message costs as much as all that went before. Once, it waits for a
// few messages behind it that are no longer than a train or two: their rests fill a train together.
void Core::set_rest_aside(LargePath& large, Writer& writer, std::uint32_t length) {
  const auto left = [](const Writer& one) { return one.cargo->bytes - one.next; };
  if (writer.has_waited || length <= kMaxTrainBytes / 2 || left(writer) > length / kSmallRestPart) return;
  Writer* last = nullptr;
  std::uint32_t count = 0;
  for (Writer* next = writer.hook.next; next != nullptr && count < kRestsTogether; next = next->hook.next) {
    if (left(*next) > 2 * kMaxTrainBytes) break;
    last = next;
    ++count;
  }
  if (last == nullptr) return;
  writer.has_waited = true;
  large.writing.move_behind(writer, *last);
}

// What fits of it into one packet, however large; and how many bytes that packet has beside its head.
ByteSpan Core::whole_slice(const Slice& slice) {
  const transfer::Cargo& cargo = *slice.writer->cargo;
  const ByteSpan bytes = cargo.sealed->at(cargo.first_byte + slice.offset);
  return bytes.first(std::min<std::uint64_t>({bytes.size(), slice.length, cargo.bytes - slice.offset}));
}
std::uint64_t Core::slice_with_tag(const Slice& slice) {
  const std::uint64_t bytes = whole_slice(slice).size();
  return bytes + (needs_tag(*slice.writer->cargo, slice.offset + bytes) ? wire::kSliceTagBytes : 0);
}

// What is left of a slice after `length` bytes of it went out.
void Core::advance_slice(Path& path, const Slice& slice, std::uint32_t length) {
  LargePath& large = *path.large;
  Writer& writer = *slice.writer;
  const std::uint64_t generation = std::uint64_t{writer.serial} << kOffsetBits | slice.offset;
  const std::uint32_t slot = writers.index_of(&writer);
  ++writer.sent_slices;
  ++large.sent_slices;
  path.frames.push({.slot = slot,
                    .kind = static_cast<std::uint8_t>(SentKind::slice),
                    .length = static_cast<std::uint16_t>(length),
                    .generation = generation});
  if (slice.is_again) {
    ++events.counters.frames_retransmitted;
    events.counters.bytes_retransmitted +=
        length + wire::kHeaderBytes + wire::kTextLengthBytes + wire::kSliceBytes + wire::kTagBytes;
    const SentFrame frame = large.again.pop();
    if (length < frame.length) {
      large.again.push({.slot = slot,
                        .kind = frame.kind,
                        .length = static_cast<std::uint16_t>(frame.length - length),
                        .generation = generation + length});
    }
    return;
  }
  events.counters.payload_bytes_sent += length;
  large.sent_bytes += length;
  large.writing.charge(writer.hook.level, length);
  writer.next += length;
  if (writer.next < writer.cargo->bytes) return set_rest_aside(*path.large, writer, length);
  large.writing.remove(writer);
  writer.state = Writer::State::written;
  writer.was_written = true;
}

void Core::pack_slices(Path& path, std::vector<Train>& out, Instant now) {
  if (!has_slices(path) || path.state != Path::State::open) return;
  std::byte* arena_at = arena.get() + arena_used;
  const std::size_t first_segment = data_segments.size();
  const auto mark = path.ecn.mark();
  const std::size_t paced_bytes = path.pacer.next_send(now) <= now ? path.pacer.rate() / kTrainsPerSecond : 0;
  std::size_t train_bytes = 0;
  TrainPlan plan;
  std::uint64_t alike = 0;  // of a train of small rests: what each of its packets has beside its head
  unsigned levels = 0;
  bool more = true;
  Slice slice;
  while (true) {
    if (!next_slice(path, slice)) {
      more = false;
      break;
    }
    if (alike != 0 && slice_with_tag(slice) != alike) break;  // it would be cut as small as these are
    levels |= 1u << slice.writer->priority;
    const bool is_short = more_urgent_may_come(levels, now);
    const std::size_t longest = is_short ? kShortTrainBytes : kMaxTrainBytes;
    std::size_t size = plan.segment();
    if (plan.is_empty()) {
      const std::size_t largest = path.loss.pto_count() >= 2 ? kBaseDatagramBytes : path.mtu.current();
      size = packet_for(*slice.writer->cargo, slice.offset, is_short ? std::min(largest, kShortTrainBytes) : largest);
    }
    if (train_bytes != 0 && (train_bytes + size > longest || data_segments.size() - first_segment == kMaxSegments)) {
      cut_short |= is_short;
      break;
    }
    const bool window_open =
        path.probes_owed != 0 ||
        (path.congestion.may_send(path.loss.bytes_in_flight()) &&
         path.loss.bytes_in_flight() < path.large->in_flight_bytes &&
         (train_bytes < paced_bytes || path.pacer.next_send(now) <= now) &&
         path.loss.sent().size() < path.loss.sent().bound() / 2 && !path.frames.nearly_full(1) && has_turn(path, now));
    if (!window_open || !has_nic_room(size, now)) {
      more = false;  // an acknowledgement, the pacer's timer or the NIC's goes on from here
      break;
    }
    if (data_segments.size() == data_segments.capacity() ||
        static_cast<std::size_t>(arena.get() + kArenaBytes - arena_at) < 2 * kBaseDatagramBytes + size / 2) {
      break;
    }
    // ---- the head: header, length of the text, text, tag ----
    std::byte* const text = arena_at + wire::kHeaderBytes + wire::kTextLengthBytes;
    std::byte* at = text;
    std::uint64_t ack_largest = recovery::kNoPacket;
    if (alike == 0 && (path.ack_policy.wanted() || path.ack_policy.due(now))) {
      Packer packer(*this, path, text, text + std::min(kBaseDatagramBytes, size) / 2, 0, now);
      packer.write_ack();
      ack_largest = packer.ack_largest();
      at = packer.at();
    }
    const transfer::Cargo& cargo = *slice.writer->cargo;
    const std::uint32_t record_bytes = cargo.sealed->record_bytes;
    ByteSpan bytes = whole_slice(slice);
    const std::uint64_t record = slice.offset / record_bytes;
    const std::size_t fixed =
        static_cast<std::size_t>(at - arena_at) + wire::kSliceBytes + wire::kTagBytes;  // of a packet without a tag
    std::size_t room = size - fixed;
    bool with_tag = needs_tag(cargo, slice.offset + bytes.size());
    if (bytes.size() + (with_tag ? wire::kSliceTagBytes : 0) > room) {
      bytes = bytes.first(std::min(bytes.size() - 1, room));
      with_tag = false;
    }
    WEIR_CHECK(!bytes.empty(), "a packet of slices has room for one");
    if (with_tag) room -= wire::kSliceTagBytes;
    at = wire::encode(
        wire::SliceFrame{.region = slice.writer->region,
                         .record = static_cast<std::uint32_t>(record),
                         .offset = static_cast<std::uint16_t>(slice.offset % record_bytes),
                         .tag = with_tag ? cargo.sealed->tag_of(cargo.first_byte / record_bytes + record) : nullptr},
        at);
    const std::uint64_t frames_begin = path.frames.end();
    advance_slice(path, slice, static_cast<std::uint32_t>(bytes.size()));
    const std::size_t missing = room - bytes.size();
    const std::uint64_t beside_head = bytes.size() + (with_tag ? wire::kSliceTagBytes : 0);
    std::size_t padding = 0;
    bool is_last = train_bytes + 2 * size > longest;
    Slice next;
    const bool has_next = missing != 0 && next_slice(path, next);
    if (has_next && plan.is_empty() && slice_with_tag(next) == beside_head) {
      alike = beside_head;  // the first of several rests that are as small: the train is theirs
      is_last = 2 * (size - missing) > longest;
    } else if (missing != 0) {
      is_last = is_last || !has_next || !plan.may_pad(missing, expected_bytes(next, train_bytes + size, longest));
      padding = is_last ? 0 : missing;
      std::memset(at, 0, padding);
      at += padding;
    }
    store<std::uint16_t>(arena_at + wire::kHeaderBytes, static_cast<std::uint16_t>(at - text));
    seal_slice(path, arena_at, text, at, bytes,
               {.frames_begin = frames_begin,
                .ack_largest = ack_largest,
                .frames_count = 1,
                .ack_eliciting = true,
                .in_flight = true,
                .ecn = mark},
               now);
    const ByteSpan head{arena_at, static_cast<std::size_t>(at + wire::kTagBytes - arena_at)};
    data_segments.push_back({head, bytes});
    const std::size_t packet_bytes = head.size() + bytes.size();
    plan.add(packet_bytes, padding, ack_largest != recovery::kNoPacket);
    train_bytes += packet_bytes;
    arena_at += head.size();
    if (is_last) break;
  }
  if (data_segments.size() != first_segment) {
    out.push_back({.to = path.remote,
                   .ecn = static_cast<std::uint8_t>(mark),
                   .segment_size = static_cast<std::uint32_t>(plan.segment()),
                   .path = path.id,
                   .segments = std::span<const Segment>(data_segments).subspan(first_segment)});
    arena_used = static_cast<std::size_t>(arena_at - arena.get());
    remember_levels(levels, now);
  }
  if (more && has_slices(path)) touch(path);
}

void Core::seal_slice(Path& path, std::byte* packet, std::byte* text, std::byte* end, ByteSpan slice,
                      recovery::SentPacket record, Instant now) {
  rotate_if_due(path);
  const std::uint64_t number = path.next_number++;
  wire::encode({.type = wire::PacketType::sealed,
                .key_low = path.key_low(),
                .is_data = true,
                .number_low = static_cast<std::uint32_t>(number & ((1u << wire::kNumberBits) - 1)),
                .path = path.remote_id},
               packet);
  path.keys.send_key().seal(crypto::make_nonce(wire::kDataNonceDomain, number), slice,
                            {text, static_cast<std::size_t>(end - text)}, end);
  record.bytes = static_cast<std::uint32_t>(end + wire::kTagBytes - packet) + static_cast<std::uint32_t>(slice.size());
  account_sent(path, number, record, now);
}

}  // namespace weir::engine
