// Which pools of this process send by the same network interface, and the shaper that they share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/address.h"
#include "base/time.h"
#include "schedule/nic_shaper.h"
#include "weir/error.h"

namespace weir::pool {

// The interface that has this address. Empty: the address is 0.0.0.0 or ::, or no interface has it.
std::string interface_of(const Address& address);

// What the pools at one interface share. They own it; engines, which outlive their pools at times, own the shaper.
struct Nic {
  const std::string interface;  // empty: not known
  const std::shared_ptr<schedule::NicShaper> shaper;
};

// That of this interface, made if no pool has it. All pools whose interface is not known have one together.
// Code::invalid_argument: a pool that lives has named another rate. Any thread may call it.
Result<std::shared_ptr<Nic>> join_nic(std::string_view interface, std::uint64_t bits_per_s, Instant now);

}  // namespace weir::pool
