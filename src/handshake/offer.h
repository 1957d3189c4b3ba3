// The negotiation message: what each side says of itself inside the handshake, and what follows from both.
//
// A sequence of fields (u16 type, u16 length, value; little-endian), each type at most once, in any order. Fields of an
// unknown type are skipped, so a later release adds a field rather than bytes to one that exists.
//
//   1 versions    u8 lowest, u8 highest            5 transports  u32 bit set
//   2 incarnation 16 bytes                         6 mtu         u32
//   3 name        at most 64 bytes                 8 reset key   16 bytes
//   4 workers     1-64 of u16 worker, u16 nic,
//                 u16 port, u8 has ip, [16 ip]
//
// Workers come in the order in which the receiver should take them; see begin_with(). What a worker takes (calls, the
// largest message) is said in its answer to a hello, where it can differ from path to path. Types 7 and 9 are not given
// out again: they were that, and a hash of methods.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/bytes.h"
#include "crypto/derive.h"
#include "peer/credential.h"
#include "weir/error.h"

namespace weir::handshake {

// Bits of a set. The higher is the better one.
enum class Transport : std::uint32_t { udp = 1, fabric = 2 };

struct OfferedWorker {
  std::uint16_t worker = 0;
  std::uint16_t nic = 0;
  std::uint16_t port = 0;
  std::optional<std::array<std::uint8_t, 16>> ip;  // as Address has it; none: the handshake's

  bool operator==(const OfferedWorker&) const = default;
};

// A plain value; wipes its key.
struct Offer {
  static constexpr std::size_t kMaxBytes = 4'096;
  static constexpr std::size_t kMaxName = 64;
  static constexpr std::size_t kMaxWorkers = 64;
  static constexpr std::uint32_t kMinMtu = 1'200;  // what every network is assumed to carry
  static constexpr std::uint32_t kMaxMtu = 65'535;

  std::uint8_t min_version = 1;
  std::uint8_t max_version = 1;
  crypto::Incarnation incarnation{};
  std::string name;
  std::vector<OfferedWorker> workers;
  std::uint32_t transports = static_cast<std::uint32_t>(Transport::udp);  // unknown bits mean transports to come
  std::uint32_t mtu = kMinMtu;
  crypto::KeyBytes reset_key{};  // will authenticate our word that we no longer know this credential

  ~Offer() { crypto::wipe(reset_key); }

  bool operator==(const Offer&) const = default;
};

// Has the workers begin with another one each time that `turn` is one more: peers that take the first are spread
// evenly.
void begin_with(Offer& offer, std::uint64_t turn);

// invalid_argument: what we were configured with cannot be said.
Result<std::vector<std::byte>> encode(const Offer& offer);

// refused: the peer's bytes are not an offer; the sentence says why.
Result<Offer> decode_offer(ByteSpan bytes);

// Both sides come to the same.
struct Agreement {
  std::uint8_t version = 0;  // the highest common one
  Transport transport = Transport::udp;
  std::uint32_t mtu = 0;

  bool operator==(const Agreement&) const = default;
};

// refused: they have nothing in common; the sentence says what of.
Result<Agreement> agree(const Offer& ours, const Offer& theirs);

// Where the peer's workers receive, given where its handshake came from or went to. Those of another IP family are left
// out, those on another IP are marked as not validated. refused: an address that nobody receives at, a loopback address
// from afar, or none that we could use.
Result<std::vector<peer::DataAddress>> data_addresses(const Offer& theirs, const Address& handshake);

// Fills in what negotiation says of a credential: everything but id, secret, our own keys and the handshake address.
void describe(peer::Credential& credential, const Offer& theirs, const Agreement& agreement,
              std::span<const peer::DataAddress> addresses);

}  // namespace weir::handshake
