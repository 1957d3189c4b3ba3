// The state behind a handle of the application's, which may have been moved away.
#pragma once

#include <memory>

#include "base/check.h"
#include "pool/peer_entry.h"

namespace weir::detail {
class PoolState;
class WorkersState;
}  // namespace weir::detail

namespace weir::pool {

inline detail::PeerState& there(const std::shared_ptr<detail::PeerState>& state) {
  WEIR_CHECK(state != nullptr, "this Peer was moved from: copy it, or use the one that it was moved to");
  return *state;
}

inline detail::PoolState& there(const std::shared_ptr<detail::PoolState>& state) {
  WEIR_CHECK(state != nullptr, "this Pool was moved from: copy it, or use the one that it was moved to");
  return *state;
}

inline detail::WorkersState& there(const std::shared_ptr<detail::WorkersState>& state) {
  WEIR_CHECK(state != nullptr, "these Workers were moved from: copy them, or use those that they were moved to");
  return *state;
}

}  // namespace weir::pool
