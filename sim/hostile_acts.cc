// What a hostile sender does between its correct calls. Each act is one that some rule of docs/protocol.md (G-*) is
// for.
#include <algorithm>
#include <chrono>
#include <utility>

#include "sim/hostile_sender.h"
#include "sim/random_stream.h"

namespace weir::sim {

using namespace std::chrono_literals;
using wire::FrameType;
using wire::Side;

namespace {
constexpr std::uint32_t kLongestMicroseconds = 20'000'000;  // that a caller waits
}

// ---- openings ------------------------------------------------------------------------------------------------------

bool HostileSender::send_opening(const Aim& aim, const Message& message, std::uint8_t depth, std::size_t first_bytes) {
  const std::vector<std::byte> header = marked(random_.chance(0.2) ? random_.below(1'024) : random_.below(32));
  std::vector<std::byte> opening(wire::kCargoBytes);
  wire::encode_cargo(message.cargo, opening.data());
  opening.insert(opening.end(), header.begin(), header.end());
  if (first_bytes != 0) opening.resize(std::max<std::size_t>(opening.size(), 700), opening.back());
  const auto total = static_cast<std::uint16_t>(opening.size());
  const ByteSpan said = first_bytes == 0 ? ByteSpan{opening} : ByteSpan{opening}.first(first_bytes);
  const wire::MessagePart part{.id = message.id, .bytes = said, .total = total};
  if (message.side == Side::reply) {
    forger_->say(*aim.path, FrameText().put(wire::ReplyFrame{.part = part, .is_large = true}));
    ++totals_.replies;
  } else {
    token::CreditSender& credit = aim.path->credit[std::min<std::size_t>(depth, token::kLevels - 1)];
    const std::uint32_t cost = token::request_cost(total);
    if (!credit.may_send(cost)) return false;
    credit.used += cost;
    forger_->say(*aim.path, FrameText().put(wire::RequestFrame{
                                .part = part,
                                .method = random_.chance(0.95) ? kTake.id() : random_.next(),
                                .time_left_us = static_cast<std::uint32_t>(random_.below(kLongestMicroseconds)),
                                .priority = any_priority(),
                                .depth = depth,
                                .is_large = true}));
  }
  ++totals_.opened;
  return true;
}

void HostileSender::open(const Aim& aim, Message message, std::uint8_t depth) {
  if (send_opening(aim, message, depth)) return keep(std::move(message));
  forget(message);
}

void HostileSender::open(const Aim& aim) {
  std::optional<Message> message = make_message(aim);
  if (message) open(aim, std::move(*message), static_cast<std::uint8_t>(random_.chance(0.8) ? 0 : random_.below(8)));
}

// With a token: its own, used once or twice, or another's.
void HostileSender::open_with_region(const Aim& aim) {
  std::optional<Message> made = make_message(aim, Kind::sealed);
  if (!made) return;
  Message& message = *made;
  message.cargo.region = any_region(aim);
  const token::Region* named = nullptr;
  for (const RegionView& view : forger_->regions_of(*aim.victim, *aim.path)) {
    if (view.is_ours && !view.region->is_bound() && random_.chance(0.7)) message.cargo.region = view.region->id;
    if (view.region->id == message.cargo.region) named = view.region;
  }
  ++totals_.tokens_named;
  if (named != nullptr && !named->landing->adopted && random_.chance(0.4)) {
    for (int i = 0; i < 4 && write_next(aim, message, message.cargo.region, forger_->largest_slice()); ++i) {
    }
    message.next = random_.chance(0.5) ? 0 : message.next;
  }
  open(aim, std::move(message), 0);
}

// The same transfer, which is another message now; or the very same.
void HostileSender::open_again(const Aim& aim) {
  Message* const old = any_message(aim);
  if (old == nullptr) return;
  if (random_.chance(0.3)) {
    (void)send_opening(aim, *old, 0);
    return;
  }
  std::optional<Message> made = make_message(aim, Kind::sealed);
  if (!made) return;
  Message& message = *made;
  message.id = old->id;
  if (random_.chance(0.3)) message.id.generation -= std::min<std::uint64_t>(message.id.generation, 1);
  if (aim.path->initiator && random_.chance(0.3)) message.id.generation = aim.path->next_generation++;
  open(aim, std::move(message), 0);
}

// The rest of which never comes.
void HostileSender::open_half(const Aim& aim) {
  std::optional<Message> message = make_message(aim, Kind::empty);
  if (!message) return;
  (void)send_opening(aim, *message, 0, between(random_, 1, 600));
}

void HostileSender::open_absurd(const Aim& aim) {
  std::optional<Message> made = make_message(aim, Kind::empty);
  if (!made) return;
  Message& message = *made;
  wire::CargoFrame& cargo = message.cargo;
  cargo.body_bytes =
      shape_.largest_bytes + 1 + random_.below(random_.chance(0.5) ? 100'000 : buffer::kLargestPayloadBytes / 2);
  cargo.payload_bytes = cargo.body_bytes;
  (void)send_opening(aim, message, static_cast<std::uint8_t>(random_.below(5)));
}

// As much as it may have, and more, of which it writes nothing.
void HostileSender::hoard(const Aim& aim) {
  const std::uint64_t count = between(random_, 2, 24);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::optional<Message> made = make_message(aim, Kind::empty);
    if (!made) return;
    Message& message = *made;
    message.text = marked(500);  // for trickle()
    message.cargo.body_bytes = message.cargo.payload_bytes = random_.chance(0.5) ? shape_.largest_bytes : any_bytes();
    if (!send_opening(aim, message, static_cast<std::uint8_t>(random_.chance(0.8) ? 0 : random_.below(5)))) return;
    keep(std::move(message));
  }
}

// It may be answered with a large reply, which nobody fetches unless grant_and_revoke() happens to. Where it is called,
// it answers itself.
void HostileSender::ask_small(const Aim& aim) {
  const std::optional<wire::TransferId> id = new_id(aim);
  if (!id) return;
  const std::vector<std::byte> text = marked(between(random_, 1, 200));
  const auto total = static_cast<std::uint16_t>(text.size());
  const wire::MessagePart part{.id = *id, .bytes = text, .total = total};
  Message message;
  message.serial = aim.path->serial;
  message.id = *id;
  if (!aim.path->initiator) {
    message.side = Side::reply;
    forger_->say(*aim.path, FrameText().put(wire::ReplyFrame{.part = part}));
    return keep(std::move(message));
  }
  token::CreditSender& credit = aim.path->credit[0];
  const std::uint32_t cost = token::request_cost(total);
  if (!credit.may_send(cost)) return;
  credit.used += cost;
  forger_->say(*aim.path, FrameText().put(wire::RequestFrame{
                              .part = part,
                              .method = kTake.id(),
                              .time_left_us = static_cast<std::uint32_t>(random_.below(kLongestMicroseconds)),
                              .priority = any_priority()}));
  keep(std::move(message));
}

// ---- writes --------------------------------------------------------------------------------------------------------

void HostileSender::write(const Aim& aim, std::uint64_t region, std::uint64_t offset, std::uint32_t record_bytes,
                          ByteSpan slice, const std::byte* tag) {
  forger_->say(*aim.path,
               FrameText().put(wire::SliceFrame{.region = region,
                                                .record = static_cast<std::uint32_t>(offset / record_bytes),
                                                .offset = static_cast<std::uint16_t>(offset % record_bytes),
                                                .tag = tag}),
               slice);
}

bool HostileSender::write_next(const Aim& aim, Message& message, std::uint64_t region, std::size_t most) {
  const std::uint64_t all = message.sealed != nullptr ? message.sealed->bytes : message.text.size();
  if (message.next >= all) return false;
  const std::uint32_t record_bytes = message.cargo.record_bytes;
  const std::uint64_t record = message.next / record_bytes;
  const std::uint64_t end = std::min<std::uint64_t>((record + 1) * record_bytes, all);
  const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(most, end - message.next));
  const ByteSpan slice = message.sealed != nullptr ? message.sealed->at(message.next).first(length)
                                                   : ByteSpan{message.text}.subspan(message.next, length);
  const bool is_last = message.next + length == end && message.sealed != nullptr;
  write(aim, region, message.next, record_bytes, slice, is_last ? message.sealed->tag_of(record) : nullptr);
  message.next += length;
  return true;
}

void HostileSender::write_some(const Aim& aim) {
  Message* const message = any_message(aim);
  if (message == nullptr) return;
  const std::uint64_t region = region_of(aim, *message);
  if (region == wire::kNoRegion) return;
  if (random_.chance(0.2)) message->next = 0;
  const std::uint64_t count = between(random_, 1, 12);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!write_next(aim, *message, region, between(random_, 1, forger_->largest_slice()))) break;
  }
}

