// Who the simulated hosts are: certificates of one authority, all of one size.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/time.h"
#include "handshake/authority.h"
#include "handshake/credentials.h"
#include "handshake/identity_testing.h"
#include "sim/network.h"

namespace weir::sim {

// Certificates are valid for so long before and after the beginning of a run.
inline constexpr std::int64_t kValidSeconds = 3'600;

// Seconds since 1970.
inline constexpr handshake::Validity kValidity{handshake::testing::kTestWallSeconds - kValidSeconds,
                                               handshake::testing::kTestWallSeconds + kValidSeconds};

// Made when first asked for and kept for the life of the process: making them is slow, and no run changes them. They
// prove the host's IP address. Ed25519 throughout: signatures of one size, whatever GnuTLS's dice show, so that runs
// repeat.
std::shared_ptr<const handshake::Credentials> identity_of(HostId host, const Address& address,
                                                          const handshake::Validity& validity = kValidity);

// Seconds since 1970 at a virtual instant, by a clock that is right.
std::int64_t wall_seconds(Instant now);

// Certificates that end within a run. Each host has a new one at its own times.
struct ShortCertificates {
  std::int64_t life_seconds = 30;
  std::int64_t period_seconds = 15;      // between two of a host
  std::optional<HostId> not_replaced{};  // this host's
  std::int64_t ends_after_seconds = 40;  // from the start of the run: the certificate of that host
};

// What a host has at this time of a run that began at `start`.
handshake::Validity validity_at(const ShortCertificates& plan, HostId host, Instant start, Instant now);
// When a host's certificate, which is not replaced, is no longer valid: the last second of its validity counts.
Instant end_of_validity(const ShortCertificates& plan, Instant start);
// When the host has another one; never, if it is not replaced.
Instant next_certificate(const ShortCertificates& plan, HostId host, Instant start, Instant now);

}  // namespace weir::sim
