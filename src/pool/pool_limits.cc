// What a pool says about its bounds.
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/footprint.h"
#include "link/receive_buffer.h"
#include "pool/pool_state.h"
#include "transfer/block_pool.h"

namespace weir::detail {
namespace {

// What a message of this size takes if it does not fit into its record.
std::size_t block_bytes(std::size_t message_bytes) {
  for (const std::size_t capacity : transfer::BlockPool::kClassBytes) {
    if (message_bytes <= capacity) return capacity + transfer::Block::kHeaderBytes;
  }
  return transfer::BlockPool::kMaxBlockBytes + transfer::Block::kHeaderBytes;
}

}  // namespace

std::string PoolState::limits() const {
  const Limits& limits = config_.limits;
  const std::size_t block = block_bytes(limits.inline_bytes);
  const std::size_t of_calls = std::size_t{limits.queued_calls} * (sizeof(CallRecord) + block);
  const engine::Footprint footprint = engine::footprint_of(limits);
  const std::size_t received = limits.receive_buffers * link::ReceiveBuffer::kCapacity;
  const std::size_t of_messages = footprint.message_bytes + received;
  const std::size_t of_peers = footprint.total(limits.peers) + received;
  const std::size_t posts_per_worker = posts_.size() / crew_->size();  // one to listen, and maybe one to call
  std::string text;
  const auto line = [&](const std::string& name, std::uint64_t value) {
    text += name + ": " + std::to_string(value) + "\n";
  };
  line("workers", crew_->size());
  line("inline_bytes", limits.inline_bytes);
  line("calls_per_peer", limits.calls_per_peer);
  line("queued_calls per worker", limits.queued_calls);
  line("peers per worker", limits.peers);
  line("request_bytes per worker", limits.request_bytes);
  line("request_bytes_per_peer", limits.request_bytes_per_peer);
  line("nested_request_bytes per level and worker", limits.nested_request_bytes);
  line("answer_bytes per worker", limits.answer_bytes);
  line("reply_bytes per worker", limits.reply_bytes);
  line("message_bytes", limits.message_bytes);
  line("large_request_bytes per worker", limits.large_request_bytes);
  line("nested_large_request_bytes per level and worker", limits.nested_large_request_bytes);
  line("large_reply_bytes per worker", limits.large_reply_bytes);
  line("large_bytes_per_peer", limits.large_bytes_per_peer);
  line("buffer_bytes", limits.buffer_bytes);
  line("receive_buffers per worker, 65536 bytes each", limits.receive_buffers);
  for (std::size_t priority = 0; priority < 8; ++priority) {
    line("submission_ring[" + std::to_string(priority) + "] per thread and worker", limits.submission_ring[priority]);
  }
  line("executor_queue per worker and priority", limits.executor_queue);
  std::size_t of_handshakes = 0;
  if (handshaker_) {
    constexpr std::size_t kCredentialBytes = 512, kHandshakeBytes = 112 * 1024;  // as tests measure them
    line("credentials, 512 bytes each", limits.credentials);
    line("handshakes_in, 114688 bytes each", limits.handshakes_in);
    line("handshakes_out, 114688 bytes each", limits.handshakes_out);
    of_handshakes = limits.credentials * kCredentialBytes +
                    (std::size_t{limits.handshakes_in} + limits.handshakes_out) * kHandshakeBytes;
    line("most bytes of credentials and handshakes", of_handshakes);
  }
  if (!posts_.empty()) text += posts_.front()->limits_text();
  if (!text.empty() && text.back() != '\n') text += '\n';
  line("most bytes of messages that all peers together can make one worker hold", of_messages * posts_per_worker);
  line("most bytes of bookkeeping that one peer can make one worker hold", footprint.path_bytes);
  line("most bytes that all peers together can make one worker hold", of_peers * posts_per_worker);
  line("most bytes that all peers together can make this process hold", of_peers * posts_.size() + of_handshakes);
  line("most bytes that all workers can hold", (of_peers + of_calls) * posts_.size() + of_handshakes);
  line("most bytes of buffers and payloads", limits.buffer_bytes / 4 * 5);
  if (config_.buffers.memory == BufferMemory::heap) {
    line("most bytes of them and of large messages that are kept for the next ones", config_.buffers.keep_bytes);
  } else {
    text +=
        "most bytes of them and of large messages that are kept for the next ones: all that were ever in use at "
        "once, in whole mappings of 64 MiB and more\n";
  }
  line("most bytes that each other thread can add with its calls", of_calls * posts_.size());
  return text;
}

}  // namespace weir::detail
