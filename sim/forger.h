// Forger: says whatever it likes on the real paths of a simulated host, sealed with their real keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/core.h"
#include "sim/host.h"
#include "sim/world.h"

namespace weir::sim {

// Frames of one packet, written by hand.
class FrameText {
 public:
  template <class Frame>
  FrameText& put(const Frame& frame) {
    return grow([&](std::byte* to) { return wire::encode(frame, to); });
  }
  FrameText& put(wire::FrameType type, const wire::SideFrame& frame) {
    return grow([&](std::byte* to) { return wire::encode(type, frame, to); });
  }
  ByteSpan bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kLargestFrame = 4'096;

  template <class Encode>
  FrameText& grow(Encode&& encode) {
    const std::size_t before = bytes_.size();
    bytes_.resize(before + kLargestFrame);
    bytes_.resize(static_cast<std::size_t>(encode(bytes_.data() + before) - bytes_.data()));
    return *this;
  }

  std::vector<std::byte> bytes_;
};

// A region of a victim's, as its own engine sees it.
struct RegionView {
  token::Region* region = nullptr;
  bool is_ours = false;  // granted to the path that was asked about
};

// One per hostile host. The host's own engine knows of every packet that was sent, so that its path goes on as if the
// engine had said it all; what a victim answers to it, that engine finds it has no use for.
class Forger {
 public:
  Forger(World& world, Host& host) : world_(world), host_(host) {}

  engine::Core& core();
  // Open ones, whichever side calls.
  std::vector<engine::Path*> paths_to(const Host& victim);
  // The same path, as `victim` has it; null: it has ended there.
  static engine::Path* path_at(Host& victim, const engine::Path& path);
  // Those that `victim` has granted to anybody. A hostile sender could guess no more than this shows.
  std::vector<RegionView> regions_of(Host& victim, const engine::Path& path);

  void say(engine::Path& path, const FrameText& frames);
  // Frames and a slice in one data packet.
  void say(engine::Path& path, const FrameText& frames, ByteSpan slice);
  // So much of a slice fits into a packet on every path of this host.
  std::size_t largest_slice() const;

  std::uint64_t packets() const { return packets_; }

 private:
  void send(engine::Path& path, std::vector<std::byte> packet);

  World& world_;
  Host& host_;
  std::uint64_t packets_ = 0;
};

}  // namespace weir::sim
