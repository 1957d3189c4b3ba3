// Landing: where one large message arrives. The engine writes ciphertext into it, packet by packet, as they come; when
// all of it is there it belongs to whoever is to read the message, who opens it in place, on a thread of the
// application. Over UDP nobody but the engine writes here, so opening in place is safe.
//
// One allocation holds all: this object, room for the message's header, the body, the records' tags. Header and body
// are neighbours, so that together they are one run of bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "buffer/memory.h"
#include "buffer/sealed.h"
#include "crypto/aead.h"
#include "crypto/secret.h"
#include "weir/pin.h"

namespace weir::buffer {

inline constexpr std::size_t kLargestHeaderBytes = 1'024;  // of a large message: it travels with its opening

// Told when a landing's memory is free again. `on_returned` is called by whichever thread dropped the last reference,
// before the memory goes back. It must outlive every landing; hence shared.
struct Landing;
struct Returns {
  virtual ~Returns() = default;
  virtual void on_returned(const Landing& landing) noexcept = 0;
};

struct Landing : detail::Pin {
  std::uint64_t capacity = 0;  // of body
  std::byte* body = nullptr;   // ciphertext, then text
  std::byte* tags = nullptr;   // crypto::kTagBytes for each record of `record_bytes`

  // ---- what the opening of the message said; set by the engine ----
  std::uint64_t bytes = 0;          // of body
  std::uint64_t first_record = 0;   // of the payload that these are the records of
  std::uint64_t payload_bytes = 0;  // of that whole payload: authenticated with each record
  std::uint32_t record_bytes = kRecordBytes;
  std::uint16_t header_bytes = 0;  // directly before body
  bool opens_ahead = false;        // by the engine, record by record, as they come
  bool adopted = false;            // nothing to open; instead the binding has to have the digest in `key`
  crypto::KeyBytes key{};
  std::uint64_t binding_offset = 0, binding_bytes = 0;  // adopted

  // ---- opening: one thread at a time ----
  static constexpr std::uint64_t kNoRecord = ~std::uint64_t{0};
  std::uint64_t opened_records = 0;         // adopted: all, once its binding was looked at
  std::uint64_t failed_record = kNoRecord;  // counted from this landing's first one; its bytes are zeros
  std::uint64_t records() const { return records_of(bytes, record_bytes); }
  bool is_open() const { return opened_records == records(); }
  ByteSpan header() const { return {body - header_bytes, header_bytes}; }
  ByteSpan whole() const { return {body - header_bytes, header_bytes + bytes}; }  // header and body

  // ---- its memory ----
  Memory* memory = nullptr;
  Piece piece;
  Returns* returns = nullptr;
  // Whom its memory is charged to; told to `returns`, if that is set.
  std::uint64_t charged_bytes = 0;
  std::uint64_t member = 0;  // 0: the path
  std::uint64_t path_serial = 0;
  std::uint32_t path = 0;
  std::uint32_t purse = 0;
};

// What a landing for so many bytes is charged: never little, because its memory is not. All landings that are charged
// `bytes` together take at most landing_memory(bytes).
inline constexpr std::uint64_t kSmallestLandingCost = 32 * 1024;
constexpr std::uint64_t landing_cost(std::uint64_t capacity) {
  return capacity < kSmallestLandingCost ? kSmallestLandingCost : capacity;
}
constexpr std::uint64_t landing_memory(std::uint64_t bytes) { return bytes / 16 * 21; }

// One reference, the caller's. Null: there is no memory, or nobody could want this much or these records.
// `capacity` bytes of body in records of `record_bytes`.
[[nodiscard]] Landing* make_landing(Memory& memory, std::uint64_t capacity, std::uint32_t record_bytes = kRecordBytes,
                                    int numa_node = -1);

}  // namespace weir::buffer
