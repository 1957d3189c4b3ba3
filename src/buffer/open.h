// Opening: the records of a landing are verified and decrypted, in place or into memory of the reader. One thread at a
// time for each landing. False: a record does not verify; it is zeros from then on (in place) or zeros were written
// (into another place), Landing::failed_record names it, and no later call succeeds.
//
// Data that the application sealed itself has no records to open; open_all() sees to it that it is what its binding
// says, and zeros all of it if not.
#pragma once

#include <cstddef>
#include <cstdint>

#include "buffer/landing.h"
#include "crypto/aead.h"

namespace weir::buffer {

std::uint64_t record_length(const Landing& landing, std::uint64_t record);

// The next record that is not open. At least one is left.
[[nodiscard]] bool open_next(Landing& landing, crypto::AeadKey& scratch);

// The same, with the ciphertext at `from` instead of in its place, as long as the record is.
[[nodiscard]] bool open_next_from(Landing& landing, ByteSpan from, crypto::AeadKey& scratch);

// All that are left.
[[nodiscard]] bool open_all(Landing& landing, crypto::AeadKey& scratch);
[[nodiscard]] bool open_all(Landing& landing);  // with this thread's key

// One record, counted from the landing's first, into `to`, which has room for record_length(). The landing keeps its
// ciphertext and does not count it as opened. Not after it was opened in place.
[[nodiscard]] bool open_into(Landing& landing, std::uint64_t record, std::byte* to, crypto::AeadKey& scratch);
[[nodiscard]] bool open_into(Landing& landing, std::uint64_t record, std::byte* to);

}  // namespace weir::buffer
