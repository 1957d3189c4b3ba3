// Packer: writes the frames of one packet, most urgent first, as far as they fit.
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
  bool repeats_ = false;  // frames that went out before
  unsigned levels_ = 0;
  std::uint64_t ack_largest_ = recovery::kNoPacket;
};

}  // namespace weir::engine
