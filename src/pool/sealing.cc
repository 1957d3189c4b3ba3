#include "pool/sealing.h"

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/fork_guard.h"
#include "buffer/buffer_pool.h"
#include "buffer/holds.h"
#include "buffer/landing.h"
#include "buffer/seal.h"
#include "crypto/entropy.h"
#include "engine/reply_bound.h"
#include "pool/gate.h"

namespace weir::pool {
namespace {

// A thread's next keys. One question to the system for many of them; each is wiped as it is handed out.
struct KeyStock {
  std::array<crypto::KeyBytes, 32> keys{};
  std::size_t left = 0;
  ForkGuard fork_guard;  // a child must not use its parent's keys again

  ~KeyStock() { wipe(); }
  void wipe() {
    for (crypto::KeyBytes& key : keys) crypto::wipe(key);
  }
};

}  // namespace

crypto::KeyBytes next_data_key() {
  thread_local KeyStock stock;
  if (stock.left == 0 || stock.fork_guard.is_in_child()) {
    crypto::SystemEntropy entropy;
    entropy.fill(std::as_writable_bytes(std::span{stock.keys}));
    stock.left = stock.keys.size();
    stock.fork_guard = {};
  }
  crypto::KeyBytes& next = stock.keys[--stock.left];
  const crypto::KeyBytes key = next;
  crypto::wipe(next);
  return key;
}

Result<Payload> seal_into(Buffer room, ByteSpan text) {
  crypto::KeyBytes key = next_data_key();
  Result<Payload> payload = buffer::seal_into(std::move(room), text, key, buffer::thread_key());
  crypto::wipe(key);
  return payload;
}

Result<buffer::Sealed*> seal_text(Gate& gate, ByteSpan text) {
  Result<Buffer> room = gate.payloads->try_allocate(text.size());
  if (!room) {
    if (room.error().code() != Code::overloaded) return std::unexpected(std::move(room).error());
    return std::unexpected(Error(Code::overloaded,
                                 "the message does not fit into what is left of Limits::buffer_bytes: raise it, or "
                                 "wait for memory with Pool::allocate() and send what you sealed"));
  }
  Result<Payload> payload = seal_into(*std::move(room), text);
  if (!payload) return std::unexpected(std::move(payload).error());
  buffer::Sealed* const sealed = payload->sealed();
  return buffer::lend(*sealed, buffer::pieces_of(*sealed, 0, sealed->bytes));
}

Result<void> check_large(const Limits& limits, const LargeSize& size) {
  const std::uint64_t bytes = size.body_bytes + size.header_bytes;
  if (bytes > size.max_reply && size.max_reply != wire::kAnyReply) {
    return std::unexpected(engine::reply_too_long(bytes, size.max_reply));
  }
  if (size.body_bytes > limits.message_bytes) {
    return std::unexpected(
        Error(Code::too_large, "the " + std::string(size.what) + " has " + std::to_string(size.body_bytes) +
                                   " bytes, and Limits::message_bytes is " + std::to_string(limits.message_bytes)));
  }
  if (size.header_bytes > buffer::kLargestHeaderBytes) {
    return std::unexpected(Error(Code::too_large, "the header of a " + std::string(size.what) +
                                                      " larger than Limits::inline_bytes has at most " +
                                                      std::to_string(buffer::kLargestHeaderBytes) + " bytes, not " +
                                                      std::to_string(size.header_bytes) +
                                                      ": move some of it into the body"));
  }
  return {};
}

}  // namespace weir::pool
