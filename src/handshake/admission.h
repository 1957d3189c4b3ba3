// Admission: what a responder can say and decide about a stranger's first datagram without keeping anything.
#pragma once

#include <ngtcp2/ngtcp2.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/address.h"
#include "base/time.h"
#include "crypto/secret.h"
#include "handshake/connection_ids.h"

namespace weir::handshake {

inline constexpr Duration kRetryTokenLife = std::chrono::seconds(10);

// One per endpoint. Every reply is smaller than what provoked it, which has at least 1,200 bytes.
class Admission {
 public:
  Admission(crypto::Entropy& entropy, const ConnectionIds& ids);

  enum class Proof : std::uint8_t { none, valid, invalid };
  // Whether the packet carries a proof of its address that we gave. `before_retry`: the id that the client had chosen
  // before, if it is valid.
  Proof proof(const ngtcp2_pkt_hd& header, const Address& from, ngtcp2_cid& before_retry, Instant now) const;

  // Empty: it could not be made.
  std::vector<std::byte> retry(const ngtcp2_pkt_hd& header, const Address& from, Instant now) const;
  std::vector<std::byte> invalid_token(const ngtcp2_pkt_hd& header) const;
  std::vector<std::byte> versions(const ngtcp2_version_cid& ids) const;

 private:
  crypto::Entropy* entropy_;
  const ConnectionIds* ids_;
  crypto::Secret secret_;  // of this process start; a token does not outlive it
};

}  // namespace weir::handshake
