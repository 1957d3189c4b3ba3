// Packer: writes the frames of one packet, most urgent first, as far as they fit. A message that fits into a packet of
// its own is not split unless allow_split() was called: then the rest of this packet takes a part of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/core.h"

namespace weir::engine {

// Owns nothing; lives for one packet.
class Packer {
 public:
  Packer(Core& core, Path& path, std::byte* begin, std::byte* limit, std::uint32_t max_messages, Instant now)
      : core_(core),
        path_(path),
        at_(begin),
        limit_(limit),
        room_when_empty_(static_cast<std::size_t>(limit - begin)),
        messages_left_(max_messages),
        now_(now) {}

  std::byte* at() const { return at_; }
  bool eliciting() const { return eliciting_; }
  bool full() const { return full_; }  // something did not fit
  // What did not fit may not follow now.
  bool is_last() const { return is_last_; }
  // Of the frame of the message that did not fit whole; 0: there is none.
  std::size_t next_bytes() const { return next_bytes_; }
  // Whether a part of that message fits here.
  bool may_split() const;
  // Go on with the next message, of which a part is enough.
  void allow_split() {
    split_ = true;
    full_ = false;
  }
  std::uint32_t messages_left() const { return messages_left_; }
  bool has_messages() const { return levels_ != 0; }
  unsigned levels() const { return levels_; }  // of the messages in it, a bit each
  std::uint64_t ack_largest() const { return ack_largest_; }

  void write_responses();
  void write_ack();
  void write_control();
  void write_again();
  void write_replies();
  void write_requests();

 private:
  std::size_t room() const { return static_cast<std::size_t>(limit_ - at_); }
  bool has_room(std::size_t bytes) {
    if (room() >= bytes) return true;
    full_ = true;
    return false;
  }
  void remember(SentKind kind, std::uint32_t slot, std::uint64_t generation, std::uint32_t offset = 0,
                std::uint32_t length = 0) {
    path_.frames.push({.slot = slot,
                       .kind = static_cast<std::uint8_t>(kind),
                       .offset = static_cast<std::uint16_t>(offset),
                       .length = static_cast<std::uint16_t>(length),
                       .generation = generation});
    eliciting_ = true;
  }
  std::uint32_t cut(std::uint32_t fixed, std::uint16_t header_bytes, std::uint32_t total, std::uint32_t offset) {
    const std::size_t whole = wire::overhead(fixed, header_bytes, false) + total;
    if (offset == 0 && whole <= room()) [[likely]]
      return total;
    return cut_part(fixed, header_bytes, total, offset, whole);
  }
  std::uint32_t cut_part(std::uint32_t fixed, std::uint16_t header_bytes, std::uint32_t total, std::uint32_t offset,
                         std::size_t whole);
  void put_request(const OutgoingCall& call, std::uint32_t offset, std::uint32_t length);
  void put_reply(const IncomingTransfer& transfer, std::uint32_t offset, std::uint32_t length);
  bool request_again(const SentFrame& frame);
  bool reply_again(const SentFrame& frame);
  bool write_large_control(const SentFrame& frame);
  void count_again(const std::byte* frame_begin);
  bool write_request(OutgoingCall& call);
  void write_requests_of(CallQueues::Queue& queue);
  bool may_open(const OutgoingCall& call);
  std::uint64_t cost_of_line(const OutgoingCall& first) const;
  void complain(const OutgoingCall& call);
  // Some calls end without being sent.
  bool ends_unsent(OutgoingCall& call) {
    if (!call.connect_only && call.bytes <= path_.max_bytes) [[likely]]
      return false;
    end_unsent(call);
    return true;
  }
  void end_unsent(OutgoingCall& call);

  Core& core_;
  Path& path_;
  std::byte* at_;
  std::byte* limit_;
  std::size_t room_when_empty_;
  std::uint32_t messages_left_;
  Instant now_;
  bool eliciting_ = false;
  bool full_ = false;
  bool is_last_ = false;
  bool repeats_ = false;  // frames that went out before
  bool split_ = false;
  std::size_t next_bytes_ = 0;
  unsigned levels_ = 0;
  std::uint64_t ack_largest_ = recovery::kNoPacket;
};

}  // namespace weir::engine
