// Packets as they travel (docs/protocol.md, rules P-2 and P-3; handshakes: H-2, H-3; lost state: ). A sealed
// packet is an 8-byte header, ciphertext and a 16-byte tag; the header is authenticated with it.
//
//   byte 0      bits 0-1 type, bits 2-6 low bits of the key id, bit 7 whether it is a data packet
//   bytes 1-3   low bits of the packet number
//   bytes 4-7   the path, in the receiver's numbering
//
// A data packet (G-5) goes on with 2 bytes of text length, the text, the tag, and a slice of ciphertext up to its end.
// The slice is authenticated in the header's stead, all of which the key, the nonce and the lengths stand for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace weir::wire {

inline constexpr std::uint8_t kVersion = 1;
inline constexpr std::size_t kHeaderBytes = 8;
inline constexpr std::size_t kTagBytes = 16;
inline constexpr std::size_t kNonceBytes = 12;
inline constexpr std::size_t kMinPacketBytes = kHeaderBytes + kTagBytes + 1;
inline constexpr std::size_t kTextLengthBytes = 2;
inline constexpr std::uint32_t kDataNonceDomain = 1;  // other sealed packets: 0
inline constexpr std::size_t kMaxNameBytes = 64;
inline constexpr std::uint8_t kKeyIdBits = 5;
inline constexpr std::uint32_t kNumberBits = 24;

enum class PacketType : std::uint8_t {
  sealed = 0,
  first = 1,        // sealed, behind the initiator's side of the handshake: until the responder's path is known
  hello = 2,        // initiator to responder, plain
  hello_reply = 3,  // responder to initiator, plain but authenticated
};

struct PacketHeader {
  PacketType type = PacketType::sealed;
  std::uint8_t key_low = 0;
  bool is_data = false;
  std::uint32_t number_low = 0;
  std::uint32_t path = 0;
};

inline void encode(const PacketHeader& header, std::byte* to) {
  to[0] = static_cast<std::byte>(static_cast<std::uint8_t>(header.type) | (header.key_low << 2) |
                                 (header.is_data ? 0x80 : 0));
  store24(to + 1, header.number_low);
  store<std::uint32_t>(to + 4, header.path);
}

// `from` holds at least kHeaderBytes.
inline PacketHeader decode_header(const std::byte* from) {
  const auto first = static_cast<std::uint8_t>(from[0]);
  return {.type = static_cast<PacketType>(first & 3),
          .key_low = static_cast<std::uint8_t>((first >> 2) & ((1u << kKeyIdBits) - 1)),
          .is_data = (first & 0x80) != 0,
          .number_low = load24(from + 1),
          .path = load<std::uint32_t>(from + 4)};
}

// What both sides tell of themselves (H-2).
struct Introduction {
  std::uint32_t path = 0;  // the sender's own number for this path; 0 from a responder, who tells it later
  std::uint16_t worker = 0;
  std::uint16_t port = 0;
  std::array<std::byte, 32> random{};
  std::array<std::byte, 16> incarnation{};
  ByteSpan name;  // at most kMaxNameBytes; points into the decoded datagram
};

// Names the secret that a handshake is keyed with; all zeros: the one that both sides were configured with.
inline constexpr std::size_t kCredentialBytes = 16;
using CredentialId = std::array<std::byte, kCredentialBytes>;

// A hello is padded so that no answer to it is larger than itself (H-1).
inline constexpr std::size_t kHelloBytes = 256;

struct Hello {
  Introduction initiator;
  CredentialId credential{};
};
inline constexpr std::size_t kIntroductionBytes = 4 + 2 + 2 + 32 + 16 + 1;  // without a name
// Of an encoded hello: those that its tag covers, and behind which the tag is.
inline std::size_t covered_bytes(const Hello& hello) {
  return 2 + kIntroductionBytes + hello.initiator.name.size() + kCredentialBytes;
}
static_assert(2 + kIntroductionBytes + kMaxNameBytes + kCredentialBytes + kTagBytes <= kHelloBytes);

