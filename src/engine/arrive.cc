// The receiver's side of large messages: memory for each, in turn, and what is written into it (docs/protocol.md, rules
// G-*). A message is complete when every byte of it is there; until then nobody reads any of it.
#include <algorithm>
#include <cstring>

#include "buffer/open.h"
#include "buffer/seal.h"
#include "engine/core.h"

namespace weir::engine {

using transfer::Arrival;
using State = IncomingTransfer::State;

namespace {

// The description makes sense by itself. Whether there is memory for it is another question.
bool is_possible(const wire::CargoFrame& cargo) {
  if (cargo.body_bytes == 0 || cargo.body_bytes > buffer::kLargestPayloadBytes) return false;
  if (cargo.record_bytes < buffer::kSmallestRecordBytes || cargo.record_bytes > buffer::kLargestRecordBytes)
    return false;
  if (cargo.adopted) {  // these two name the binding
    return cargo.payload_bytes <= std::min(cargo.body_bytes, buffer::kLargestBindingBytes) &&
           cargo.first_record <= cargo.body_bytes - cargo.payload_bytes;
  }
  if (cargo.payload_bytes > buffer::kLargestPayloadBytes || cargo.first_record > cargo.payload_bytes) return false;
  const std::uint64_t begin = cargo.first_record * cargo.record_bytes;
  if (begin > cargo.payload_bytes || cargo.body_bytes > cargo.payload_bytes - begin) return false;
  // Whole records, but for the payload's last one.
  return cargo.body_bytes % cargo.record_bytes == 0 || begin + cargo.body_bytes == cargo.payload_bytes;
}

// To be opened ahead.
bool is_next_record_there(const token::Region& region) {
  const buffer::Landing& landing = *region.landing;
  if (!landing.opens_ahead || landing.is_open() || landing.failed_record != buffer::Landing::kNoRecord) return false;
  const std::uint64_t record = landing.opened_records;
  return region.coverage.covers(record * landing.record_bytes + buffer::record_length(landing, record));
}

}  // namespace

Core::Verdict Core::begin_arrival(Path& path, IncomingTransfer* transfer, OutgoingCall* call, wire::TransferId id,
                                  ByteSpan opening, Instant now) {
  wire::CargoFrame cargo;
  if (!wire::decode_cargo(opening, cargo) || !is_possible(cargo)) return Verdict::violation;
  // A reply goes where its call waits, whatever it says; but it says nothing that only requests are.
  if (call != nullptr && cargo.pattern != Pattern::unary && cargo.pattern != Pattern::get) return Verdict::violation;
  const ByteSpan header = opening.subspan(wire::kCargoBytes);
  if (header.size() > buffer::kLargestHeaderBytes) return Verdict::violation;
  const std::uint8_t purse = call != nullptr ? token::kReplyPurse : token::request_purse(level_of(*transfer));
  const std::uint64_t cost = buffer::landing_cost(cargo.body_bytes);
  const bool is_accepted =
      call == nullptr || call->max_reply == wire::kAnyReply || cargo.body_bytes + header.size() <= call->max_reply;
  if (config.memory == nullptr || cargo.body_bytes > config.limits.message_bytes || !grants.can_ever(purse, cost) ||
      !is_accepted) {
    refuse_arrival(path, transfer, call, id, Code::too_large, now);
    return Verdict::fine;
  }
  int numa_node = -1;
  if (transfer != nullptr) {
    // Before any data flows: nobody pays for what would be refused.
    const Result<int> checked =
        check_opening(*transfer, {.pattern = cargo.pattern, .header = header, .bytes = cargo.body_bytes});
    if (!checked) {
      refuse_token(path, cargo.region, now);
      keep_sentence(*transfer, checked.error().message());
      refuse_arrival(path, transfer, call, id, checked.error().code(), now);
      return Verdict::fine;
    }
    numa_node = *checked;
  }
  Arrival* const arrival = arrivals.acquire();
  if (arrival == nullptr) {
    refuse_token(path, cargo.region, now);
    refuse_arrival(path, transfer, call, id, Code::overloaded, now);
    return Verdict::fine;
  }
  arrival->transfer = transfer;
  arrival->call = call;
  arrival->id = id;
  arrival->path = path.id;
  arrival->number = ++messages_opened;
  arrival->cargo = cargo;
  arrival->numa_node = numa_node;
  arrival->opens_ahead = config.opens_arrivals && !cargo.adopted && (transfer == nullptr || !takes_records(*transfer));
  arrival->header_bytes = static_cast<std::uint16_t>(header.size());
  if (!header.empty()) {
    arrival->header = blocks.acquire(header.size());
    std::memcpy(arrival->header->bytes(), header.data(), header.size());
  }
  LargePath& large = large_of(path);
  begin_receiving(path, now);
  ++large.arrivals;
  arrival->ask = {.account = &large.account(),
                  .bytes = cost,
                  .purse = purse,
                  .priority = call != nullptr ? call->priority : transfer->priority};
  if (transfer != nullptr) {
    transfer->arrival = arrival;
    transfer->has_arrival = true;
  } else {
    drop_partial_reply(path, *call);  // the whole may come after some of its fragments
    call->arrival = arrival;
    call->has_arrival = true;
  }
  if (cargo.region != wire::kNoRegion && use_token(path, *arrival, now)) return Verdict::fine;
  arrival->cargo.region = wire::kNoRegion;  // it is not there any more: then the message asks
  ask_for_memory(path, *arrival, now);
  return Verdict::fine;
}

// A message is refused that is being written with a token: its region is of no use to anybody.
void Core::refuse_token(Path& path, std::uint64_t region_id, Instant now) {
  token::Region* const region = region_id == wire::kNoRegion ? nullptr : regions.find(region_id);
  if (region == nullptr || region->path_serial != path.serial || region->is_bound()) return;
  if (region->state == token::RegionState::granted) revoke_region(path, *region, now);
}

// The message was written with a token that we gave ahead of need.
bool Core::use_token(Path& path, Arrival& arrival, Instant now) {
  token::Region* const region = regions.find(arrival.cargo.region);
  if (region == nullptr || region->path_serial != path.serial || region->is_bound() || arrival.ask.purse != 0 ||
      region->landing->record_bytes != arrival.cargo.record_bytes) {
    return false;
  }
  if (!bind_region(path, arrival, *region, now)) return false;
  end_speculation(path);
  if (arrival.cargo.wants_token) grant_token(path, arrival, now);
  // Its bytes may have overtaken its opening.
  if (region->is_covered()) complete_arrival(path, arrival, *region, now);
  return true;
}

bool Core::bind_region(Path& path, Arrival& arrival, token::Region& region, Instant now) {
  const token::RegionTable::Binding binding{
      .side = arrival.side(), .transfer = arrival.id.packed(), .bytes = arrival.cargo.body_bytes};
  if (!regions.bind(region, binding, now)) return false;
  arrival.region = region.id;
  begin_write(path, arrival);
  describe_landing(arrival, *region.landing);
  if (region.coverage.prefix() >= region.range_due) tell_range(path, region);
  arm_regions_timer();
  touch(path);
  return true;
}

void Core::describe_landing(const Arrival& arrival, buffer::Landing& landing) {
  const wire::CargoFrame& cargo = arrival.cargo;
  landing.bytes = cargo.body_bytes;
  landing.key = cargo.key;
  landing.adopted = cargo.adopted;
  landing.opens_ahead = arrival.opens_ahead;
  if (cargo.adopted) {
    landing.binding_offset = cargo.first_record;
    landing.binding_bytes = cargo.payload_bytes;
  } else {
    landing.first_record = cargo.first_record;
    landing.payload_bytes = cargo.payload_bytes;
  }
  landing.header_bytes = arrival.header_bytes;
  if (arrival.header_bytes != 0) {
    std::memcpy(landing.body - arrival.header_bytes, arrival.header->bytes(), arrival.header_bytes);
  }
}

void Core::ask_for_memory(Path& path, Arrival& arrival, Instant now) {
  if (path.large->ahead.enter(arrival.ask)) {
    wait_for_memory(path, arrival, now);
  } else if (arrival.is_reply()) {
    static_cast<void>(serve_if_awaited(path, arrival, now));
  }
}

void Core::wait_for_memory(Path& path, Arrival& arrival, Instant now) {
  const wire::Side side = arrival.side();
  const wire::TransferId id = arrival.id;
  // It may be refused meanwhile, because the system has no memory.
  const auto still_waits = [&] {
    const Arrival* const same = find_arrival(path, side, id);
    return same != nullptr && same->ask.is_waiting();
  };
  grants.ask(arrival.ask);
  serve_asks(now);
  if (!still_waits()) return;
  // What others hold ahead of need helps only one who waits for the purse that it is of.
  if (spare_tokens != 0 && arrival.ask.purse == 0 && arrival.ask.place != token::Ask::Place::set_aside) {
    revoke_spare_tokens(now);
    take_returned(now);
    if (!still_waits()) return;
  }
  if (arrival.is_reply() && serve_if_awaited(path, arrival, now)) return;
  events.emit(event::RegionExhausted{{}, path.id, id.packed()});
  path.again.push({.slot = id.slot,
                   .kind = static_cast<std::uint8_t>(SentKind::region_exhausted),
                   .offset = static_cast<std::uint16_t>(side),
                   .generation = id.generation});
  touch(path);
}

// Null if it is over, or never was.
Arrival* Core::find_arrival(Path& path, wire::Side side, wire::TransferId id) {
  if (side == wire::Side::reply) {
    if (id.slot >= path.calls.size()) return nullptr;
    OutgoingCall* const call = path.calls[id.slot];
    return call != nullptr && call->generation == id.generation && call->has_arrival ? call->arrival : nullptr;
  }
  if (id.slot >= path.incoming.size()) return nullptr;
  const IncomingSlot& slot = path.incoming[id.slot];
  if (slot.generation != id.generation || slot.transfer == nullptr || !slot.transfer->has_arrival) return nullptr;
  return slot.transfer->arrival;
}

// Its sender was told that its region is gone, and does not ask for another: it would keep its place for ever.
void Core::on_arrival_timer(Arrival& arrival, Instant now) {
  if (Path* const path = find_path(arrival.path)) {
    refuse_arrival(*path, arrival.transfer, arrival.call, arrival.id, Code::timeout, now);
  }
}

// The sender knows that its region is gone, and is still there.
void Core::on_request_regions(Path& path, const wire::SideFrame& frame, Instant now) {
  Arrival* const arrival = find_arrival(path, frame.side, frame.id);
  if (arrival == nullptr || arrival->region != wire::kNoRegion || arrival->ask.is_waiting()) return;
  wheel.cancel(arrival->timer);
  if (++arrival->lost_regions > kMaxLostRegions) {
    return refuse_arrival(path, arrival->transfer, arrival->call, arrival->id, Code::timeout, now);
  }
  // The memory for awaited replies may be another one's by now, for as long as the application keeps that reply.
  if (arrival->is_reply()) arrival->ask.purse = token::kReplyPurse;
  ask_for_memory(path, *arrival, now);
}

Core::Verdict Core::on_slice(Path& path, const wire::SliceFrame& frame, ByteSpan slice, Instant now) {
  if (slice.empty()) return Verdict::violation;
  token::Region* const named = regions.find(frame.region);
  const std::uint32_t record_bytes = named != nullptr ? named->landing->record_bytes : buffer::kRecordBytes;
  // A slice never crosses its record's end.
  if (frame.offset + slice.size() > record_bytes) return Verdict::violation;
  const std::uint64_t offset = std::uint64_t{frame.record} * record_bytes + frame.offset;
  const auto [region, refusal] = regions.check_write(
      {.region = frame.region, .path_serial = path.serial, .offset = offset, .length = slice.size()});
  if (region == nullptr) {  // it changes no byte; an honest sender has been told already, or soon is
    events.emit(event::WriteRefused{{}, path.id, frame.region, static_cast<std::uint32_t>(slice.size())});
    return Verdict::fine;
  }
  if (grant_pace.paces() && region->coverage.bytes() == 0) on_first_bytes(path, *region, now);
  if (!regions.cover(*region, {.begin = offset, .end = offset + slice.size()}, now)) return Verdict::not_now;
  place_slice(*region, frame, slice);
  events.counters.payload_bytes_received += slice.size();
  if (region->last_write == now) path.large->last_new_byte = now;
  if (grant_pace.is_measured() && grant_pace.on_bytes(slice.size(), now)) tell_shares();
  if (!region->is_covered()) {
    if (grant_pace.paces()) [[unlikely]]
      end_write_soon(path, *region);
    if (region->coverage.prefix() >= region->range_due) [[unlikely]]
      tell_range(path, *region);
    return Verdict::fine;
  }
  if (Arrival* const arrival = find_arrival(path, region->side, wire::TransferId::unpack(region->transfer))) {
    complete_arrival(path, *arrival, *region, now);
  }
  return Verdict::fine;
}

// Moves a slice to its place. Where this thread is the one that would open it anyhow, a record is opened as soon as it
// is whole, while the nearest cache has it, and one that came in a single slice straight from the packet, instead of
// being moved: the bytes of a burst take as long as they would without.
void Core::place_slice(token::Region& region, const wire::SliceFrame& frame, ByteSpan slice) {
  buffer::Landing& landing = *region.landing;
  if (frame.record < landing.opened_records) return;  // it came twice, and is text already
  if (frame.tag != nullptr) {
    std::memcpy(landing.tags + std::uint64_t{frame.record} * crypto::kTagBytes, frame.tag, crypto::kTagBytes);
  }
  const bool is_whole_and_next = landing.opens_ahead && frame.record == landing.opened_records &&
                                 landing.failed_record == buffer::Landing::kNoRecord &&
                                 slice.size() == buffer::record_length(landing, frame.record);
  if (is_whole_and_next) {
    static_cast<void>(buffer::open_next_from(landing, slice, buffer::thread_key()));
  } else {
    std::memcpy(landing.body + std::uint64_t{frame.record} * landing.record_bytes + frame.offset, slice.data(),
                slice.size());
    region.moved_bytes += slice.size();
  }
  // What came before its turn is caught up with.
  for (int i = 0; i < kOpenedPerSlice && is_next_record_there(region); ++i) {
    static_cast<void>(buffer::open_next(landing, buffer::thread_key()));
  }
}

// So that the sender need not keep all of it until the end.
void Core::tell_range(Path& path, token::Region& region) {
  const wire::TransferId id = wire::TransferId::unpack(region.transfer);
  region.range_due = region.coverage.prefix() + token::range_step(region.bytes);
  path.again.push({.slot = id.slot,
                   .kind = static_cast<std::uint8_t>(SentKind::range_ack),
                   .offset = static_cast<std::uint16_t>(region.side),
                   .generation = id.generation});
  touch(path);
}

void Core::complete_arrival(Path& path, Arrival& arrival, token::Region& region, Instant now) {
  regions.complete(region);
  buffer::Landing* const landing = regions.take_landing(region);
  acknowledge_transfer(path, arrival.side(), arrival.id);
  ++events.counters.large_messages_received;
  path.large->ahead.on_arrived(arrival.cargo.body_bytes, path.loss.rtt().smoothed(), now);
  IncomingTransfer* const transfer = arrival.transfer;
  OutgoingCall* const call = arrival.call;
  arrival.region = wire::kNoRegion;
  end_write(arrival);
  drop_arrival(path, arrival, now);
  if (transfer != nullptr) {
    --path.receiving;
    transfer->delivery.pin = landing;
    transfer->delivery.request = landing->header().data();
    transfer->bytes = transfer->header_bytes = landing->header_bytes;
    admit(path, *transfer);
    return;
  }
  ++events.counters.calls_completed;
  events.moved(path.id, wire::TransferId{call->slot, call->generation}.packed(), event::TransferStage::completed,
               false);
  let_go(*call, 0);
  completions.push_back({.call = call,
                         .bytes = landing->header().data(),
                         .size = landing->header_bytes,
                         .header_bytes = landing->header_bytes,
                         .landing = landing});
}

void Core::acknowledge_transfer(Path& path, wire::Side side, wire::TransferId id) {
  path.again.push({.slot = id.slot,
                   .kind = static_cast<std::uint8_t>(SentKind::transfer_ack),
                   .offset = static_cast<std::uint16_t>(side),
                   .generation = id.generation});
  touch(path);
}

// The message is not wanted any more, or is complete: its place in the line and its region, if it has one, are free.
void Core::drop_arrival(Path& path, Arrival& arrival, Instant now) {
  leave_line(path, arrival.ask);
  wheel.cancel(arrival.timer);
  if (arrival.region != wire::kNoRegion) {
    end_write(arrival);
    if (token::Region* const region = regions.find(arrival.region)) regions.revoke(*region, now);
  }
  if (arrival.header != nullptr) detail::unpin(arrival.header);
  crypto::wipe(arrival.cargo.key);
  if (arrival.transfer != nullptr) {
    arrival.transfer->has_arrival = false;
    arrival.transfer->arrival = nullptr;
  } else {
    arrival.call->has_arrival = false;
    arrival.call->arrival = nullptr;
  }
  arrivals.release(&arrival);
  --path.large->arrivals;
  touch(path);
}

// Until dispatch() answers with it: its block, and its length where that of the request's header is no use any more.
void Core::keep_sentence(IncomingTransfer& transfer, std::string_view sentence) {
  sentence = sentence.substr(0, kMaxSentenceBytes);
  transfer.header_bytes = static_cast<std::uint16_t>(sentence.size());
  if (sentence.empty()) return;
  transfer.block = blocks.acquire(sentence.size());
  std::memcpy(transfer.block->bytes(), sentence.data(), sentence.size());
}

// A request is answered with the reason, by dispatch(); a reply ends its call here, and its sender is told to let go.
void Core::refuse_arrival(Path& path, IncomingTransfer* transfer, OutgoingCall* call, wire::TransferId id, Code code,
                          Instant now) {
  if (transfer != nullptr) {
    if (transfer->has_arrival) drop_arrival(path, *transfer->arrival, now);
    --path.receiving;
    transfer->refusal = code;
    transfer->is_large = false;
    transfer->bytes = 0;
    admit(path, *transfer);
    return;
  }
  acknowledge_transfer(path, wire::Side::reply, id);
  // Whose bound it is that the reply exceeds.
  const bool is_bounded = call->max_reply < config.limits.message_bytes;
  fail_call(*call, code,
            code == Code::too_large && is_bounded ? kReplyTooLong
            : code == Code::too_large             ? "the reply is larger than this side's limit for large messages"
            : code == Code::timeout               ? "the peer lost the memory for its reply and did not ask for other"
                                                  : "there is no memory for the reply",
            now);
}

}  // namespace weir::engine
