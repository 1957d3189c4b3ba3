#include "pool/keep.h"

#include <cstring>

#include "pool/gate.h"

namespace weir::pool {

using transfer::IncomingTransfer;

namespace {

// A reference keeps a whole receive buffer from the link: worth it for large bodies only, and only while there are
// plenty. A message that was put together from fragments has a block of its own.
constexpr std::size_t kCopiedBytes = 4 * 1024;

}  // namespace

bool may_stay(ByteSpan bytes, detail::Pin* pin, const Gate& gate) {
  if (pin == nullptr || bytes.size() <= Body::kInlineBytes) return false;
  // Receive buffers have a longer header, so this is no byte of theirs.
  if (bytes.data() == reinterpret_cast<const std::byte*>(pin) + transfer::Block::kHeaderBytes) return true;
  return bytes.size() > kCopiedBytes && gate.buffers->in_use() < gate.buffers->max_buffers() / 2;
}

transfer::Block* copy_to_block(ByteSpan bytes, Gate& gate) {
  transfer::Block* block = gate.engine->blocks().acquire(bytes.size());
  std::memcpy(block->bytes(), bytes.data(), bytes.size());
  return block;
}

Body keep_bytes(ByteSpan bytes, detail::Pin* pin, Gate& gate) {
  if (bytes.size() <= Body::kInlineBytes) return Body(bytes);
  if (may_stay(bytes, pin, gate)) {
    detail::pin(pin);
    return Body(bytes, pin);
  }
  transfer::Block* block = copy_to_block(bytes, gate);
  return Body({block->bytes(), bytes.size()}, block);
}

void keep_request(IncomingTransfer& transfer, Gate& gate) {
  const ByteSpan bytes{transfer.delivery.request, transfer.bytes};
  if (bytes.size() <= IncomingTransfer::kInlineBytes) [[likely]] {
    // Over the pointer to them.
    if (!bytes.empty()) std::memcpy(transfer.inline_bytes, bytes.data(), bytes.size());
  } else if (may_stay(bytes, transfer.delivery.pin, gate)) {
    detail::pin(transfer.delivery.pin);
  } else {
    transfer::Block* const block = copy_to_block(bytes, gate);
    transfer.delivery.request = block->bytes();
    transfer.delivery.pin = block;
  }
}

Body take_kept(IncomingTransfer& transfer) {
  if (transfer.bytes <= IncomingTransfer::kInlineBytes) return Body({transfer.inline_bytes, transfer.bytes});
  return Body({transfer.delivery.request, transfer.bytes}, transfer.delivery.pin);
}

void drop_kept(IncomingTransfer& transfer) noexcept {
  if (transfer.bytes > IncomingTransfer::kInlineBytes) detail::unpin(transfer.delivery.pin);
}

}  // namespace weir::pool