void HostileSender::write_all(const Aim& aim) {
  Message* const message = any_message(aim);
  if (message == nullptr) return;
  const std::uint64_t region = region_of(aim, *message);
  if (region == wire::kNoRegion) return;
  message->next = 0;
  while (write_next(aim, *message, region, forger_->largest_slice())) {
  }
  ++totals_.finished;
}

// A byte here and there, so that its regions do not go idle.
void HostileSender::trickle(const Aim& aim) {
  for (Message& message : messages_) {
    if (message.serial != aim.path->serial || random_.chance(0.7)) continue;
    if (shape_.hoards && message.cargo.body_bytes < 50'000) continue;  // a byte would be much of it
    const std::uint64_t region = region_of(aim, message);
    if (region != wire::kNoRegion) write_next(aim, message, region, 1);
  }
}

// Into a region of its own, whoever uses it: other bytes than those that were or will be written there.
void HostileSender::scribble(const Aim& aim) {
  std::vector<RegionView> views = forger_->regions_of(*aim.victim, *aim.path);
  std::erase_if(views, [](const RegionView& view) { return !view.is_ours; });
  if (views.empty()) return;
  const token::Region& region = *views[random_.below(views.size())].region;
  const std::uint32_t record_bytes = region.landing->record_bytes;
  const std::uint64_t limit = region.limit();
  const std::uint64_t count = between(random_, 1, 8);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t offset = random_.chance(0.5) ? 0 : random_.below(limit);
    const std::uint64_t in_record = record_bytes - offset % record_bytes;
    const std::uint64_t most = std::min<std::uint64_t>({forger_->largest_slice(), in_record, limit - offset});
    const std::vector<std::byte> slice = marked(between(random_, 1, most));
    const std::vector<std::byte> tag = marked(wire::kSliceTagBytes);
    write(aim, region.id, offset, record_bytes, slice, random_.chance(0.2) ? tag.data() : nullptr);
    ++totals_.scribbles;
  }
}

