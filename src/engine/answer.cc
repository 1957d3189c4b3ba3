// The callee's side, second half: the reply, its credit, and the word that it has arrived.
#include <algorithm>
#include <cstring>

#include "engine/core.h"

namespace weir::engine {

using State = IncomingTransfer::State;

void Core::finish_credit_of_closed(const IncomingTransfer& transfer) {
  const std::uint8_t level = level_of(transfer);
  Member* const member = member_left_by(transfer);
  ledger.finish_closed(level, transfer.cost, member);
  if (member != nullptr) forget_if_unused(*member);
  announce_raised();
}

void Core::give_credit(Path& path, std::uint8_t level, std::uint32_t cost) {
  token::CreditAccount& account = path.accounts[level];
  ledger.finish(account, cost);
  if (account.should_announce()) {
    path.credit_levels_owed |= static_cast<std::uint8_t>(1u << level);
    touch(path);
  }
  if (ledger.has_raised()) [[unlikely]]
    announce_raised();
}

// Somebody else may have been waiting for what was freed. A path that waited could send no request: it is in use again
// (L-5).
void Core::announce_raised() {
  while (token::CreditAccount* account = ledger.take_raised()) {
    Path* const path = find_path(account->owner());
    if (path == nullptr) continue;
    path->note_use(events.now());
    owe_credit(*path);
  }
}

void Core::owe_credit(Path& path) {
  for (std::size_t level = 0; level < path.accounts.in_use(); ++level) {
    if (path.accounts[level].should_announce()) {
      path.credit_levels_owed |= static_cast<std::uint8_t>(1u << level);
      touch(path);
    }
  }
}

void Core::answer(IncomingTransfer& transfer, ByteSpan header, ByteSpan body, bool failed, Instant now) {
  const std::size_t bytes = header.size() + body.size();
  if (bytes > transfer.max_reply) [[unlikely]] {
    if (!failed) return answer_too_long(transfer, bytes, now);
  }
  Path* const path = path_of(transfer);
  finish_credit(transfer, path);
  if (path == nullptr || transfer.cancelled.load(std::memory_order_relaxed)) [[unlikely]]
    return release_incoming(transfer, path);
  transfer::Block* const request = std::exchange(transfer.block, nullptr);  // of one that had to wait
  std::byte* to = transfer.inline_bytes;
  if (bytes > IncomingTransfer::kInlineBytes) {
    transfer.block = blocks.acquire(bytes);
    to = transfer.block->bytes();
  }
  // Another thread may have put it in place already.
  if (!header.empty() && header.data() != to) std::memcpy(to, header.data(), header.size());
  if (!body.empty() && body.data() != to + header.size()) std::memcpy(to + header.size(), body.data(), body.size());
  // Only now: the answer may have been part of the request.
  if (transfer.reassembly != nullptr) reassemblies.release(std::exchange(transfer.reassembly, nullptr));
  if (request != nullptr) [[unlikely]]
    detail::unpin(request);
  // A failed reply begins with its code, which is no header to the caller.
  transfer.header_bytes = failed ? std::uint16_t{0} : static_cast<std::uint16_t>(header.size());
  transfer.reply_failed = failed;
  send_answer(*path, transfer, bytes, now);
}

// Its bytes are in place.
void Core::send_answer(Path& path, IncomingTransfer& transfer, std::size_t bytes, Instant now) {
  give_answer_room(transfer, &path, std::min<std::uint32_t>(answer_bytes_of(bytes), transfer.answer_room));
  transfer.bytes = static_cast<std::uint32_t>(bytes);
  transfer.sent_bytes = 0;
  transfer.state = State::replying;
  if (path.replying++ == 0) path.heard_of_replies = now;
  transfer.hook = {};
  path.replies.push_back(transfer, transfer.priority);
  ++events.counters.replies_sent;
  events.moved(path.id, wire::TransferId{transfer.slot, transfer.generation}.packed(), event::TransferStage::replied,
               true);
  touch(path);
}

void Core::answer_error(IncomingTransfer& transfer, Code code, bool may_have_run, std::string_view sentence,
                        Instant now) {
  const auto ran = transfer.is_final ? wire::Ran::never : may_have_run ? wire::Ran::maybe : wire::Ran::not_now;
  const std::byte head[2] = {static_cast<std::byte>(code), static_cast<std::byte>(ran)};
  const std::size_t room = longest_reply_message(transfer.max_reply, config.limits.inline_bytes) - sizeof(head);
  answer(transfer, head, as_bytes(sentence.substr(0, room)), true, now);
}

// The handler has run, but its caller does not accept so long a reply: it is not sent.
void Core::answer_too_long(IncomingTransfer& transfer, std::uint64_t bytes, Instant now) {
  const Error error = reply_too_long(bytes, transfer.max_reply);
  answer_error(transfer, error.code(), error.may_have_run(), error.message(), now);
}

void Core::on_reply_acked(Path& path, const SentFrame& frame, Instant now) {
  if (frame.slot >= path.incoming.size()) return;
  IncomingSlot& slot = path.incoming[frame.slot];
  if (slot.generation != frame.generation || slot.transfer == nullptr) return;
  IncomingTransfer& transfer = *slot.transfer;
  if (transfer.state != State::replying) return;
  path.heard_of_replies = now;
  path.note_use(now);
  if (transfer.opening_acked) return;  // a large one: its end is transfer_ack
  if (frame.length != transfer.bytes) [[unlikely]] {
    if (transfer.reassembly == nullptr) {
      transfer.reassembly = reassemblies.acquire(nullptr, static_cast<std::uint16_t>(transfer.bytes), std::uint16_t{0});
    }
    if (transfer.reassembly == nullptr) return;
    if (!transfer.reassembly->acknowledge(frame.offset, frame.length) || !transfer.reassembly->complete()) return;
  }
  if (transfer.reply_is_large) [[unlikely]] {
    transfer.opening_acked = true;
    --path.replying;
    return;
  }
  if (transfer.hook.queued) path.replies.remove(transfer);
  slot.transfer = nullptr;
  --path.incoming_live;
  --path.replying;
  release_incoming(transfer, &path);
}

}  // namespace weir::engine
