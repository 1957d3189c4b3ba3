// HelloGate: how many hellos an engine answers in a millisecond (docs/protocol.md, rule H-13). Those whose tag shows
// that their sender has the secret have room of their own, so that strangers cannot use it up. Somebody who has
// recorded such a hello can send it again: each hello, and each credential, has only a part of that room.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/time.h"
#include "wire/packet.h"

namespace weir::engine {

// One per engine.
class HelloGate {
 public:
  static constexpr std::uint32_t kStrangers = 64;    // answers in a millisecond
  static constexpr std::uint32_t kMembers = 64;      // the same
  static constexpr std::uint8_t kPerCredential = 8;  // of the latter
  static constexpr std::uint8_t kPerHello = 2;       // the same hello: a repetition may meet its original

  bool admit_stranger(Instant now) {
    turn(now);
    if (strangers_ == kStrangers) return false;
    ++strangers_;
    return true;
  }
  // `credential`: all zeros in shared-secret mode, where it does not count.
  bool admit_member(const wire::CredentialId& credential, const std::array<std::byte, 32>& random, Instant now) {
    turn(now);
    std::uint8_t& of_hello = by_hello_[place(random.data())];
    std::uint8_t& of_credential = by_credential_[place(credential.data())];
    const bool has_credential = credential != wire::CredentialId{};
    if (members_ == kMembers || of_hello == kPerHello || (has_credential && of_credential == kPerCredential)) {
      return false;
    }
    ++members_;
    ++of_hello;
    if (has_credential) ++of_credential;
    return true;
  }

 private:
  static constexpr std::size_t kPlaces = 512;
  using Counts = std::array<std::uint8_t, kPlaces>;

  void turn(Instant now) {
    if (now - start_ < std::chrono::milliseconds(1)) return;
    start_ = now;
    strangers_ = members_ = 0;
    by_hello_ = {};
    by_credential_ = {};
  }
  // Differs from one millisecond to the next: who shares a place with somebody else's hello once does not the next
  // time.
  std::size_t place(const std::byte* key) const {
    const std::uint64_t mixed = (load<std::uint64_t>(key) ^ static_cast<std::uint64_t>(start_.ns)) * 0x9e3779b97f4a7c15;
    return static_cast<std::size_t>(mixed >> 55);
  }
  static_assert(kPlaces == 1u << (64 - 55));

  Instant start_{};
  std::uint32_t strangers_ = 0;
  std::uint32_t members_ = 0;
  Counts by_hello_{};
  Counts by_credential_{};
};

}  // namespace weir::engine
