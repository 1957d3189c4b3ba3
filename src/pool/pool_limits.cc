// What a pool says about its bounds.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "causality/map.h"
#include "engine/footprint.h"
#include "handshake/broker.h"
#include "handshake/caller_names.h"
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

// "16 KiB"
std::string in_units(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes) / 1024;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char number[32];
  const bool is_whole = value == std::floor(value);
  std::snprintf(number, sizeof number, is_whole ? "%.0f" : "%.1f", value);
  return std::string(number) + " " + kUnits[unit];
}

// "16384 bytes (16 KiB)"
std::string in_bytes(std::uint64_t bytes) {
  std::string text = std::to_string(bytes) + " bytes";
  if (bytes < 1024) return text;
  return text + " (" + in_units(bytes) + ")";
}

// What a part of the whole is bounded by.
struct Share {
  const char* knobs;
  std::uint64_t bytes;
};

// What to lower, the largest first, until the rest fits into the memory that there is.
std::string knobs_to_turn(std::vector<Share> shares, std::uint64_t total, std::uint64_t memory) {
  std::ranges::sort(shares, std::greater{}, &Share::bytes);
  std::string text = in_units(total) + " is more than the " + in_units(memory) +
                     " of this machine. Should it be less, lower (of Config::limits) ";
  for (std::size_t i = 0; i < shares.size() && total > memory; ++i) {
    total -= std::min(total, shares[i].bytes);
    text.append(i == 0 ? "" : ", then ").append(shares[i].knobs).append(" (").append(in_units(shares[i].bytes) + ")");
  }
  return text;
}

// 0: not known.
std::uint64_t memory_of_this_machine() {
  const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && bytes > 0 ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(bytes) : 0;
}

