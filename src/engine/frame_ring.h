// What was sent in which packet, so that the frames of a lost packet can go out again in a new one. Frames are named,
// not stored: their bytes stay with the transfer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/check.h"

namespace weir::engine {

enum class SentKind : std::uint8_t {
  request,
  reply,
  cancel,
  credit,
  blocked,
  flow_reset,
  path,
  retire,
  slice,  // slot: its writer's; generation: the writer's serial and the offset (slices.cc)
  region_grant,
  region_revoke,
  token_revoke,
  region_exhausted,
  request_regions,
  transfer_ack,
  range_ack,
  nothing,  // cancelled while it waited to be sent again
};

struct SentFrame {
  std::uint32_t slot : 24 = 0;  // or the credit level
  std::uint32_t kind : 8 = 0;
  std::uint16_t offset = 0;  // of the part; of a cancellation, the credit level; of large messages, the side
  std::uint16_t length = 0;  // of the part; of a cancellation, of the whole request
  std::uint64_t generation = 0;

  SentKind what() const { return static_cast<SentKind>(kind); }
};
static_assert(sizeof(SentFrame) == 16);

// A queue of frames, addressed by a count that never wraps. Grows by a quarter, up to kMaxFrames, so that no number of
// calls in flight pays for twice as many; single-threaded.
class FrameRing {
 public:
  static constexpr std::size_t kMaxFrames = 1u << 18;
  static constexpr std::uint32_t kFirstCapacity = 16;

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return begin_ + size_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // No room for another packet's worth.
  bool nearly_full(std::size_t margin) const { return size() + margin > kMaxFrames; }

  void push(const SentFrame& frame) {
    if (size_ == capacity_) [[unlikely]]
      grow();
    frames_[position(size_)] = frame;
    ++size_;
  }
  const SentFrame& operator[](std::uint64_t index) const {
    const std::uint64_t distance = index - begin_;
    WEIR_CHECK(distance < size_, "a frame was asked for that is not kept");
    return frames_[position(static_cast<std::uint32_t>(distance))];
  }
  bool contains(std::uint64_t index) const { return index - begin_ < size_; }
  // Leaves its place: nothing is sent for it.
  void cancel(std::uint64_t index) {
    WEIR_CHECK(contains(index), "a frame was cancelled that is not kept");
    frames_[position(static_cast<std::uint32_t>(index - begin_))].kind = static_cast<std::uint8_t>(SentKind::nothing);
  }
  SentFrame pop() {
    const SentFrame frame = frames_[first_];
    release_until(begin_ + 1);
    return frame;
  }
  void release_until(std::uint64_t index) {
    if (index <= begin_) return;
    const auto distance = static_cast<std::uint32_t>(index - begin_);
    first_ = position(distance);
    size_ -= distance;
    begin_ = index;
  }
  void clear() { release_until(end()); }
  void release_memory() {
    if (!empty()) return;
    frames_.reset();
    capacity_ = first_ = 0;
  }

 private:
  // Of the frame that many after the first.
  std::uint32_t position(std::uint32_t distance) const {
    const std::uint32_t straight = first_ + distance;
    return straight >= capacity_ ? straight - capacity_ : straight;
  }
  void grow() {
    const std::uint32_t capacity = capacity_ + std::max(kFirstCapacity, capacity_ / 4);
    std::unique_ptr<SentFrame[]> frames(new SentFrame[capacity]);
    for (std::uint32_t i = 0; i < size_; ++i) frames[i] = frames_[position(i)];
    frames_ = std::move(frames);
    capacity_ = capacity;
    first_ = 0;
  }

  std::unique_ptr<SentFrame[]> frames_;
  std::uint32_t capacity_ = 0;
  std::uint32_t first_ = 0;  // position of the frame that `begin_` counts
  std::uint32_t size_ = 0;
  std::uint64_t begin_ = 0;
};

}  // namespace weir::engine
