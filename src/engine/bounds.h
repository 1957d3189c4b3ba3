// Bounds: of an engine, that no configuration changes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/time.h"
#include "transfer/writer.h"

namespace weir::engine {

struct Bounds {
  static constexpr std::size_t kArenaBytes = 512 * 1024;
  static constexpr std::size_t kMaxTrainBytes = 64'000;                // below what one UDP_SEGMENT send takes
  static constexpr std::size_t kShortTrainBytes = 16 * 1024;           // while more urgent work may come
  static constexpr Duration kUrgencyMemory = std::chrono::seconds(1);  // so long it may come again
  static constexpr std::uint64_t kTrainsPerSecond = 4'096;  // a train is as long as the pacer's rate fills in this part
  static constexpr std::uint32_t kSmallRestPart = 4;        // of a message: less than this part of a full slice
  static constexpr int kOpenedPerSlice = 2;                 // records, at most
  static constexpr std::uint32_t kRestsTogether = 8;        // messages that a small rest waits for
  static constexpr std::size_t kMaxSegments = 64;
  static constexpr std::uint32_t kMaxTrainMessages = 256;     // so that the receiver starts before we are done
  static constexpr std::size_t kBaseDatagramBytes = 1'200;    // passes everywhere
  static constexpr std::uint32_t kExchangeWindow = 1u << 14;  // hellos answered and not yet followed up
  static constexpr std::uint32_t kSmallestCutBytes = 512;     // smaller messages never travel in fragments
  static constexpr std::uint32_t kMaxMethods = 1u << 16;
  static constexpr Duration kFirstHelloRetry = std::chrono::milliseconds(20);
  static constexpr Duration kLongestHelloRetry = std::chrono::milliseconds(500);
  static constexpr Duration kLongestRest = std::chrono::seconds(1);      // before an unreachable peer is tried again
  static constexpr Duration kCallRetry = std::chrono::milliseconds(20);  // a call that found its method not served
  static constexpr Duration kHandshakeFailedInterval = std::chrono::seconds(1);  // between two such events of a peer
  static constexpr Duration kScheduleIdle = std::chrono::seconds(1);  // then an idle path drops its key schedules
  static constexpr Duration kShortestBlockedRepeat = std::chrono::milliseconds(5);
  static constexpr Duration kLongestBlockedRepeat = std::chrono::milliseconds(200);
  static constexpr Duration kIdleBeforeEviction = std::chrono::milliseconds(10);  // no use of a path for so long
  static constexpr Duration kEvictionInterval = std::chrono::milliseconds(1);     // between two paths that are closed
  static constexpr Duration kDrainedIdle = std::chrono::milliseconds(100);  // then a path that was replaced is closed
  static constexpr std::uint32_t kUnknownPathsPerMillisecond = 16;          // answered at most
  static constexpr std::uint32_t kMaxHellosPerCredential = 3;  // to an address that has not answered (identity mode)
  static constexpr std::size_t kTellingBytes = 4;              // of an incarnation, in answers to `first` packets
  // Datagrams handed to other engines at the same port.
  static constexpr std::uint32_t kMemberForwardsPerMillisecond = 48;
  static constexpr std::uint32_t kStrangerForwardsPerMillisecond = 16;
  // Probe timeouts in a row, after which a path sends only probes on a link that it shares (N-13).
  static constexpr std::uint32_t kProbesOnlyTimeouts = 2;
  // ---- what a receiver sees of congestion ----
  static constexpr std::uint64_t kMostMissing = 64;      // packets between two that came: a peer may say any number
  static constexpr std::uint64_t kFirstPackets = 128;    // of a path, among which its peer searches for the MTU
  static constexpr std::uint64_t kMostProbesInARow = 4;  // for the MTU, among these
  // ---- addresses that change ----
  static constexpr Duration kAddressChangeInterval = std::chrono::milliseconds(10);  // between attempts on one path
  static constexpr Duration kShortestChallengeRepeat = std::chrono::milliseconds(16);
  static constexpr std::uint32_t kMaxChallenges = 5;  // of one attempt
  static constexpr std::uint64_t kAmplification = 3;  // bytes for each byte that came from an address not validated
  static constexpr std::size_t kChallengePacketBytes = 8 + 9 + 16;  // header, frame, tag

  static constexpr int kDeafSilences = 4;                // so long may a peer that is heard acknowledge nothing
  static constexpr std::uint32_t kRestartSuspicion = 2;  // probe timeouts in a row before a second hello

  // A socket is promised half of what the kernel really gave it, as far as the least that everybody must have allows: a
  // quarter to inline messages, another to large ones.
  static constexpr std::uint64_t inline_promise(std::uint64_t receive_buffer) { return receive_buffer / 4; }
  static constexpr std::uint64_t large_promise(std::uint64_t receive_buffer) { return receive_buffer / 4; }

  // ---- large messages ----
  static constexpr std::uint32_t kSmallestInFlightBytes = 4 * 1024;
  static constexpr std::uint64_t kLeastPartPerLife = 16;  // of a message, in a region's life, while others wait
  static constexpr Duration kLongestUnfetched = std::chrono::seconds(30);  // a large reply of which nothing more goes
  static constexpr std::uint64_t kLeastBytesPerLook = 1u << 20;  // of others, while one waits for memory at its caller
  static constexpr Duration kLongestReply = std::chrono::minutes(10);  // in any case
  static constexpr std::uint64_t kReplyPart = 4;  // of Limits::buffer_bytes: for one peer, when payloads are short
  static constexpr Duration kLongestUnasked = std::chrono::seconds(10);  // a message whose region was taken back
  static constexpr Duration kFirstPause = std::chrono::milliseconds(1);  // before the second loss asks; then doubled
  static constexpr std::uint8_t kMaxLostRegions = transfer::Writer::kMaxLostRegions;  // that one message survives
  static constexpr std::size_t kMaxDataSegments = 1'024;                              // in one collect()
  static constexpr unsigned kWriterSerialBits = 20;  // the rest of a frame's name is an offset of 44 bits
  static constexpr std::uint32_t kWriterSerialMask = (1u << kWriterSerialBits) - 1;
};

}  // namespace weir::engine
