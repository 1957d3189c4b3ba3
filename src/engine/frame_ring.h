// What was sent in which packet, so that the frames of a lost packet can go out again in a new one. Frames are named,
// not stored: their bytes stay with the transfer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weir::engine {

enum class SentKind : std::uint8_t { request, reply, cancel, credit, blocked, flow_reset, path };

struct SentFrame {
  std::uint32_t slot : 24 = 0;  // or the credit level
  std::uint32_t kind : 8 = 0;
  std::uint16_t offset = 0;  // of the part; of a cancellation, the credit level
  std::uint16_t length = 0;  // of the part; of a cancellation, of the whole request
  std::uint64_t generation = 0;

  SentKind what() const { return static_cast<SentKind>(kind); }
};
static_assert(sizeof(SentFrame) == 16);

// A queue of frames, addressed by a count that never wraps. Doubles up to kMaxFrames; single-threaded.
class FrameRing {
 public:
  static constexpr std::size_t kMaxFrames = 1u << 18;
  static constexpr std::size_t kFirstCapacity = 16;

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return end_; }
  std::size_t size() const { return static_cast<std::size_t>(end_ - begin_); }
  bool empty() const { return begin_ == end_; }
  // No room for another packet's worth.
  bool nearly_full(std::size_t margin) const { return size() + margin > kMaxFrames; }

  void push(const SentFrame& frame) {
    if (size() == capacity_) [[unlikely]]
      grow();
    frames_[end_++ & (capacity_ - 1)] = frame;
  }
  const SentFrame& operator[](std::uint64_t index) const { return frames_[index & (capacity_ - 1)]; }
  SentFrame pop() { return frames_[begin_++ & (capacity_ - 1)]; }
  void release_until(std::uint64_t index) {
    if (index > begin_) begin_ = index;
  }
  void clear() { begin_ = end_; }
  void release_memory() {
    if (!empty()) return;
    frames_.reset();
    capacity_ = 0;
  }

 private:
  void grow() {
    const std::size_t capacity = capacity_ == 0 ? kFirstCapacity : capacity_ * 2;
    std::unique_ptr<SentFrame[]> frames(new SentFrame[capacity]);
    for (std::uint64_t i = begin_; i != end_; ++i) frames[i & (capacity - 1)] = frames_[i & (capacity_ - 1)];
    frames_ = std::move(frames);
    capacity_ = capacity;
  }

  std::unique_ptr<SentFrame[]> frames_;
  std::size_t capacity_ = 0;
  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;
};

}  // namespace weir::engine
