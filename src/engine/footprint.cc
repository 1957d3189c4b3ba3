#include "engine/footprint.h"

#include "engine/core.h"

namespace weir::engine {

namespace {

constexpr std::size_t kCallerBytes = sizeof(transfer::KnownCaller) + 64 + 64;  // with address and name
constexpr std::size_t kKeyScheduleBytes = 8 * 1024;  // of one path: at most two to send and three to open with

// A received request is charged its bytes and token::kRequestOverhead. In fragments it takes the next size class of
// blocks, a Reassembly and its place; this is the worst ratio of the two.
constexpr std::size_t kWorstRequestRatio = 8;

}  // namespace

Footprint footprint_of(const Limits& limits) {
  const std::size_t requests =
      (limits.request_bytes + (token::kLevels - 1) * limits.nested_request_bytes) * kWorstRequestRatio;
  const std::size_t replies = (limits.reply_bytes / limits.inline_bytes + 1) * answer_bytes_of(limits.inline_bytes + 2);
  const std::size_t large =
      buffer::landing_memory(limits.large_request_bytes + (token::kLevels - 1) * limits.nested_large_request_bytes +
                             limits.large_reply_bytes + buffer::landing_cost(limits.message_bytes));
  return {.message_bytes = requests + limits.answer_bytes + replies + large,
          .transfer_bytes = kMaxTransfers * sizeof(IncomingTransfer) + kMaxReassemblies * sizeof(transfer::Reassembly) +
                            kMaxArrivals * (sizeof(transfer::Arrival) + buffer::kLargestHeaderBytes) +
                            kMaxWriters * sizeof(transfer::Writer) + kMaxRegions * sizeof(token::Region),
          .path_bytes = sizeof(Path) + sizeof(Peer) + kCallerBytes + kKeyScheduleBytes + sizeof(WaitingRequests) +
                        (token::kLevels - 1) * sizeof(token::CreditAccount) +
                        limits.calls_per_peer * sizeof(IncomingSlot) +
                        recovery::SentPackets::kDefaultBound * sizeof(recovery::SentPacket) +
                        3 * FrameRing::kMaxFrames * sizeof(SentFrame) + sizeof(LargePath) + sizeof(Member) +
                        sizeof(token::SenderAccount) + peer::ReplayWindow::kLargestBits / 8};
}

}  // namespace weir::engine