// Behind the end of a region of its own, or across it.
void HostileSender::write_outside(const Aim& aim) {
  std::vector<RegionView> views = forger_->regions_of(*aim.victim, *aim.path);
  std::erase_if(views, [](const RegionView& view) { return !view.is_ours; });
  if (views.empty()) return;
  const token::Region& region = *views[random_.below(views.size())].region;
  const std::uint32_t record_bytes = region.landing->record_bytes;
  std::uint64_t offset = region.limit();
  std::uint64_t before = 0;
  if (random_.chance(0.3) && offset % record_bytes > 1) {
    before = between(random_, 1, std::min<std::uint64_t>(offset % record_bytes, 500));
  }
  if (random_.chance(0.3)) offset += random_.below(1'000'000);
  if (random_.chance(0.1))
    offset = (std::uint64_t{0xffffffff} - random_.below(3)) * record_bytes + random_.below(record_bytes);
  if (offset != region.limit()) before = 0;
  const std::uint64_t in_record = record_bytes - offset % record_bytes;
  const std::uint64_t behind = between(random_, 1, std::min<std::uint64_t>(in_record, 700));
  write(aim, region.id, offset - before, record_bytes, marked(before + behind));
  ++totals_.outside;
}

void HostileSender::write_foreign(const Aim& aim) {
  std::vector<RegionView> views = forger_->regions_of(*aim.victim, *aim.path);
  std::erase_if(views, [](const RegionView& view) { return view.is_ours; });
  if (views.empty()) return;
  token::Region& region = *views[random_.below(views.size())].region;
  const std::uint32_t record_bytes = region.landing->record_bytes;
  const std::uint64_t offset = random_.below(region.limit());
  const std::uint64_t most = std::min<std::uint64_t>(
      {forger_->largest_slice(), record_bytes - offset % record_bytes, region.limit() - offset});
  const std::vector<std::byte> slice = marked(between(random_, 1, most));
  if (sabotage_ == Sabotage::lets_others_write) std::ranges::copy(slice, region.landing->body + offset);
  write(aim, region.id, offset, record_bytes, slice);
  ++totals_.foreign;
}

