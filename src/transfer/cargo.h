// Cargo: the sender's side of a large message. It lies at the front of the block whose rest is the message's opening:
// the description that travels (wire::CargoFrame) and the application's header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "base/bytes.h"
#include "buffer/holds.h"
#include "buffer/sealed.h"
#include "transfer/block_pool.h"
#include "wire/large_frame.h"

namespace weir::transfer {

struct Writer;

struct Cargo {
  buffer::Sealed* sealed = nullptr;  // one reference, until the receiver has all of it
  Writer* writer = nullptr;          // the engine's
  std::uint64_t first_byte = 0;      // in the payload: where a record begins
  std::uint64_t bytes = 0;
  std::uint64_t acknowledged = 0;  // of these: the receiver has them, and we need not
  buffer::PieceRange held;         // that have the others

  static constexpr std::size_t kRoom = 64;  // in front of the opening

  static Cargo& of(Block* block) { return *std::launder(reinterpret_cast<Cargo*>(block->bytes())); }
  static std::byte* opening(Block* block) { return block->bytes() + kRoom; }
};
static_assert(sizeof(Cargo) <= Cargo::kRoom);

// A run of whole records of a payload, or all of it.
struct CargoRange {
  std::uint64_t first_record = 0;
  std::uint64_t bytes = 0;
};

inline buffer::PieceRange pieces_of(const buffer::Sealed& sealed, CargoRange range) {
  const std::uint64_t begin = range.first_record * sealed.record_bytes;
  return buffer::pieces_of(sealed, begin, begin + range.bytes);
}

// A block that holds the cargo and its opening; takes over what buffer::lend() gave for the range. The opening's length
// is wire::kCargoBytes + header.size().
inline Block* load_cargo(BlockPool& blocks, buffer::Sealed* sealed, CargoRange range, Pattern pattern,
                         ByteSpan header) {
  Block* block = blocks.acquire(Cargo::kRoom + wire::kCargoBytes + header.size());
  ::new (static_cast<void*>(block->bytes())) Cargo{.sealed = sealed,
                                                   .first_byte = range.first_record * sealed->record_bytes,
                                                   .bytes = range.bytes,
                                                   .held = pieces_of(*sealed, range)};
  std::byte* const opening = Cargo::opening(block);
  wire::encode_cargo({.body_bytes = range.bytes,
                      .payload_bytes = sealed->adopted ? sealed->binding_bytes : sealed->bytes,
                      .first_record = sealed->adopted ? sealed->binding_offset : range.first_record,
                      .record_bytes = sealed->record_bytes,
                      .adopted = sealed->adopted,
                      .pattern = pattern,
                      .key = sealed->key},
                     opening);
  if (!header.empty()) std::memcpy(opening + wire::kCargoBytes, header.data(), header.size());
  return block;
}

// Lets go of a block, and of the cargo in it if it has one.
inline void drop_block(Block* block, bool is_large) {
  if (is_large) {
    const Cargo& cargo = Cargo::of(block);
    if (cargo.sealed != nullptr) buffer::give_back(cargo.sealed, cargo.held);
  }
  detail::unpin(block);
}

}  // namespace weir::transfer
