// The callee's side: from the first byte of a request to the acknowledgement of its reply. Per slot only the last
// generation and its transfer are kept: a higher generation retires them, an equal or lower one is a duplicate, so no
// request runs twice (docs/protocol.md, rules T-4 to T-9).
#include <algorithm>
#include <cstring>

#include "buffer/numa.h"
#include "engine/core.h"

namespace weir::engine {

using transfer::Reassembly;
using State = IncomingTransfer::State;

namespace {

constexpr std::size_t kMaxOwedFrames = 4'096;  // to one path, with which it may open another large message

// Whether a large request of this pattern is for such a handler.
bool fits(Pattern pattern, const Handler& handler) {
  if (handler.takes_records) return pattern == Pattern::put;
  return pattern == Pattern::unary || pattern == Pattern::broadcast;
}

std::string_view sentence_of_refusal(Code code) {
  switch (code) {
    case Code::too_large:
      return "the request is larger than the peer takes";
    case Code::unknown_method:
      return "nobody serves this method there";
    case Code::overloaded:
      return "the peer has no memory for the request";
    case Code::timeout:
      return "the request's data did not arrive in time";
    default:
      return "the peer refused the request";
  }
}

}  // namespace

IncomingSlot* Core::new_incoming_slot(Path& path, std::uint32_t slot) {
  if (slot >= config.limits.calls_per_peer) return nullptr;
  // Not twice as many, as a vector would by itself: a table that is half empty would show in the price of a call.
  const std::size_t size = path.incoming.size();
  const std::size_t grown =
      std::min<std::size_t>(std::max<std::size_t>({slot + 1, size + size / 4, size + 8}), config.limits.calls_per_peer);
  path.incoming.reserve(grown);
  path.incoming.resize(grown);
  return &path.incoming[slot];
}

Core::Verdict Core::on_request(Path& path, const wire::RequestFrame& frame, detail::Pin* buffer, Instant now) {
  const wire::MessagePart& part = frame.part;
  IncomingSlot* slot = incoming_slot(path, part.id.slot);
  if (slot == nullptr) return Verdict::violation;
  if (part.id.generation <= slot->generation) [[unlikely]] {
    IncomingTransfer* transfer = slot->transfer;
    if (part.id.generation < slot->generation || transfer == nullptr || transfer->state != State::receiving ||
        transfer->has_arrival || transfer->reassembly == nullptr) {
      ++events.counters.requests_duplicate;
      // The sender believes in a transfer that is over. If it is a late copy, this answer finds nothing and is ignored.
      if (transfer == nullptr || part.id.generation < slot->generation) {
        if (path.again.size() < 64) {
          path.again.push({.slot = part.id.slot,
                           .kind = static_cast<std::uint8_t>(SentKind::flow_reset),
                           .generation = part.id.generation});
        }
      }
      return Verdict::fine;
    }
    Reassembly& reassembly = *transfer->reassembly;
    // The whole may come after some of its fragments: it was sent first, then cut for a smaller MTU.
    if (!reassembly.fits(part.total, part.header_bytes) || !reassembly.add(part.offset, part.bytes)) {
      return Verdict::violation;
    }
    if (!reassembly.complete()) return Verdict::fine;
    if (transfer->is_large) return begin_arrival_of(path, *transfer, reassembly.bytes(), now);
    --path.receiving;
    admit(path, *transfer);
    return Verdict::fine;
  }
  const std::uint8_t level = level_of(frame.depth);
  const std::uint32_t cost = token::request_cost(part.total);
  // Nobody cuts what fits into the smallest packet, and a reassembly costs far more than such a request.
  if (!part.is_whole() && part.total < kSmallestCutBytes) return Verdict::violation;
  if (frame.is_large && part.header_bytes != 0) return Verdict::violation;
  if (part.total > config.limits.inline_bytes) return Verdict::violation;
  // Unacknowledged replies of others can use up the slabs; that is no fault of this peer's.
  if (incoming.live() == incoming.max_objects() || reassemblies.live() == reassemblies.max_objects()) [[unlikely]]
    return Verdict::not_now;
  // Each makes us say something; to a peer that acknowledges nothing we owe only so much.
  if (frame.is_large && path.again.size() >= kMaxOwedFrames) [[unlikely]]
    return Verdict::not_now;
  switch (path.accounts[level].on_received(cost)) {
    case token::CreditAccount::Receipt::taken:
      break;
    case token::CreditAccount::Receipt::no_room:
      on_blocked(path, {.level = level, .priority = frame.priority, .needed = path.accounts[level].received() + cost},
                 now);
      touch(path);  // the answer tells the sender that we are there
      if (path.accounts[level].on_received(cost) != token::CreditAccount::Receipt::taken) return Verdict::not_now;
      break;
    case token::CreditAccount::Receipt::violation:
      return Verdict::violation;
  }
  if (slot->transfer != nullptr) retire(path, *slot);
  IncomingTransfer* transfer = incoming.acquire();
  slot->generation = part.id.generation;
  path.last_incoming = std::max(path.last_incoming, part.id.generation);
  path.note_use(now);
  slot->transfer = transfer;
  ++path.incoming_live;
  ++events.counters.requests_received;
  events.counters.payload_bytes_received += part.total;
  transfer->path = path.id;
  transfer->caller = path.caller;
  transfer->packed_id = part.id.packed();
  transfer->delivery.method = frame.method;
  transfer->max_reply = frame.max_reply;
  transfer->priority = frame.priority;
  transfer->depth = frame.depth;
  transfer->deadline = now + std::chrono::microseconds(frame.time_left_us);
  transfer->cost = cost;
  transfer->bytes = part.total;
  transfer->header_bytes = part.header_bytes;
  transfer->is_large = frame.is_large;
  if (part.is_whole()) [[likely]] {
    if (frame.is_large) [[unlikely]] {
      ++path.receiving;
      return begin_arrival_of(path, *transfer, part.bytes, now);
    }
    transfer->delivery.request = part.bytes.data();
    transfer->delivery.pin = buffer;
    admit(path, *transfer);
    return Verdict::fine;
  }
  ++path.receiving;
  transfer->reassembly = reassemblies.acquire(blocks.acquire(part.total), part.total, part.header_bytes);
  return transfer->reassembly != nullptr && transfer->reassembly->add(part.offset, part.bytes) ? Verdict::fine
                                                                                               : Verdict::violation;
}

// The opening of a large request is there.
Core::Verdict Core::begin_arrival_of(Path& path, IncomingTransfer& transfer, ByteSpan opening, Instant now) {
  Reassembly* const reassembly = std::exchange(transfer.reassembly, nullptr);
  const Verdict verdict = begin_arrival(path, &transfer, nullptr, {transfer.slot, transfer.generation}, opening, now);
  if (reassembly != nullptr) reassemblies.release(reassembly);
  return verdict;
}

bool Core::takes_records(const IncomingTransfer& transfer) const {
  const auto found = methods.find(transfer.delivery.method);
  return found != methods.end() && found->second.handler.takes_records;
}

// What can be said about a large request before its data: why it would be refused, or whose handler runs it, and the
// node that its memory is wished for on.
Result<int> Core::check_opening(IncomingTransfer& transfer, const Opening& opening) {
  if (closed) return std::unexpected(Error(Code::refused, ""));
  if (transfer.depth > kMaxDepth) return std::unexpected(Error(Code::overloaded, ""));
  const auto found = methods.find(transfer.delivery.method);
  if (found == methods.end()) return std::unexpected(Error(Code::unknown_method, ""));
  const Handler& handler = found->second.handler;
  const auto invalid = [](std::string_view sentence) {
    return std::unexpected(Error(Code::invalid_argument, std::string(sentence)));
  };
  if (!fits(opening.pattern, handler)) return invalid("a large request of this pattern is not for this method");
  if (handler.admit == nullptr) return -1;
  const Result<Route> route = handler.admit(handler.context, transfer, opening);
  transfer.is_final = true;  // unless it passes, or may soon
  if (!route) return std::unexpected(route.error());
  if (route->numa_node < -1 || route->numa_node >= buffer::kMaxNumaNodes)
    return invalid("the request was routed to a NUMA node that no machine has");
  if (route->method != 0) {
    const auto target = methods.find(route->method);
    if (target == methods.end()) {
      transfer.is_final = false;
      return std::unexpected(Error(Code::unknown_method, "the request was routed there to the method \"" + route->name +
                                                             "\", which nobody serves"));
    }
    if (handler.takes_records || target->second.handler.takes_records)
      return invalid("no request is routed to a put, nor a put to another method");
    transfer.delivery.method = route->method;  // whose own admit() is not asked: no route leads to another
  }
  transfer.is_final = false;
  return route->numa_node;
}

void Core::queue_delivery(IncomingTransfer& transfer) {
  if (transfer.reassembly != nullptr) {
    transfer.delivery.request = transfer.reassembly->bytes().data();
    transfer.delivery.pin = nullptr;
  }
  ++requests_queued;
  transfer.state = State::queued;
  transfer.next = nullptr;
  const unsigned level = transfer.priority;
  if (delivery_levels & (1u << level)) {
    deliveries_last[level]->next = &transfer;
  } else {
    deliveries[level] = &transfer;
    delivery_levels |= 1u << level;
  }
  deliveries_last[level] = &transfer;
}

bool Core::on_cancel_frame(Path& path, const wire::CancelFrame& frame, Instant) {
  IncomingSlot* slot = incoming_slot(path, frame.id.slot);
  if (slot == nullptr || frame.level >= token::kLevels) return false;
  if (frame.id.generation < slot->generation) return true;
  if (slot->transfer != nullptr) retire(path, *slot);
  if (frame.id.generation == slot->generation) return true;
  // It overtook its request, which finds it done. The sender has spent credit on it all the same.
  slot->generation = frame.id.generation;
  path.last_incoming = std::max(path.last_incoming, frame.id.generation);
  const std::uint32_t cost = token::request_cost(frame.total);
  switch (path.accounts[frame.level].on_received(cost)) {
    case token::CreditAccount::Receipt::taken:
      break;
    case token::CreditAccount::Receipt::no_room:
      path.accounts[frame.level].forgive(cost);  // nothing to keep: it takes no room
      return true;
    case token::CreditAccount::Receipt::violation:
      return false;
  }
  give_credit(path, frame.level, cost);
  return true;
}

// The caller no longer wants what this slot holds.
void Core::retire(Path& path, IncomingSlot& slot) {
  IncomingTransfer& transfer = *std::exchange(slot.transfer, nullptr);
  --path.incoming_live;
  switch (transfer.state) {
    case State::receiving:
    case State::waiting:
      if (transfer.state == State::receiving) {
        --path.receiving;
        if (transfer.has_arrival) drop_arrival(path, *transfer.arrival, path.last_received);
      }
      finish_credit(transfer);
      release_incoming(transfer);
      break;
    case State::queued:
    case State::running:
      // Its credit comes back when the handler is done: until then it is work and memory.
      transfer.state = transfer.state == State::queued ? State::queued : State::orphaned;
      transfer.cancelled.store(true, std::memory_order_relaxed);
      events.moved(path.id, wire::TransferId{transfer.slot, transfer.generation}.packed(),
                   event::TransferStage::cancelled, true);
      break;
    case State::replying:
      if (!transfer.reply_is_large || !transfer.opening_acked) --path.replying;
      if (transfer.hook.queued) path.replies.remove(transfer);
      release_incoming(transfer);
      break;
    case State::orphaned:
      break;
  }
}

void Core::release_incoming(IncomingTransfer& transfer, Path* path) {
  if (transfer.state == State::waiting) stop_waiting(*path, transfer);
  if (transfer.reassembly != nullptr) reassemblies.release(transfer.reassembly);
  if (transfer.reply_is_large) [[unlikely]]
    drop_large_reply(transfer);
  if (transfer.is_large && transfer.delivery.pin != nullptr &&
      (transfer.state == State::waiting || transfer.state == State::queued)) [[unlikely]] {
    detail::unpin(transfer.delivery.pin);  // nobody will read it
  }
  if (transfer.block != nullptr) detail::unpin(transfer.block);
  if (transfer.answer_room != 0) give_answer_room(transfer, path, 0);
  if (path == nullptr && has_identity()) [[unlikely]] {
    if (Member* const member = member_left_by(transfer)) forget_if_unused(*member);  // this may have been its last
  }
  incoming.release(&transfer);
}

Path* Core::path_of(const IncomingTransfer& transfer) {
  Path* path = find_path(transfer.path);
  return path != nullptr && path->caller == transfer.caller ? path : nullptr;  // numbers come again
}

void Core::dispatch(IncomingTransfer& transfer, Instant now) {
  if (transfer.cancelled.load(std::memory_order_relaxed)) [[unlikely]] {
    finish_credit(transfer);
    release_incoming(transfer);
    return;
  }
  if (transfer.delivery.method != last_method || last_handler == nullptr) {
    const auto found = methods.find(transfer.delivery.method);
    last_method = transfer.delivery.method;
    last_handler = found == methods.end() ? nullptr : &found->second.handler;
  }
  transfer.state = State::running;
  const auto refuse = [&](Code code, std::string_view sentence) { answer_error(transfer, code, false, sentence, now); };
  if (transfer.refusal != Code{}) [[unlikely]] {
    if (transfer.block == nullptr) return refuse(transfer.refusal, sentence_of_refusal(transfer.refusal));
    return refuse(transfer.refusal, {reinterpret_cast<const char*>(transfer.block->bytes()), transfer.header_bytes});
  }
  if (closed) return refuse(Code::refused, "the peer is closing");
  if (transfer.depth > kMaxDepth) return refuse(Code::overloaded, "calls are nested more than four deep");
  if (last_handler == nullptr) return refuse(Code::unknown_method, "nobody serves this method there");
  ++events.counters.requests_dispatched;
  events.moved(transfer.path, wire::TransferId{transfer.slot, transfer.generation}.packed(),
               event::TransferStage::dispatched, true);
  // The request's bytes are the handler's until it returns, also if it answers before.
  detail::Pin* kept = transfer.block;
  if (transfer.reassembly != nullptr) kept = transfer.reassembly->block();
  if (transfer.is_large) [[unlikely]] {
    // Whoever wants to read it takes a reference; ours ends here.
    detail::Pin* const landing = transfer.delivery.pin;
    last_handler->run(last_handler->context, transfer, now);
    detail::unpin(landing);
    return;
  }
  if (kept == nullptr) [[likely]]
    return last_handler->run(last_handler->context, transfer, now);
  detail::pin(kept);
  last_handler->run(last_handler->context, transfer, now);
  detail::unpin(kept);
}

std::size_t Core::deliver(Instant now) {
  std::size_t delivered = 0;
  if (requests_waiting != 0) [[unlikely]] {
    for (std::uint8_t level = 0; level < token::kLevels; ++level) serve_answer_line(level);
  }
  while (delivery_levels != 0) {
    const auto level = static_cast<unsigned>(std::countr_zero(delivery_levels));
    IncomingTransfer* transfer = deliveries[level];
    delivery_levels &= ~(1u << level);
    while (transfer != nullptr) {
      IncomingTransfer* next = transfer->next;  // the handler may answer, and so release it
      dispatch(*transfer, now);
      ++delivered;
      if (fork_guard.is_in_child()) [[unlikely]]
        return delivered;  // the handler forked, and returned in the child
      transfer = next;
    }
  }
  requests_queued = 0;  // with those that found room for their answers meanwhile
  // One round: what completions submit and cancel comes next time, or a loop of failing calls would never end.
  completing.swap(completions);
  std::vector<transfer::Block*> told = std::exchange(sentences, {});
  for (const Completion& done : completing) {
    if (done.is_sent_only) [[unlikely]] {
      config.on_sent(*done.call);
      continue;
    }
    const transfer::Outcome outcome{.failed = done.failed,
                                    .code = done.code,
                                    .may_have_run = done.may_have_run,
                                    .sentence = done.sentence != nullptr ? done.sentence : "",
                                    .bytes = {done.bytes, done.size},
                                    .header_bytes = done.header_bytes,
                                    .pin = done.reassembly != nullptr ? done.reassembly->block() : done.pin,
                                    .landing = done.landing};
    done.call->complete(*done.call, outcome);
    if (fork_guard.is_in_child()) [[unlikely]]
      return delivered;
    if (done.landing != nullptr) [[unlikely]]
      detail::unpin(done.landing);
    if (done.reassembly != nullptr) reassemblies.release(done.reassembly);
    ++delivered;
  }
  completing.clear();
  for (transfer::Block* sentence : told) detail::unpin(sentence);
  return delivered;
}

}  // namespace weir::engine