// What was taken back, is not granted yet, or never will be. If it is there after all it is somebody's own affair.
void HostileSender::write_stale(const Aim& aim) {
  const std::uint64_t region = any_region(aim);
  for (const RegionView& view : forger_->regions_of(*aim.victim, *aim.path)) {
    if (view.region->id == region) return;
  }
  write(aim, region, random_.below(100'000) / 2 * 2, buffer::kRecordBytes, marked(between(random_, 1, 500)));
  ++totals_.stale;
}

// ---- words ---------------------------------------------------------------------------------------------------------

void HostileSender::ask_for_regions(const Aim& aim) {
  FrameText frames;
  const std::uint64_t count = between(random_, 1, 20);
  for (std::uint64_t i = 0; i < count; ++i) {
    frames.put(FrameType::request_regions,
               {.side = random_.chance(0.8) ? Side::request : Side::reply, .id = any_id(aim)});
  }
  forger_->say(*aim.path, frames);
  totals_.unasked += count;
}

// Memory for replies that nobody has, or that it takes back at once.
void HostileSender::grant_and_revoke(const Aim& aim) {
  FrameText frames;
  const std::uint64_t count = between(random_, 1, 6);
  for (std::uint64_t i = 0; i < count; ++i) {
    const wire::TransferId id = any_id(aim);
    const std::uint64_t region = random_.chance(0.5) ? id.packed() | 1 : any_region(aim);
    const Side side = random_.chance(0.7) ? Side::reply : static_cast<Side>(random_.below(3));
    if (random_.chance(0.7)) {
      const std::uint64_t capacity = random_.chance(0.7) ? 1u << 20 : random_.next() >> random_.below(64);
      frames.put(wire::GrantFrame{.side = side,
                                  .id = id,
                                  .region = region,
                                  .capacity = capacity,
                                  .lifetime_ms = static_cast<std::uint32_t>(random_.next()),
                                  .in_flight_bytes = random_.chance(0.5) ? 1u << 20 : 0});
    }
    if (random_.chance(0.4)) frames.put(wire::RevokeFrame{.side = side, .id = id, .region = region});
    if (random_.chance(0.2)) {
      frames.put(FrameType::region_exhausted,
                 {.side = any_side(), .id = id, .value = static_cast<std::uint32_t>(random_.next())});
    }
  }
  if (frames.bytes().empty()) return;
  forger_->say(*aim.path, frames);
  totals_.unasked += count;
}

void HostileSender::acknowledge_messages(const Aim& aim) {
  const wire::TransferId id = any_id(aim);
  FrameText frames;
  if (random_.chance(0.5)) {
    frames.put(FrameType::transfer_ack, {.side = any_side(), .id = id});
  } else {
    frames.put(wire::RangeAckFrame{.side = any_side(),
                                   .id = id,
                                   .region = random_.chance(0.5) ? id.packed() | 1 : any_region(aim) | 1,
                                   .bytes = random_.below(random_.chance(0.9) ? 10'000 : 100'000'000) + 1});
  }
  forger_->say(*aim.path, frames);
  ++totals_.unasked;
}

// All that the victim ever sent, whether it came or not.
void HostileSender::acknowledge_packets(const Aim& aim) {
  engine::Path* const theirs = forger_->path_at(*aim.victim, *aim.path);
  if (theirs == nullptr || theirs->next_number == 0) return;
  wire::AckFrame frame;
  frame.largest = theirs->next_number - 1;
  frame.count = 1;
  frame.ranges[0] = {random_.below(theirs->next_number), frame.largest};
  forger_->say(*aim.path, FrameText().put(frame));
}

void HostileSender::cancel(const Aim& aim) {
  if (!aim.path->initiator) return;
  forger_->say(*aim.path, FrameText().put(wire::CancelFrame{.id = any_id(aim),
                                                            .level = static_cast<std::uint8_t>(random_.below(2)),
                                                            .total = wire::kCargoBytes}));
  ++totals_.cancelled;
}

// Neither acknowledges nor answers nor goes on; what it says by hand it still says.
void HostileSender::fall_silent(const Aim&) {
  host_->stall_until(world_.now() + between(random_, 10ms, random_.chance(0.3) ? Duration{3s} : Duration{300ms}));
  ++totals_.silences;
}

// Its path ends with this.
void HostileSender::break_a_rule(const Aim& aim) {
  ++totals_.broken;
  const std::uint64_t region = any_region(aim);
  std::optional<Message> made = make_message(aim, Kind::empty);
  if (!made) return;
  Message& message = *made;
  const std::vector<std::byte> slice = marked(2);
  const wire::SliceFrame across{.region = region, .record = 0, .offset = buffer::kRecordBytes - 1};
  wire::CargoFrame& cargo = message.cargo;
  switch (random_.below(9)) {
    case 0:
      return forger_->say(*aim.path, FrameText().put(across), slice);
    case 1:
      return forger_->say(*aim.path, FrameText().put(across).put(across), slice);
    case 2:
      return forger_->say(*aim.path, FrameText().put(across));
    case 3:
      cargo.body_bytes = 0;
      break;
    case 4:
      cargo.record_bytes = 0;
      break;
    case 5:
      cargo.first_record = ~std::uint64_t{0};
      break;
    case 6:
      cargo.payload_bytes = ~std::uint64_t{0};
      break;
    case 7:
      cargo.pattern = static_cast<Pattern>(4 + random_.below(252));  // of streams, or of nothing
      break;
    default:
      message.id.slot = wire::kMaxSlots - 1;
      break;
  }
  (void)send_opening(aim, message, 0);
}

}  // namespace weir::sim
