// Credentials whose every field follows from one number, so that a mixture of two can be told.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/random.h"
#include "peer/credential.h"

namespace weir::peer::testing {

inline CredentialId numbered_id(std::uint64_t number) {
  CredentialId id{};
  store(id.data(), number);
  store(id.data() + 8, number * 0x9e3779b97f4a7c15);
  return id;
}

inline Address numbered_address(std::uint64_t number) {
  return Address::v4(0x0a000000 + static_cast<std::uint32_t>(number >> 8),
                     static_cast<std::uint16_t>(4'000 + (number & 255)));
}

// `owner` chooses the address; nobody's is 0.
inline Credential numbered(std::uint64_t number, std::uint64_t owner) {
  Random random{number};
  const auto fill = [&random](auto bytes) {
    for (auto& byte : bytes) byte = static_cast<std::byte>(random.next());
  };
  Credential credential;
  credential.id = numbered_id(number);
  fill(credential.secret.writable());
  fill(std::span{credential.hello_key});
  fill(std::span{credential.answer_key});
  fill(std::span{credential.reset_key});
  if (owner != 0) credential.handshake_address = numbered_address(owner);
  credential.set_name(std::to_string(random.next()) + std::to_string(random.next()));
  credential.version = static_cast<std::uint8_t>(random.next());
  credential.transport = static_cast<std::uint8_t>(random.next());
  credential.mtu = static_cast<std::uint32_t>(random.next());
  credential.expires_ns = static_cast<std::int64_t>(random.next() >> 2 | std::uint64_t{1} << 62);  // far away
  credential.worker_count = static_cast<std::uint16_t>(random.below(12));
  for (DataAddress& worker : credential.workers) {
    worker = {numbered_address(random.below(1u << 20)), static_cast<std::uint16_t>(random.next()),
              static_cast<std::uint16_t>(random.next()), random.chance(0.5)};
  }
  return credential;
}

// Whether all of `read` belongs to one credential: its owner is what its address says.
inline bool is_whole(const Credential& read) {
  Credential expected = numbered(load<std::uint64_t>(read.id.data()), 0);
  expected.handshake_address = read.handshake_address;
  expected.initiator = read.initiator;
  expected.remote_incarnation = read.remote_incarnation;
  return expected == read;
}

}  // namespace weir::peer::testing
