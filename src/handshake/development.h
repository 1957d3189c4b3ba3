// Development identities: an authority in a directory that only we can open. Whoever can read its key is trusted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "handshake/credentials.h"
#include "weir/error.h"

namespace weir::handshake {

inline constexpr std::int64_t kDevelopmentSeconds = 30 * 24 * 60 * 60;  // how long an authority is valid
inline constexpr std::int64_t kDevelopmentRenewSeconds = 24 * 60 * 60;  // the next one is made so long before
inline constexpr std::int64_t kDevelopmentSkewSeconds = 60 * 60;        // clocks of a shared directory's users
inline constexpr const char* kDevelopmentName = "weir-development";

struct Development {
  std::shared_ptr<const Credentials> credentials;  // a new Ed25519 key, in memory only
  unsigned generation = 0;                         // which authority of the directory issued it
  std::int64_t renew_at_seconds = 0;               // when there should be another
};

// "<temporary directory>/weir-<user>" if none is given: one for all programs of a user, who can read each other's files
// anyway, so that there is never more than one to be left behind.
std::string development_directory(const std::string& given);

// Uses the directory's latest authority, or makes one if there is none or it expires soon. Authorities are files
// numbered from 1 that are never changed or replaced, and each number can be made only once: processes that start
// together agree without a lock.
Result<Development> open_development(const std::string& directory, std::int64_t wall_seconds);

std::string development_file(const std::string& directory, unsigned generation);

}  // namespace weir::handshake
