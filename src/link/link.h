// What carries datagrams. A link works in bursts, so that its virtual calls cost nothing per packet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "base/segment.h"
#include "link/receive_buffer.h"

namespace weir::link {

enum class Ecn : std::uint8_t { not_ect = 0, ect1 = 1, ect0 = 2, ce = 3 };

// Buffers that one receive() fills at most, and datagrams that one buffer yields at most. The kernel coalesces at
// most 128 datagrams today.
inline constexpr std::size_t kReceiveBuffers = 8;
inline constexpr std::size_t kDatagramsPerBuffer = 128;
inline constexpr std::size_t kReceiveBurst = kReceiveBuffers * kDatagramsPerBuffer;

// One received UDP datagram. Its bytes may be written (opened in place). They stay until recycle(), and longer if
// somebody took a reference to the buffer before.
struct Datagram {
  MutableByteSpan bytes;
  Address from;
  Ecn ecn = Ecn::not_ect;
  ReceiveBuffer* buffer = nullptr;
};

// Datagrams to one destination: equal segments, of which the last may be shorter. A segment size of 0 means that all
// of the bytes are one datagram. Any length is fine; the link splits what the kernel takes only in pieces.
struct Train {
  Address to;
  Ecn ecn = Ecn::not_ect;
  MutableByteSpan bytes;
  std::uint32_t segment_size = 0;
  // Instead of `bytes`: one datagram each, sent from where its two pieces are. None is empty, and all are as long as
  // the first, whatever segment_size says, but the last, which may be shorter.
  std::span<const Segment> segments;

  bool is_empty() const { return bytes.empty() && segments.empty(); }
};

enum class SendStatus : std::uint8_t {
  sent,
  would_block,  // no room in the socket buffer: keep the train and try again when the descriptor is writable
  too_big,      // larger than the local interface, or a path that the kernel knows of, allows
  unreachable,  // no route, or the host does not answer
  failed,       // refused for another reason (a firewall rule, an address of the other family)
};

// An ICMP destination-unreachable. Anybody can forge one: it counts only if the quoted bytes, which are the beginning
// of a datagram sent earlier, belong to a packet in flight.
struct Unreachable {
  static constexpr std::size_t kMaxQuoted = 32;

  Address who;               // where that datagram was going
  bool port_closed = false;  // the host is there, but nobody listens; otherwise the network or host is unreachable
  std::uint8_t quoted_size = 0;
  std::array<std::byte, kMaxQuoted> quoted{};

  ByteSpan quoted_bytes() const { return {quoted.data(), quoted_size}; }
};

// What the link got from the operating system, and what it has counted since.
struct LinkReport {
  std::string_view kind;  // "udp-linux", "udp-portable"

  // As a program asks for them. Linux doubles the figure for its bookkeeping; that is taken out again here.
  std::size_t receive_buffer_asked_bytes = 0;
  std::size_t receive_buffer_bytes = 0;
  std::size_t send_buffer_asked_bytes = 0;
  std::size_t send_buffer_bytes = 0;
  bool receive_buffer_clamped = false;
  bool send_buffer_clamped = false;

  bool segmentation_offload = false;  // UDP_SEGMENT; becomes false when a device refuses it
  bool receive_offload = false;       // UDP_GRO
  bool ecn_send = false;
  bool ecn_receive = false;
  bool unreachable_reports = false;  // take_unreachable() can ever return true
  std::size_t max_datagram_bytes = 0;

  std::uint64_t starved_receives = 0;     // receive() found no free buffer; the kernel keeps the datagrams
  std::uint64_t truncated_datagrams = 0;  // did not fit into a buffer and were dropped
  std::uint64_t stray_errors = 0;         // errors about earlier datagrams that a later call returned
  std::uint64_t offload_refusals = 0;     // trains that were sent segment by segment because UDP_SEGMENT failed
};

// One socket or simulated port. Owned by one worker and called by its thread only.
class Link {
 public:
  Link() = default;
  virtual ~Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Appends what has arrived, without blocking and without allocating: never beyond out.capacity(), of which at least
  // kDatagramsPerBuffer must be free (reserve kReceiveBurst for a full burst). Returns how many were appended. With no
  // free buffer nothing is taken from the socket, so nothing is lost but what its buffer cannot hold.
  virtual std::size_t receive(std::vector<Datagram>& out) = 0;

  // Ends the life of all datagrams returned so far, except in buffers that somebody else holds a reference to.
  virtual void recycle() = 0;

  // Sends in order and returns how many trains were consumed, each with its status. It stops at the first train that
  // would block; that one has status would_block if there is room for it, is not consumed, and its bytes or
  // segments are shortened to what was not sent yet; what they point to must stay until it is. A consumed train is
  // never sent again by the link, which has no use for its memory any more.
  virtual std::size_t send(std::span<Train> trains, std::span<SendStatus> statuses) = 0;

  // To be polled for reading, and for writing after would_block. -1 in simulation.
  virtual int descriptor() const = 0;
  virtual Address local() const = 0;

  // One report that arrived since; false when there is none left. Costs no system call unless a call failed since or
  // note_error() was called. Call until false: a report left in place keeps the descriptor's error condition raised.
  virtual bool take_unreachable(Unreachable& out) = 0;

  // The poller saw an error condition on the descriptor.
  virtual void note_error() = 0;

  virtual LinkReport report() const = 0;

  // In a forked child, where a link of its parent does nothing: closes this process's copy of the descriptor.
  virtual void close_in_child() {}
};

}  // namespace weir::link
