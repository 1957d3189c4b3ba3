// AES-128 block by block, for Cmac alone: whoever wants to hide or authenticate bytes takes AeadKey or Cmac.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"
#include "crypto/secret.h"

namespace weir::crypto {

inline constexpr std::size_t kBlockBytes = 16;

// One key with its schedule, wiped when destroyed. One thread at a time. Nothing here allocates.
class BlockKey {
 public:
  BlockKey() = default;
  BlockKey(const BlockKey&) = delete;
  BlockKey& operator=(const BlockKey&) = delete;
  virtual ~BlockKey() = default;

  // Becomes another key, in the same memory.
  virtual void rekey(std::span<const std::byte, kKeyBytes> key) = 0;

  // CBC over whole blocks, at least one, from an initial vector of zeros. Only the last block of it is of use, and it
  // takes the place of the last of `blocks`; what the others hold afterwards depends on the library.
  virtual void chain(MutableByteSpan blocks) = 0;
};

}  // namespace weir::crypto
