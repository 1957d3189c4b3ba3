#include "engine/footprint.h"

#include "engine/core.h"

namespace weir::engine {

namespace {

constexpr std::size_t kKeyScheduleBytes = 8 * 1024;  // of one path: at most two to send and three to open with

// A received request is charged its bytes and token::kRequestOverhead. In fragments it takes the next size class of
// blocks, a Reassembly and its place; this is the worst ratio of the two.
constexpr std::size_t kWorstRequestRatio = 8;

}  // namespace

Footprint footprint_of(const Limits& limits) {
  const std::size_t requests =
      (limits.request_bytes + (token::kLevels - 1) * limits.nested_request_bytes) * kWorstRequestRatio;
  const std::size_t replies = (limits.reply_bytes / limits.inline_bytes + 1) * answer_bytes_of(limits.inline_bytes + 2);
  return {.message_bytes = requests + limits.answer_bytes + replies,
          .transfer_bytes = kMaxTransfers * sizeof(IncomingTransfer) + kMaxReassemblies * sizeof(transfer::Reassembly),
          .path_bytes = sizeof(Path) + sizeof(Peer) + kKeyScheduleBytes + sizeof(WaitingRequests) +
                        (token::kLevels - 1) * sizeof(token::CreditAccount) +
                        limits.calls_per_peer * sizeof(IncomingSlot) +
                        recovery::SentPackets::kDefaultBound * sizeof(recovery::SentPacket) +
                        2 * FrameRing::kMaxFrames * sizeof(SentFrame) + peer::ReplayWindow::kLargestBits / 8};
}

}  // namespace weir::engine
