// EngineAccess: lets tests and the simulator look inside an engine, and do to it what only its owner's machine could.
#pragma once

#include <cstdint>

#include "engine/core.h"

namespace weir::engine::testing {

struct EngineAccess {
  static Core& core(Engine& engine) { return *engine.core_; }

  // Takes back every region that `choose` names, as if its time were over. Returns how many those were.
  template <class Choose>
  static std::uint32_t revoke_regions(Engine& engine, Instant now, Choose&& choose) {
    Core& inside = core(engine);
    std::uint32_t revoked = 0;
    inside.paths.for_each([&](Path& path) {
      if (path.large == nullptr) return;
      inside.regions.for_each_of_path(path.large->regions, [&](token::Region& region) {
        if (region.state != token::RegionState::granted || !choose(region)) return;
        inside.revoke_region(path, region, now);
        ++revoked;
      });
    });
    return revoked;
  }
};

}  // namespace weir::engine::testing