// Lines under headings.
class Page {
 public:
  void heading(std::string_view text) { text_.append(text_.empty() ? "" : "\n").append(text).append("\n"); }
  void line(std::string_view name, std::string_view value) {
    text_.append("  ").append(name).append(": ").append(value).append("\n");
  }
  void bytes(std::string_view name, std::uint64_t value) { line(name, in_bytes(value)); }
  void count(std::string_view name, std::uint64_t value, std::string_view of) {
    line(name, std::to_string(value).append(" ").append(of));
  }
  // Lines that somebody else made.
  void lines(std::string_view text) {
    while (!text.empty()) {
      const std::string_view one = text.substr(0, text.find('\n'));
      text_.append("  ").append(one).append("\n");
      text.remove_prefix(std::min(text.size(), one.size() + 1));
    }
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

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
  std::size_t of_handshakes = 0;
  // The workers of a shared port copy datagrams for each other.
  const std::size_t of_forwards = forwarding_ ? worker::ForwardRing::kMostBytes : 0;
  Page page;
  page.heading("configured, with the names of Config::limits");
  page.line("workers", std::to_string(crew_->size()));
  page.bytes("inline_bytes", limits.inline_bytes);
  page.count("calls_per_peer", limits.calls_per_peer, "calls");
  page.count("queued_calls per worker", limits.queued_calls, "calls");
  page.count("peers per worker", limits.peers, "peers");
  page.bytes("request_bytes per worker", limits.request_bytes);
  page.bytes("request_bytes_per_peer", limits.request_bytes_per_peer);
  page.bytes("nested_request_bytes per level and worker", limits.nested_request_bytes);
  page.bytes("answer_bytes per worker", limits.answer_bytes);
  page.bytes("reply_bytes per worker", limits.reply_bytes);
  page.bytes("message_bytes", limits.message_bytes);
  page.bytes("large_request_bytes per worker", limits.large_request_bytes);
  page.bytes("nested_large_request_bytes per level and worker", limits.nested_large_request_bytes);
  page.bytes("large_reply_bytes per worker", limits.large_reply_bytes);
  page.bytes("large_bytes_per_peer", limits.large_bytes_per_peer);
  page.bytes("buffer_bytes", limits.buffer_bytes);
  page.count("receive_buffers per worker", limits.receive_buffers, "buffers of 65536 bytes");
  for (std::size_t priority = 0; priority < 8; ++priority) {
    page.count("submission_ring[" + std::to_string(priority) + "] per thread and worker",
               limits.submission_ring[priority], "calls");
  }
  page.count("executor_queue per member and priority", limits.executor_queue, "requests");
  if (executor_) {
    const int threads = config_.executor_threads;
    const int most = handshaker_ ? pool::Executor::most_of_one_member(threads) : threads;
    page.line(std::string("executor threads for handlers of one member (") +
                  (handshaker_ ? "a certificate)" : "a path, with a shared secret)"),
              std::to_string(most) + " of " + std::to_string(threads));
  }
  if (handshaker_) {
    constexpr std::size_t kHandshakeBytes = 112 * 1024, kCredentialBytes = 512 + 160;  // as tests measure them
    static_assert(kCredentialBytes == 512 + handshake::CallerNames::kBytesPerCredential);
    page.count("credentials", limits.credentials, "peers, 672 bytes each");
    page.count("handshakes_in", limits.handshakes_in, "handshakes, 114688 bytes each");
    page.count("handshakes_out", limits.handshakes_out, "peers, with two handshakes each, 114688 bytes a handshake");
    const std::size_t ours = handshake::Broker::kHandshakesPerPlace * limits.handshakes_out;
    of_handshakes = limits.credentials * kCredentialBytes + handshake::CallerNames::kMaxListBytes +
                    (std::size_t{limits.handshakes_in} + ours) * kHandshakeBytes;
  }
  if (nic_ != nullptr) {
    page.line("nic_bits_per_s",
              std::to_string(config_.nic_bits_per_s) + " bits per second, for all workers and pools at " +
                  (nic_->interface.empty() ? std::string("addresses of no known interface") : nic_->interface));
    page.bytes("most bytes that they send there at once",
               std::max<std::uint64_t>(nic_->shaper->depth(), config_.datagram_bytes));
  }
  page.heading("in force at each worker, also after what the kernel gave");
  if (!posts_.empty()) page.lines(posts_.front()->limits_text());
  page.line("socket buffers", clamped_buffers_.empty() ? in_bytes(config_.socket_buffer_bytes) : clamped_buffers_);
  page.count("tracked calls, all pools of this process", causality::Map::kMaxTracked, "calls");
  page.count("what calls come after, all pools of this process", causality::Map::kMaxWaiting, "dependencies");
  page.heading("memory that this comes to, at most");
  if (handshaker_) page.bytes("most bytes of credentials and handshakes", of_handshakes);
  if (forwarding_) page.bytes("most bytes of datagrams that other workers hand to one worker", of_forwards);
  page.bytes("most bytes of messages that all peers together can make one worker hold",
             of_messages * posts_per_worker + of_forwards);
  page.bytes("most bytes of bookkeeping that one peer can make one worker hold", footprint.path_bytes);
  page.bytes("most bytes that all peers together can make one worker hold", of_peers * posts_per_worker + of_forwards);
  const std::size_t of_all_peers = of_peers * posts_.size() + of_forwards * crew_->size() + of_handshakes;
  page.bytes("most bytes that all peers together can make this process hold", of_all_peers);
  const std::size_t of_all = of_all_peers + of_calls * posts_.size();
  page.bytes("the same, and with the most calls of its own that wait", of_all);
  if (const std::uint64_t memory = memory_of_this_machine(); memory != 0 && of_all > memory) {
    const std::size_t posts = posts_.size(), nested = token::kLevels - 1;
    page.line("note", knobs_to_turn({{"peers or calls_per_peer", limits.peers * footprint.path_bytes * posts},
                                     {"queued_calls", of_calls * posts},
                                     {"answer_bytes", limits.answer_bytes * posts},
                                     {"reply_bytes", limits.reply_bytes * posts},
                                     // Many small ones take eight times their bytes: engine::footprint_of().
                                     {"request_bytes", 8 * limits.request_bytes * posts},
                                     {"nested_request_bytes", 8 * nested * limits.nested_request_bytes * posts},
                                     {"large_request_bytes", limits.large_request_bytes * posts},
                                     {"nested_large_request_bytes", nested * limits.nested_large_request_bytes * posts},
                                     {"large_reply_bytes", limits.large_reply_bytes * posts},
                                     {"receive_buffers", received * posts},
                                     {"credentials or handshakes_in", of_handshakes}},
                                    of_all, memory));
  }
  page.bytes("most bytes of buffers and payloads", limits.buffer_bytes / 4 * 5);
  constexpr std::string_view kKept = "most bytes of them and of large messages that are kept for the next ones";
  if (config_.buffers.memory == BufferMemory::heap) {
    page.bytes(kKept, config_.buffers.keep_bytes);
  } else {
    page.line(kKept, "all that were ever in use at once, in whole mappings of 64 MiB and more");
  }
  page.bytes("most bytes that each other thread can add with its calls", of_calls * posts_.size());
  return page.take();
}

}  // namespace weir::detail
