// Sealed: the ciphertext of one payload. Sealed once, by an application thread, whoever and however many it goes to;
// immutable from then on and shared by reference count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "buffer/memory.h"
#include "crypto/aead.h"
#include "crypto/secret.h"
#include "weir/pin.h"

namespace weir::buffer {

// A record is what one seal covers. 60 KiB: a record and what travels with it fit into the largest datagram, and the
// packets of an Ethernet of 1,500 or 9,000 bytes are all but full.
inline constexpr std::uint32_t kRecordBytes = 61'440;
inline constexpr std::uint32_t kRecordDomain = 2;  // of the nonces of records; their numbers count them
inline constexpr std::uint32_t kSmallestRecordBytes = 4'096;
inline constexpr std::uint32_t kLargestRecordBytes = 61'440;

// A binding is looked at in one go, perhaps by a thread that turns a loop.
inline constexpr std::uint64_t kLargestBindingBytes = 16 * 1024;

// More than any message has. What is under it can be added and multiplied without a thought.
inline constexpr std::uint64_t kLargestPayloadBytes = std::uint64_t{1} << 44;

inline constexpr std::uint64_t records_of(std::uint64_t bytes, std::uint32_t record_bytes = kRecordBytes) {
  return (bytes + record_bytes - 1) / record_bytes;
}

struct Holds;

// Pieces of a payload, by their numbers.
struct PieceRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// Made by seal(), seal_in_place() or adopt() with one reference. Any thread may hold one; the last one gives the
// memory back.
struct Sealed : detail::Pin {
  std::uint64_t id = 0;     // in the registry of its pool; 0: in none
  std::uint64_t bytes = 0;  // of ciphertext, which is as long as the text
  std::uint32_t record_bytes = kRecordBytes;
  bool adopted = false;    // the application sealed it: no key, no tags, never opened by us
  crypto::KeyBytes key{};  // fresh for every payload, so that a record's number is nonce enough;
                           // adopted: a digest of the binding, the bytes that these two name
  std::uint64_t binding_offset = 0, binding_bytes = 0;
  const std::byte* tags = nullptr;  // crypto::kTagBytes for each record
  // The ciphertext, in order. Every piece but the last holds whole records.
  struct Part {
    std::uint64_t begin = 0;  // of its first byte in the payload
    ByteSpan bytes;
  };
  std::vector<Part> parts;
  std::unique_ptr<Holds> holds;  // of the pieces, if there are several

  Sealed();
  Sealed(const Sealed&) = delete;
  Sealed& operator=(const Sealed&) = delete;
  ~Sealed();

  std::uint64_t records() const { return records_of(bytes, record_bytes); }
  // The piece that has the byte at `offset`, which is in the payload.
  std::uint32_t piece_at(std::uint64_t offset) const;
  const Part& part_at(std::uint64_t offset) const { return parts[piece_at(offset)]; }
  // The bytes from `offset` on that lie in one piece and one record. Somebody holds that piece.
  ByteSpan at(std::uint64_t offset) const;
  const std::byte* tag_of(std::uint64_t record) const { return tags + record * crypto::kTagBytes; }
};

}  // namespace weir::buffer
