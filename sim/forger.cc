#include "sim/forger.h"

#include <algorithm>
#include <utility>

#include "engine/engine_access.h"

namespace weir::sim {

using engine::testing::EngineAccess;

engine::Core& Forger::core() { return EngineAccess::core(host_.engine()); }

std::vector<engine::Path*> Forger::paths_to(const Host& victim) {
  std::vector<engine::Path*> found;
  const Address& address = world_.network.address_of(victim.id());
  core().paths.for_each([&](engine::Path& path) {
    if (path.state == engine::Path::State::open && path.remote == address) found.push_back(&path);
  });
  return found;
}

engine::Path* Forger::path_at(Host& victim, const engine::Path& path) {
  return EngineAccess::core(victim.engine()).find_path(path.remote_id);
}

std::vector<RegionView> Forger::regions_of(Host& victim, const engine::Path& path) {
  std::vector<RegionView> found;
  engine::Core& theirs = EngineAccess::core(victim.engine());
  theirs.paths.for_each([&](engine::Path& one) {
    if (one.large == nullptr) return;
    theirs.regions.for_each_of_path(one.large->regions, [&](token::Region& region) {
      if (region.state == token::RegionState::granted) found.push_back({&region, one.id == path.remote_id});
    });
  });
  return found;
}

void Forger::say(engine::Path& path, const FrameText& frames) {
  const ByteSpan from = frames.bytes();
  std::vector<std::byte> packet(wire::kHeaderBytes + from.size() + wire::kTagBytes);
  std::byte* const text = packet.data() + wire::kHeaderBytes;
  std::ranges::copy(from, text);
  core().seal_packet(path, packet.data(), wire::kHeaderBytes, text, text + from.size(),
                     {.frames_begin = path.frames.end()}, world_.now());
  send(path, std::move(packet));
}

void Forger::say(engine::Path& path, const FrameText& frames, ByteSpan slice) {
  const ByteSpan from = frames.bytes();
  constexpr std::size_t kTextAt = wire::kHeaderBytes + wire::kTextLengthBytes;
  std::vector<std::byte> packet(kTextAt + from.size() + wire::kTagBytes);
  std::byte* const text = packet.data() + kTextAt;
  store<std::uint16_t>(packet.data() + wire::kHeaderBytes, static_cast<std::uint16_t>(from.size()));
  std::ranges::copy(from, text);
  core().seal_slice(path, packet.data(), text, text + from.size(), slice, {.frames_begin = path.frames.end()},
                    world_.now());
  packet.insert(packet.end(), slice.begin(), slice.end());
  send(path, std::move(packet));
}

std::size_t Forger::largest_slice() const {
  constexpr std::size_t kBeside =
      wire::kHeaderBytes + wire::kTextLengthBytes + wire::kSliceBytes + wire::kSliceTagBytes + wire::kTagBytes;
  return std::min<std::size_t>(world_.network.shape_of(host_.id()).datagram_bytes - kBeside, buffer::kRecordBytes);
}

void Forger::send(engine::Path& path, std::vector<std::byte> packet) {
  ++packets_;
  core().touch(path);  // its timers have changed
  host_.wake();
  world_.network.transmit(
      host_.id(),
      {.source = world_.network.address_of(host_.id()), .destination = path.remote, .bytes = std::move(packet)});
}

}  // namespace weir::sim
