// PeerEntry: one peer as a pool knows it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/address.h"
#include "weir/error.h"

namespace weir::pool {

class Gate;

// Made once per address and kept as long as its pool, so that calls on their way may point at it. Immutable, except
// for the engine's number of it, which is the worker's.
struct PeerEntry {
  std::string text;
  std::string name;                    // that its certificate must prove; empty: its address
  const std::string* shown = nullptr;  // `text`, for as long as there are calls; the gate's
  Address address;
  std::optional<Error> failure;  // there can be no such peer: every call says so
  std::shared_ptr<Gate> gate;    // null if `failure`
  std::chrono::nanoseconds default_deadline{};

  static constexpr std::uint32_t kUnknown = ~std::uint32_t{0};
  std::uint32_t number = kUnknown;
};

}  // namespace weir::pool

namespace weir::detail {

// What Peer handles share.
class PeerState : public pool::PeerEntry {};

}  // namespace weir::detail
