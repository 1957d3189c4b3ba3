// TrainPlan: of what size the packets of one train are. All of them are equal but the last, which may be shorter: that
// is how the kernel cuts a train. What is left of a full packet is padded only if it is little.
#pragma once

#include <cstddef>

#include "engine/bounds.h"
#include "wire/packet.h"

namespace weir::engine {

// One for each train; pure.
class TrainPlan {
 public:
  // Of a train: padding beyond that is never worth a train less.
  static constexpr std::size_t kPaddingPart = 32;
  // The same where the alternative is a train of two packets: messages too small to be split, of mixed sizes.
  static constexpr std::size_t kSmallMessagePaddingPart = 8;
  // Of a packet that is a train by itself: a larger rest is worth the copy that a message in parts costs its receiver,
  // because a short train costs the kernel as much as a long one.
  static constexpr std::size_t kTrainRestPart = 8;
  // Of a packet: what messages like the next one may leave of it.
  static constexpr std::size_t kEvenPart = 16;

  enum class End {
    as_it_is,  // the following packets are as long as this one, the first
    padded,
    split,  // a part of the next message takes the rest
    last,   // the train ends
  };
  // A packet that something did not fit into.
  struct Full {
    std::size_t bytes = 0;       // as it is, header and tag included
    std::size_t size = 0;        // that it may have
    std::size_t next_bytes = 0;  // of the whole frame of the message that did not fit; 0: it was no message
    bool may_split = false;      // that message, here
    bool is_final = false;       // no other packet follows in any case
  };

  bool is_empty() const { return segment_ == 0; }
  std::size_t segment() const { return segment_; }  // 0: the first packet decides

  End end_of(const Full& packet) const {
    const std::size_t rest = packet.size - packet.bytes;
    if (is_empty()) {
      const bool is_whole_train = 2 * packet.bytes > Bounds::kMaxTrainBytes;
      const bool is_well_filled = is_whole_train ? rest * kTrainRestPart <= packet.size
                                                 : rest * kPaddingPart <= packet.size || fits_evenly(packet);
      return packet.may_split && !is_well_filled ? End::split : End::as_it_is;
    }
    if (packet.is_final) return End::last;
    const bool is_strict = packet.may_split || first_has_ack_;
    const std::size_t part = is_strict ? kPaddingPart : kSmallMessagePaddingPart;
    if (may_pad(rest, bytes_ + packet.size, part)) return End::padded;
    return packet.may_split ? End::split : End::last;
  }

  // Whether so much padding more is little beside all bytes of the train.
  bool may_pad(std::size_t rest, std::size_t train_bytes, std::size_t part = kPaddingPart) const {
    return (padding_ + rest) * part <= train_bytes;
  }

  void add(std::size_t bytes, std::size_t padding, bool has_ack) {
    if (is_empty()) {
      segment_ = bytes;
      first_has_ack_ = has_ack;
    }
    bytes_ += bytes;
    padding_ += padding;
  }

 private:
  // Whether packets as long as this one hold messages like the next one with little left over.
  static bool fits_evenly(const Full& packet) {
    constexpr std::size_t kOverhead = wire::kHeaderBytes + wire::kTagBytes;
    if (packet.next_bytes == 0 || packet.next_bytes + kOverhead > packet.bytes) return false;
    return (packet.bytes - kOverhead) % packet.next_bytes * kEvenPart <= packet.bytes;
  }

  std::size_t segment_ = 0;
  std::size_t bytes_ = 0;
  std::size_t padding_ = 0;
  bool first_has_ack_ = false;  // so it may be longer than all that follow: the next train will not
};

}  // namespace weir::engine