struct HelloReply {
  std::uint32_t to_path = 0;         // the initiator's
  std::uint64_t sequence = 0;        // names this exchange at the responder
  std::array<std::byte, 16> echo{};  // the first half of the initiator's random
  Introduction responder;
  std::uint32_t calls = 0;             // slots that the responder will keep for this path
  std::uint32_t inline_bytes = 0;      // largest message it takes
  std::uint32_t allowance = 0;         // credit of a cold sender, in bytes
  std::uint32_t nested_allowance = 0;  // the same for each level of nested calls
};

// What precedes the sealed part of a `first` packet, between header and ciphertext.
struct FirstPrefix {
  std::uint64_t sequence = 0;
  std::uint32_t allowance = 0;  // as the reply said
  Introduction initiator;
  CredentialId credential{};
  std::array<std::byte, kNonceBytes> nonce{};
};

// Returns the number of bytes written; `to` holds kHelloBytes. The tag is left to the caller: zeros are in its place.
std::size_t encode(const Hello& hello, std::byte* to);
std::optional<Hello> decode_hello(ByteSpan datagram);

// Without the tag, which the caller appends over all that was written. `to` holds kHelloBytes.
std::size_t encode(const HelloReply& reply, std::byte* to);
struct DecodedHelloReply {
  HelloReply reply;
  ByteSpan authenticated;
  const std::byte* tag;
};
std::optional<DecodedHelloReply> decode_hello_reply(ByteSpan datagram);

// Writes the prefix behind a header that is already there, without its tag, which the caller appends over
// [to, to + returned). `to` holds kMaxPrefixBytes.
inline constexpr std::size_t kMaxPrefixBytes =
    8 + 4 + 4 + 2 + 2 + 32 + 16 + 1 + kMaxNameBytes + kCredentialBytes + kNonceBytes + kTagBytes;
std::size_t encode(const FirstPrefix& prefix, std::byte* to);
struct DecodedFirst {
  FirstPrefix prefix;
  ByteSpan authenticated;  // by the prefix's own tag
  const std::byte* tag;
  std::size_t bytes = 0;  // of header and prefix with its tag: where the ciphertext begins
};
std::optional<DecodedFirst> decode_first(ByteSpan datagram);

// Plain answers of somebody who has lost what the other side refers to. They share the type bits of hello and
// hello_reply; the bits above tell them apart.
inline constexpr std::byte kUnknownSecretByte{0x06};
inline constexpr std::byte kUnknownPathByte{0x07};

// To a hello or first packet: no such credential here.
struct UnknownSecret {
  std::uint32_t to_path = 0;  // the initiator's
  std::uint16_t worker = 0;   // who answers: as in an introduction
  std::uint16_t port = 0;
  std::array<std::byte, 16> echo{};  // of a hello: half of its random; of a first packet: nonce, 4 bytes of who answers
  CredentialId credential{};
};
inline constexpr std::size_t kUnknownSecretBytes = 2 + 4 + 2 + 2 + 16 + kCredentialBytes + kTagBytes;

// To a sealed packet: no such path here. Smaller than the smallest packet that can provoke it.
struct UnknownPath {
  std::uint32_t number_low = 0;  // of that packet
  std::uint32_t path = 0;        // that it named
};
inline constexpr std::size_t kUnknownPathBytes = 1 + 3 + 4 + kTagBytes;
static_assert(kUnknownPathBytes < kMinPacketBytes);

// Both without the tag, which the caller appends over all that was written.
std::size_t encode(const UnknownSecret& unknown, std::byte* to);
std::size_t encode(const UnknownPath& unknown, std::byte* to);
std::optional<UnknownSecret> decode_unknown_secret(ByteSpan datagram);
std::optional<UnknownPath> decode_unknown_path(ByteSpan datagram);

}  // namespace weir::wire
